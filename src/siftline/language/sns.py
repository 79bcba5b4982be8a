"""What Amazon SNS asks of a filter policy beyond its grammar; the grammar is in `event_pattern`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import SubscriptionError
from siftline.language.pattern_conditions import Condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline.language.pattern_conditions import Items

# A policy may have this many keys; below a key any number.
MAX_KEYS: Final = 5
# ... and stand for this many combinations of values.
MAX_COMBINATIONS: Final = 150


def check_limits(members: Sequence[tuple[str, Any]], items: Items) -> None:
    """Raise SubscriptionError if the policy has more keys or combinations than SNS accepts.

    >>> from siftline.language.event_pattern import parse_pattern
    >>> parse_pattern({"size": list(range(151))}, dialect="sns")
    Traceback (most recent call last):
        ...
    siftline.errors.SubscriptionError: the policy stands for 151 combinations of values, SNS accepts 150
      hint: the lengths of the arrays multiply, each times the depth of its key
    """
    n_keys = len({key for key, _ in members})
    if n_keys > MAX_KEYS:
        raise SubscriptionError(f"the policy has {n_keys} keys, SNS accepts {MAX_KEYS}")
    n_combinations = _count(items)
    if n_combinations > MAX_COMBINATIONS:
        raise SubscriptionError(
            f"the policy stands for {n_combinations} combinations of values, SNS accepts {MAX_COMBINATIONS}",
            hint="the lengths of the arrays multiply, each times the depth of its key",
        )


def _count(items: Items) -> int:
    """Return the product over fields of values times depth; the branches of `$or` add."""
    return math.prod(
        item.n_values * (item.path.count(".") + 1)
        if isinstance(item, Condition)
        else sum(_count(branch) for branch in item.branches)
        for item in items
    )
