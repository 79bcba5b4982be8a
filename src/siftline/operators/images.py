"""Statistics of encoded images, with Pillow: a simple example of multimedia operators; no image recognition.

    brightness([attribute], ?value)           the mean brightness, from 0 to 255
    dominant_color([attribute], ?name)        the name of the most frequent colour

The attribute, `image` if left out, has the image file in base64.
"""

from __future__ import annotations

import base64
import io
from typing import Any, Final

from siftline.operators.events import texts_of
from siftline.operators.operator import operator

try:
    from PIL import Image, ImageStat
except ImportError as error:
    raise ImportError("operators on images need Pillow: pip install 'siftline[operators]'") from error

_COLORS: Final = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "grey": (128, 128, 128),
    "red": (220, 20, 20),
    "green": (20, 160, 20),
    "blue": (30, 60, 220),
    "yellow": (240, 220, 30),
    "orange": (240, 140, 20),
    "purple": (130, 30, 160),
    "cyan": (30, 200, 220),
    "pink": (250, 150, 190),
    "brown": (120, 70, 30),
}
# Colours are counted on a small copy.
_THUMBNAIL_SIZE: Final = (64, 64)


@operator("brightness", cost=3.0, timeout=10, binds=["value"])
def brightness(event: Any, attribute: str = "image") -> float | None:
    """Return the mean brightness of an image."""
    image = _image(event, attribute)
    return None if image is None else float(ImageStat.Stat(image.convert("L")).mean[0])


@operator("dominant_color", cost=5.0, timeout=10, binds=["name"])
def dominant_color(event: Any, attribute: str = "image") -> str | None:
    """Return the name of the colour that most pixels are nearest to."""
    image = _image(event, attribute)
    if image is None:
        return None
    counts: dict[str, int] = {}
    small = image.convert("RGB").resize(_THUMBNAIL_SIZE)
    for n, pixel in small.getcolors(_THUMBNAIL_SIZE[0] * _THUMBNAIL_SIZE[1]) or []:
        name = _nearest(pixel)
        counts[name] = counts.get(name, 0) + n
    return max(counts, key=counts.__getitem__)


def _nearest(pixel: Any) -> str:
    return min(_COLORS, key=lambda name: sum((a - b) ** 2 for a, b in zip(pixel, _COLORS[name], strict=True)))


def _image(event: Any, attribute: str) -> Image.Image | None:
    contents = texts_of(event, attribute)
    return Image.open(io.BytesIO(base64.b64decode(contents[0], validate=True))) if contents else None
