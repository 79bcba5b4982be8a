"""The names of the attributes of products, and the words of their values.

A name is one of a few common ones, such as `brand` and `price`, or a part with a property: `handle_material`,
`strap_length_mm`. Each text attribute takes its values from one of a few lists of words, alone or with another word.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Words(NamedTuple):
    """A list of values: each word alone, then with each of the others before or after it."""

    words: tuple[str, ...]
    others: tuple[str, ...]
    is_behind: bool = False

    def values(self) -> list[str]:
        """Return all values, plain ones first."""
        joined = (
            f"{word} {other}" if self.is_behind else f"{other} {word}" for other in self.others for word in self.words
        )
        return [*self.words, *joined]


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


COLOURS: Final = Words(
    _split(
        "black white grey silver gold red orange yellow green blue purple pink brown beige ivory turquoise teal navy "
        "olive maroon coral lavender crimson indigo bronze"
    ),
    _split(
        "dark light pale deep bright matte glossy metallic pastel warm cool faded vivid soft dusty smoky frosted "
        "pearl neon antique"
    ),
)
MATERIALS: Final = Words(
    _split(
        "steel aluminium brass copper titanium oak walnut maple bamboo birch leather cotton linen wool silk nylon "
        "glass ceramic marble granite rubber silicone cork paper wicker"
    ),
    _split(
        "brushed polished recycled painted anodised oiled waxed woven reinforced tempered natural stained laminated "
        "textured hammered varnished moulded pressed hardened engraved"
    ),
)
MAKERS: Final = Words(
    _split(
        "Almond Birchwood Calder Dunmore Elmhurst Fairfax Granger Harlow Ivybridge Juniper Kestrel Langley Merrow "
        "Norwood Oakley Pemberton Quill Rowan Selwyn Thornton Underhill Vesper Whitby Yarrow Zephyr"
    ),
    _split(
        "Works Labs Supply Goods Brothers Design Studio Craft Tools Trading Home Sport Audio Optics Instruments "
        "Outdoor Textiles Mills Foundry Collective"
    ),
    is_behind=True,
)
PLACES: Final = Words(
    _split(
        "Lisbon Porto Seville Lyon Ghent Bremen Leipzig Vienna Krakow Prague Turku Bergen Malmo Aarhus Bristol Leeds "
        "Cork Boston Denver Austin Quito Lima Osaka Kyoto Perth"
    ),
    _split(
        "old new north south east west upper lower greater inner outer central harbour market castle river garden "
        "station bridge abbey"
    ),
)
STYLES: Final = Words(
    _split(
        "classic modern rustic vintage compact slim wide round square oval curved folding sliding tapered quilted "
        "ribbed striped plain floral checked dotted marbled geometric woodland nautical"
    ),
    _split(
        "spring summer autumn winter city country garden travel studio heritage sport office holiday evening weekend "
        "island junior royal harbour market"
    ),
)
LISTS: Final = (COLOURS, MATERIALS, MAKERS, PLACES, STYLES)

# Common attributes: the name and word list of a text; the name and number of values of a number.
COMMON_TEXTS: Final = (
    ("brand", MAKERS),
    ("colour", COLOURS),
    ("material", MATERIALS),
    ("style", STYLES),
    ("made_in", PLACES),
    ("seller", MAKERS),
    ("ships_from", PLACES),
    ("collection", MAKERS),
    ("pattern", STYLES),
    ("lining", MATERIALS),
)
COMMON_NUMBERS: Final = (
    ("price", 2_000),
    ("weight_g", 20_000),
    ("length_mm", 3_000),
    ("width_mm", 2_000),
    ("height_mm", 2_000),
    ("stock", 500),
    ("reviews", 10_000),
    ("warranty_months", 120),
    ("model_year", 30),
    ("pack_size", 48),
)

PARTS: Final = _split(
    "handle lid strap frame screen battery case cover base wheel pedal saddle chain spout blade hinge lock zip pocket "
    "collar sleeve sole heel lace buckle button seam hood cuff panel shelf drawer door leg arm seat back cushion "
    "mattress pillow curtain rug lamp shade bulb switch plug cable charger speaker microphone lens mirror filter "
    "tripod flash sensor keyboard mouse stand hub fan pump valve hose nozzle tank boiler kettle grill pan pot lever "
    "knob dial gauge timer bell string bow bridge fret neck drum reed mouthpiece rope pole peg tent stove bottle "
    "flask bag box tray basket hook rail bracket clamp screw drill saw brush roller ladder glove helmet goggles fin "
    "paddle oar sail racket net ball"
)
TEXT_PROPERTIES: Final = (
    *(
        (name, COLOURS)
        for name in _split("colour trim_colour accent_colour edge_colour inner_colour print_colour tint dye")
    ),
    *(
        (name, MATERIALS)
        for name in _split("material core_material surface coating filling backing padding joint_material alloy grip")
    ),
    *(
        (name, MAKERS)
        for name in _split(
            "maker supplier designer series importer edition certifier line licence label workshop patent"
        )
    ),
    *((name, PLACES) for name in _split("origin assembled_in designed_in tested_in sourced_in repaired_in stored_in")),
    *(
        (name, STYLES)
        for name in _split(
            "style shape pattern finish texture cut fit grade look profile closure mount motif stitching layout weave "
            "form contour theme decor cast border crest tip rim print fold relief silhouette ornament"
        )
    ),
)
NUMBER_PROPERTIES: Final = _split(
    "length_mm width_mm height_mm depth_mm weight_g diameter_mm thickness_mm volume_ml capacity area_cm2 angle "
    "power_w voltage_v current_ma speed load_kg pressure_kpa temperature_c noise_db lifetime_h warranty_months pieces "
    "layers rating clearance_mm radius_mm span_mm pitch_mm tension_n rate_hz cycles humidity stroke_mm"
)
