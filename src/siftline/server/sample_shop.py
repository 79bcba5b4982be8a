"""Random products and subscriptions for `siftline serve --demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random

_BRANDS: Final = ("acme", "apple", "fjord", "globex", "initech", "nokia", "sony", "umbra", "vulcan", "zephyr")
_CATEGORIES: Final = ("audio", "camera", "laptop", "phone", "tablet", "television", "watch")
_COLORS: Final = ("black", "blue", "gold", "green", "red", "silver", "white")
_TAGS: Final = ("bundle", "clearance", "new", "open box", "refurbished", "sale")
_CITIES: Final = ("berlin", "boston", "kyoto", "lima", "oslo", "perth")


def product(chance: random.Random) -> dict[str, Any]:
    """Return an event: an offered product."""
    event: dict[str, Any] = {
        "brand": chance.choice(_BRANDS),
        "category": chance.choice(_CATEGORIES),
        "price": round(chance.lognormvariate(5.3, 0.8), 2),
        "rating": round(chance.uniform(1, 5), 1),
        "stock": chance.randrange(200),
        "tags": chance.sample(_TAGS, chance.randrange(4)),
        "shop": {"city": chance.choice(_CITIES), "delivers": chance.random() < 0.7},
    }
    if chance.random() < 0.8:
        event["color"] = chance.choice(_COLORS)
    return event


def subscription(chance: random.Random) -> str:
    """Return a subscription: the products that a customer wants to hear about."""
    conditions = [
        f"category in ({_some(chance, _CATEGORIES)})",
        f"price <= {chance.randrange(50, 500, 10)}",
        f"price between {chance.randrange(50, 200, 10)} and {chance.randrange(200, 600, 10)}",
        f"rating >= {chance.choice((3.5, 4, 4.5))}",
        f"color in ({_some(chance, _COLORS)})",
        f"not (tags = '{chance.choice(_TAGS)}')",
        f"tags in ({_some(chance, _TAGS)})",
        f"shop.city = '{chance.choice(_CITIES)}'",
        f"(shop.delivers = true or shop.city starts with '{chance.choice(_CITIES)[0]}')",
        "stock > 0",
    ]
    return " and ".join([f"brand = '{chance.choice(_BRANDS)}'", *chance.sample(conditions, chance.randrange(2, 5))])


def _some(chance: random.Random, words: tuple[str, ...]) -> str:
    return ", ".join(f"'{word}'" for word in chance.sample(words, 2))
