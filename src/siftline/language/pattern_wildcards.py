"""How complex the wildcards of an event pattern may be.

The service refuses wildcards if too many of their beginnings could fit one value at the same time: after "abab" the
beginnings `*`, `*ab` and `*abab` of `*ababx` all fit. The beginnings are the states of a machine that reads a value,
and a search over the sets of states that can be active together finds whether any set is too large.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from siftline.errors import SubscriptionError
from siftline.language.pattern_conditions import alternatives, conditions_in, engine_order
from siftline.language.pattern_matchers import wildcard_pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline.language.pattern_conditions import Items

# This many beginnings may fit at once. A public re-implementation of EventBridge names this limit; it agrees with the
# patterns that the service is known to accept and to refuse.
MAX_COMPLEXITY: Final = 10
# The search gives up, and refuses, after this many steps.
_MAX_STEPS: Final = 10_000

# What a state may wait for besides a character.
_STAR: Final = None
_END: Final = ""


def check_wildcards(items: Items) -> None:
    """Refuse wildcards that the service refuses.

    >>> from siftline.language.event_pattern import parse_pattern
    >>> parse_pattern({"name": [{"wildcard": "*aaaaaaaaaaa"}]})
    Traceback (most recent call last):
        ...
    siftline.errors.SubscriptionError: at name: the wildcards are too complex
      hint: use fewer '*', or fewer repetitions after a '*'
    """
    if not any(condition.wildcards for condition in conditions_in(items)):
        return
    fields: dict[tuple[int, str], dict[tuple[str, ...], None]] = {}
    for alternative in alternatives(items):
        before = 0  # alternatives share a state of the engine as long as they are the same
        for condition in sorted(alternative.values(), key=engine_order):
            if condition.wildcards:
                fields.setdefault((before, condition.path), {}).update(dict.fromkeys(condition.wildcards))
            before = hash((before, condition))
    for (_, path), wildcards in fields.items():
        if _is_too_complex(tuple(wildcards)):
            raise SubscriptionError(
                "the wildcards are too complex", path=path, hint="use fewer '*', or fewer repetitions after a '*'"
            )


@lru_cache(maxsize=1024)
def _is_too_complex(wildcards: tuple[tuple[str, ...], ...]) -> bool:
    """Return whether some value is met by too many beginnings of these wildcards at the same time."""
    symbols, names = _machine(wildcards)
    start = frozenset(state for state, name in enumerate(names) if name == 0)
    pending, seen = [start], {start}
    while pending:
        active = pending.pop()
        # All symbols on which nothing advances lead to the same states: '' stands for them.
        for symbol in {symbols[state] or _END for state in active} | {_END}:
            following = _step(active, symbol, symbols)
            if len({names[state] for state in following}) > MAX_COMPLEXITY or len(seen) > _MAX_STEPS:
                return True
            if following not in seen:
                seen.add(following)
                pending.append(following)
    return False


def _machine(wildcards: tuple[tuple[str, ...], ...]) -> tuple[list[str | None], list[int]]:
    """Return for each state (a beginning of a wildcard) the symbol it waits for, and a number that names it.

    The engine stores the beginnings of one matcher up to and with the first `*` only once, and also their end.
    """
    symbols: list[str | None] = []
    names: list[int] = []
    known: dict[object, int] = {None: 0}
    for matcher, patterns in enumerate(wildcards):
        for pattern in patterns:
            text = ['"', *_symbols(pattern), '"']
            name, first_star = 0, text.index(_STAR) if _STAR in text else len(text)
            for i, symbol in enumerate(text):
                symbols.append(symbol)
                names.append(name)
                shared = (matcher, name, symbol) if i <= first_star else (len(names), symbol)
                name = known.setdefault((matcher, _END) if i == len(text) - 1 else shared, len(known))
            symbols.append(_END)
            names.append(name)
    return symbols, names


def _symbols(pattern: str) -> list[str | None]:
    first, *others = wildcard_pieces(pattern)
    symbols: list[str | None] = [*first]
    for piece in others:
        symbols += [_STAR, *piece]
    return symbols


def _step(active: frozenset[int], symbol: str, symbols: Sequence[str | None]) -> frozenset[int]:
    """Return the states that are active after one more symbol."""
    following = {state + 1 for state in active if symbol and symbols[state] == symbol}
    following |= {state for state in active if state and symbols[state - 1] is _STAR}
    return frozenset(following | {state + 1 for state in following if symbols[state] is _STAR})
