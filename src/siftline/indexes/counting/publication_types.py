"""Publication types: which values an attribute may have, and the refusal of constants that it never can have.

A type is declared per attribute, in a spelling that JSON can hold (ToPSS 2):

    {"from": 0, "to": 120}         the integers of a range
    {"values": ["red", "green"]}   an enumeration of strings, numbers or booleans
    "integer"                      any integer
    "string"                       any string

Subscriptions are checked by their codes, all at once: bounds on the labels of declared values are in order. Only where
one is not, the expression itself decides, because a code does not tell `< 'ac'` from `starts with 'ab'`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.clauses import spans
from siftline.encoding.domain import BOOLEANS, FALSE, NOT_NULL, NUMBERS, PRESENT, STRINGS, TRUE
from siftline.errors import SubscriptionError
from siftline.model import AnyElement, Expression, Now, Predicate, Timestamp, kind_of
from siftline.model.expression import children
from siftline.model.predicate import CASELESS, TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.encoding.domain import Domain, Line
    from siftline.encoding.domains import Domains
    from siftline.indexes.protocol import Batch
    from siftline.model import Constant

_SECTIONS: Final = {"boolean": BOOLEANS, "number": NUMBERS, "string": STRINGS}
_SPELLINGS: Final = '{"from": 0, "to": 9}, {"values": ["a", "b"]}, "integer" or "string"'


class PublicationType(NamedTuple):
    """What values an attribute may have."""

    kinds: frozenset[str]
    first: int | None = None  # of a range of integers
    last: int | None = None
    values: frozenset[tuple[str, Constant]] | None = None  # with their kinds: true is not 1
    text: str = ""  # what it takes, in words

    @property
    def is_finite(self) -> bool:
        """Whether the values can be counted, so that they can have a table."""
        return self.first is not None or self.values is not None

    def allows(self, value: Constant) -> bool:
        """Return whether a value is one of this type.

        >>> age = publication_type("age", {"from": 0, "to": 120})
        >>> age.allows(120), age.allows(121), age.allows(1.5), age.allows(True)
        (True, False, False, False)
        """
        if self.values is not None:
            return (kind_of(value), value) in self.values
        if kind_of(value) not in self.kinds:
            return False
        if isinstance(value, str):
            return True
        return value == int(value) and (self.first is None or self.first <= value <= self.last)  # type: ignore[operator]

    def reach(self, line: Line) -> tuple[int, int] | None:
        """Return the first and the last label of the constants of a finite type, None if the line has none of them."""
        if self.values is not None:
            is_number = line.section == NUMBERS
            constants = [value for kind, value in self.values if kind == ("number" if is_number else "string")]
            labels = [line.code(value) for value in constants if line.has(value)]
            return (min(labels), max(labels)) if labels else None
        if line.section != NUMBERS:
            return None
        keys, labels = line.keys, line.labels
        first, end = bisect_left(keys, self.first), bisect_right(keys, self.last)
        return (labels[first], labels[end - 1]) if first < end else None


def publication_types(declared: Any) -> dict[str, PublicationType]:
    """Check the option `types` and return a type for each attribute in it."""
    if declared is None:
        return {}
    if not isinstance(declared, Mapping) or not all(isinstance(name, str) for name in declared):
        raise ValueError(f"types must map attributes to types, not be {declared!r}")
    return {name: publication_type(name, declaration) for name, declaration in declared.items()}


def publication_type(name: str, declared: Any) -> PublicationType:
    """Return the type that an attribute is declared to have."""
    if declared == "integer":
        return PublicationType(frozenset({"number"}), text="integers")
    if declared == "string":
        return PublicationType(frozenset({"string"}), text="strings")
    if isinstance(declared, dict) and set(declared) == {"from", "to"}:
        first, last = declared["from"], declared["to"]
        if type(first) is int and type(last) is int:
            if first > last:
                raise ValueError(f"the type of {name!r} has no values: from {first} is above to {last}")
            return PublicationType(frozenset({"number"}), first, last, text=f"integers from {first} to {last}")
    if isinstance(declared, dict) and set(declared) == {"values"}:
        values = declared["values"]
        if isinstance(values, list) and values and all(_is_constant(value) for value in values):
            pairs = frozenset((kind_of(value), value) for value in values)
            shown = ", ".join(repr(value) for value in values)
            return PublicationType(frozenset(kind for kind, _ in pairs), values=pairs, text=f"one of {shown}")
    raise ValueError(f"the type of {name!r} must be {_SPELLINGS}, not {declared!r}")


def _is_constant(value: object) -> bool:
    return type(value) in (bool, int, str) or (type(value) is float and np.isfinite(value))


def check_constants(types: Mapping[str, PublicationType], batch: Batch) -> None:
    """Raise SubscriptionError for a subscription with a constant that its attribute never has.

    A predicate that leaves nothing to be matched, as `between` with reversed bounds, is not looked at.
    """
    for name, publication in types.items():
        attribute = batch.domains.ids.get(name)
        if attribute is not None:
            suspects = _suspects(publication, batch.clauses, attribute, batch.domains.domains[attribute])
            if "string" not in publication.kinds:
                suspects += _slots_with_patterns(batch.clauses, attribute, batch.domains)
            for slot in suspects:
                for predicate in _predicates_on(name, batch.expression(slot)):
                    _check_predicate(name, publication, predicate)


def _suspects(publication: PublicationType, clauses: Clauses, attribute: int, domain: Domain) -> list[int]:
    """Return the slots with a bound on the attribute that is no label of its type, and no end of a whole section."""
    lows, highs, owners = _ranges(clauses, np.flatnonzero(clauses.attributes == attribute))
    sections = [_SECTIONS[kind] for kind in publication.kinds]
    is_known = _are_known(lows, 1, [section.first for section in sections], publication, domain)
    is_known &= _are_known(highs, -1, [section.last for section in sections], publication, domain)
    for section in (NOT_NULL, PRESENT):
        is_known |= (lows == section.first) & (highs == section.last)
    suspects = np.searchsorted(clauses.starts, owners[~is_known], side="right") - 1
    slots: list[int] = np.unique(clauses.slots[suspects]).tolist()
    return slots


def _slots_with_patterns(clauses: Clauses, attribute: int, domains: Domains) -> list[int]:
    """Return the slots that look into the strings of an attribute."""
    patterns = domains.pattern_attributes
    used = [a for a in np.unique(clauses.attributes).tolist() if a in patterns and patterns[a].attribute == attribute]
    owners = np.searchsorted(clauses.starts, np.flatnonzero(np.isin(clauses.attributes, used)), side="right") - 1
    slots: list[int] = np.unique(clauses.slots[owners]).tolist()
    return slots


def _are_known(
    bounds: NDArray[np.int32], step: int, ends: list[int], publication: PublicationType, domain: Domain
) -> NDArray[np.bool_]:
    """Return which bounds are ends, labels of constants of the type, or one step beside such a label."""
    distinct, places = np.unique(bounds, return_inverse=True)
    flags = []
    for code in distinct.tolist():
        constants = _constants_at(code, domain)
        if code not in (FALSE, TRUE):  # between those two there is nothing, so no bound stands beside them
            constants += _constants_at(code - step, domain)
        flags.append(code in ends or any(publication.allows(constant) for constant in constants))
    known: NDArray[np.bool_] = np.array(flags, dtype=np.bool_)[places]
    return known


def _constants_at(code: int, domain: Domain) -> list[Constant]:
    """Return the constant with this label, if it is one."""
    if code in (FALSE, TRUE):
        return [code == TRUE]
    return (domain.strings if code >= STRINGS.first else domain.numbers).constants_at(code)


def _ranges(
    clauses: Clauses, literals: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """Return low code, high code and literal of every range, those of sets included."""
    has_set = clauses.sets[literals] >= 0
    plain, listed = literals[~has_set], literals[has_set]
    sets = clauses.sets[listed]
    lengths = np.diff(clauses.set_starts)[sets]
    items = spans(clauses.set_starts[sets], lengths)
    return (
        np.concatenate([clauses.lows[plain], clauses.set_lows[items]]),
        np.concatenate([clauses.highs[plain], clauses.set_highs[items]]),
        np.concatenate([plain, np.repeat(listed, lengths)]),
    )


def _predicates_on(name: str, expression: Expression) -> Iterator[Predicate]:
    """Yield the predicates on an attribute, wherever they stand."""
    pending: list[tuple[str, Expression]] = [("", expression)]
    while pending:
        prefix, node = pending.pop()
        if isinstance(node, Predicate):
            if ".".join(part for part in (prefix, node.attribute) if part) == name:
                yield node
        elif isinstance(node, AnyElement):
            prefix = f"{prefix}.{node.attribute}" if prefix else node.attribute
        pending += [(prefix, child) for child in children(node)]


def _check_predicate(name: str, publication: PublicationType, predicate: Predicate) -> None:
    for constant in predicate.constants():
        # A pattern is no value, nor is a timestamp: they need only be of a kind that the attribute has.
        if isinstance(constant, (Timestamp, Now)):
            is_allowed = "string" in publication.kinds
        elif predicate.op in TEXTS | CASELESS:
            is_allowed = kind_of(constant) in publication.kinds
        else:
            is_allowed = publication.allows(constant)
        if not is_allowed:
            shown = str(constant) if isinstance(constant, (Timestamp, Now)) else repr(constant)
            raise SubscriptionError(
                f"{shown} is outside of the domain of {name!r}, which takes {publication.text}",
                hint="the domain is declared by the option types of the index",
            )
