"""`siftline demo`: generated product events against thousands of subscriptions, with explanations."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, Final

from siftline.cli.match import count
from siftline.cli.problems import OK, show
from siftline.cli.progress import Progress

if TYPE_CHECKING:
    import argparse

    from siftline.engine import Engine
    from siftline.model import Expression

NAME: Final = "demo"
SUMMARY: Final = "match generated product events, and explain a match and a near miss"
DETAILS: Final = """\
Nothing is read or written; the same seed gives the same subscriptions, events and matches.
"""
EXAMPLES: Final = """\
examples:
  siftline demo
  siftline demo --subscriptions 100000 --events 2000 --seed 7
"""

_BRANDS: Final = ("acme", "apple", "fjord", "globex", "initech", "nokia", "sony", "umbra", "vulcan", "zephyr")
_CATEGORIES: Final = ("audio", "camera", "laptop", "phone", "tablet", "television", "watch")
_COLORS: Final = ("black", "blue", "gold", "green", "red", "silver", "white")
_TAGS: Final = ("bundle", "clearance", "new", "open box", "refurbished", "sale")
_CITIES: Final = ("berlin", "boston", "kyoto", "lima", "oslo", "perth")

_N_SHOWN: Final = 3
_WIDTH: Final = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    parser.add_argument("--subscriptions", metavar="N", type=count, default=10_000, help="how many (10000)")
    parser.add_argument("--events", metavar="N", type=count, default=3_000, help="how many (3000)")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="of the random choices (1)")


def run(args: argparse.Namespace) -> int:
    """Show the engine at work."""
    from siftline.engine import Engine

    chance = random.Random(args.seed)
    texts = [subscription(chance) for _ in range(args.subscriptions)]
    events = [product(chance) for _ in range(args.events)]
    engine = Engine()
    start = time.perf_counter()
    engine.add_many((f"s{number}", text) for number, text in enumerate(texts))
    show(f"{len(engine):,} subscriptions added in {time.perf_counter() - start:.1f} s, such as")
    for text in texts[:_N_SHOWN]:
        show(f"  {text}")
    matches = _matched(engine, events, args.quiet)
    _show_matches(events, matches, dict(enumerate(texts)))
    _show_explanations(engine, events, matches)
    return OK


# What is generated


def product(chance: random.Random) -> dict[str, Any]:
    """Return an event: a product that was offered."""
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
    """Return a subscription: what somebody would like to hear about."""
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


# What is shown


def _matched(engine: Engine, events: list[dict[str, Any]], is_quiet: bool) -> list[list[Any]]:
    """Match every event and tell how fast that was."""
    engine.match(events[0])  # loads or compiles the kernels, which is no part of matching
    matches: list[list[Any]] = []
    with Progress("matching", len(events), "events", is_quiet=is_quiet) as progress:
        start = time.perf_counter()
        for event in events:
            matches.append(list(engine.match(event)))
            progress.advance(1)
        seconds = time.perf_counter() - start
    total = sum(map(len, matches))
    rate, delay = len(events) / seconds, 1e6 * seconds / len(events)
    show(
        f"{len(events):,} events matched one by one in {seconds:.2f} s: {rate:,.0f} events/s, {delay:.0f} µs an event, "
        f"{total / len(events):.1f} matches an event (index: {engine.stats()['index']})"
    )
    return matches


def _show_matches(events: list[dict[str, Any]], matches: list[list[Any]], texts: dict[int, str]) -> None:
    show("a few of the matches:")
    some = [position for position, ids in enumerate(matches) if ids][:_N_SHOWN]
    for position in some:
        show(f"  event {position}: {_shortened(str(events[position]))}")
        for id in sorted(matches[position], key=lambda id: int(id[1:]))[:_N_SHOWN]:
            show(f"    {id:<7} {_shortened(texts[int(id[1:])])}")
    if not some:
        show("  none; more subscriptions or events would help")


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _show_explanations(engine: Engine, events: list[dict[str, Any]], matches: list[list[Any]]) -> None:
    position = next((position for position, ids in enumerate(matches) if ids), None)
    if position is not None:
        show(f"why event {position} matches {matches[position][0]}:")
        show(_indented(engine.explain(events[position], matches[position][0])))
    miss = _near_miss(engine, events[:20])
    if miss is not None:
        position, id = miss
        show(f"and why event {position} does not match {id}, though only one condition fails:")
        show(_indented(engine.explain(events[position], id)))


def _indented(explanation: object) -> str:
    return "\n".join(f"  {line}" for line in str(explanation).split("\n"))


def _near_miss(engine: Engine, events: list[dict[str, Any]]) -> tuple[int, Any] | None:
    """Return an event and a subscription of which all conditions but one hold."""
    from siftline.model import Event

    ids = engine.ids()[:1000]
    for position, tree in enumerate(events):
        event = Event(tree)
        for id in ids:
            if _n_failing(engine.expression(id), event) == 1:
                return position, id
    return None


def _n_failing(expression: Expression, event: Any) -> int:
    from siftline.model import children, matches

    return sum(not matches(operand, event) for operand in children(expression))
