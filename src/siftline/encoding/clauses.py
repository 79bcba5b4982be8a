"""Subscriptions as flat arrays: clauses of coded literals, ready for any index.

A subscription occupies one *slot* and has zero or more clauses, or-ed. A clause is a conjunction of coded literals:
"some value of this attribute has a code in these ranges", or, for a veto, "no value has". For an index that takes
conjunctions of disjunctions, a literal may be an *alternative* to the one before it: either is enough.

What `contains` and its like ask is decided when an event is encoded: the event then carries a *pattern attribute*, and
the literal asks for that. An index that takes patterns gets a literal on the attribute itself, which any string
satisfies as far as codes can tell, and beside it names the *pattern*.

    price < 9 and color in ('red', 'blue')        slots       0
                                                  starts      0                    2
    attributes  price          color              kinds       RANGE                SET
    lows, highs 3 .. 199       hull of the set    sets        -1                   0 -> set_starts[0] : set_starts[1]
"""

from __future__ import annotations

import json
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.domain import STRINGS, TRUE
from siftline.encoding.domains import (
    ANY_STRING,
    CASELESS_LIST,
    PATTERN_OPS,
    TEXT_LIST,
    Domains,
    MomentOf,
    Pattern,
)
from siftline.encoding.flat_domains import kept as kept_constants
from siftline.encoding.moments import ages_of, derived_comparison, has_moments
from siftline.encoding.ranges import SECTIONS, boundaries, is_opaque, presence, simplified, spaces, subtract
from siftline.kernels import codes
from siftline.kernels.literals import Literals
from siftline.kernels.spans import span_owners, span_positions
from siftline.language.normal_form import Asked, parts_of
from siftline.model import AnyString, Expression, Or, Predicate, fold, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from siftline.encoding.domains import Move
    from siftline.encoding.ranges import Ranges
    from siftline.language.normal_form import Clause, Cover

RANGE: Final = int(codes.RANGE)  # some value has a code in low .. high
SET: Final = 1  # some value has a code in one of several ranges; low .. high is their hull
VETO: Final = int(codes.VETO)  # added to the above: no value has

# The codes of a pattern attribute where it is there at all.
SATISFIED: Final[Ranges] = [(TRUE, TRUE)]


class Clauses(NamedTuple):
    """Clauses in slot order, as arrays; see the drawing above."""

    slots: NDArray[np.int32]
    starts: NDArray[np.int64]
    is_exact: NDArray[np.bool_]  # False: a candidate still needs the exact check
    is_exact_by_patterns: NDArray[np.bool_]  # likewise, for an index that decides the patterns
    attributes: NDArray[np.int32]
    lows: NDArray[np.int32]
    highs: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    sets: NDArray[np.int32]
    is_alternative: NDArray[np.bool_]  # or-ed with the literal before it; never the first of its clause
    patterns: NDArray[np.int32]  # what a value must match beside having one of the codes; -1: nothing
    set_starts: NDArray[np.int64]
    set_lows: NDArray[np.int32]
    set_highs: NDArray[np.int32]

    @property
    def n_clauses(self) -> int:
        """Return the number of clauses."""
        return len(self.slots)

    @property
    def literals(self) -> Literals:
        """The arrays that kernels need to test literals."""
        return Literals(*(getattr(self, name) for name in Literals._fields))

    def check(self) -> None:
        """Assert that all offsets fit together."""
        assert len(self.starts) == len(self.slots) + 1 == len(self.is_exact) + 1
        assert self.starts[0] == 0
        assert self.starts[-1] == len(self.attributes) == len(self.lows) == len(self.highs)
        assert (np.diff(self.slots) >= 0).all()
        assert (self.lows <= self.highs).all()
        has_set = (self.kinds & SET) != 0
        assert ((self.sets >= 0) == has_set).all()
        assert (self.sets < len(self.set_starts) - 1).all()
        assert not self.is_alternative[self.starts[:-1][np.diff(self.starts) > 0]].any()


_DTYPES: Final = {
    "slots": np.int32,
    "starts": np.int64,
    "is_exact": np.bool_,
    "is_exact_by_patterns": np.bool_,
    "attributes": np.int32,
    "lows": np.int32,
    "highs": np.int32,
    "kinds": np.uint8,
    "sets": np.int32,
    "is_alternative": np.bool_,
    "patterns": np.int32,
    "set_starts": np.int64,
    "set_lows": np.int32,
    "set_highs": np.int32,
}


def encode_covers(
    covers: Sequence[Cover], first_slot: int, domains: Domains, *, takes_patterns: bool = False
) -> Clauses:
    """Encode subscriptions for consecutive slots; their constants should be in the domains (see `constants_of`).

    Where one has no label, for lack of room, there are two clauses: a narrow one, which may miss values beside that
    constant, and a wide one, whose candidates need the exact check.

    Patterns go into the domains here: as pattern attributes, or as what literals name for an index that takes them.
    """
    rows = _Rows(domains, takes_patterns)
    for slot, (clauses, is_exact) in enumerate(covers, first_slot):
        for clause in clauses:
            rows.add_clause(slot, clause, is_exact)
    return rows.arrays()


def constants_of(
    covers: Sequence[Cover], expressions: Sequence[Expression | None] = ()
) -> dict[str | MomentOf, set[Any]]:
    """Return, per attribute, the constants that encoding the covers needs; booleans have fixed codes.

    Where a cover leaves something out, its expression is looked at for ages: events must be encoded anew for each match
    if anybody looks at them.
    """
    needed: dict[str | MomentOf, set[Any]] = {}
    parts = chain.from_iterable(clause for clauses, _ in covers for clause in clauses)
    leaves = (parts_of(literal)[0] for literal in chain.from_iterable(alternatives_of(part) for part in parts))
    for leaf in dict.fromkeys(leaves):  # clauses of one subscription share most of their literals
        if isinstance(leaf, Predicate) and leaf.attribute is not None:
            constants = needed.setdefault(leaf.attribute, set())
            if not has_moments(leaf):
                constants.update(value for value in boundaries(leaf) if type(value) is not bool)
            elif derived := derived_comparison(leaf):
                needed.setdefault(derived[0], set()).update(derived[1].constants())
            else:
                needed |= {of: needed.get(of, set()) for of in ages_of(leaf)}
    for cover, expression in zip(covers, expressions, strict=False):
        if not cover.is_exact and expression is not None:
            needed |= {of: needed.get(of, set()) for of in ages_of(expression)}
    return needed


class _Rows:
    """Clauses under construction, as lists."""

    def __init__(self, domains: Domains, takes_patterns: bool) -> None:
        self.domains = domains
        self.takes_patterns = takes_patterns
        # By whether they are narrow: clauses share most of their literals.
        self.coded: tuple[dict[Expression, CodedLiteral], dict[Expression, CodedLiteral]] = {}, {}
        self.columns: dict[str, list[Any]] = {name: [] for name in _DTYPES}
        self.columns["starts"].append(0)
        self.columns["set_starts"].append(0)

    def add_clause(self, slot: int, clause: Clause, is_exact: bool) -> None:
        groups, exactness = self._coded(clause, is_narrow=False)
        if exactness is Exactness.WITHOUT_ROOM and is_exact:
            self._add_groups(slot, *self._coded(clause, is_narrow=True))
        is_sure = is_exact and exactness is not Exactness.WITHOUT_ROOM
        self._add_groups(slot, groups, exactness if is_sure else Exactness.NONE)

    def _coded(self, clause: Clause, *, is_narrow: bool) -> tuple[list[list[Coded]], Exactness]:
        """Return groups of literals: of each, one must hold; and how exact that is."""
        groups: list[list[Coded]] = []
        exactness = Exactness.FULL
        coding = Coding(self.domains, self.takes_patterns, is_narrow)
        for part in clause:
            if isinstance(part, Or):
                alternatives, part_exactness = _coded_alternatives(part, coding)
                coded = [] if alternatives is None else [alternatives]
            else:
                literals, part_exactness = self._coded_literal(part, coding)
                coded = [[literal] for literal in literals if literal.ranges or literal.is_wanted]
            exactness = min(exactness, part_exactness)
            groups += coded
        return groups, exactness

    def _coded_literal(self, literal: Expression, coding: Coding) -> CodedLiteral:
        known = self.coded[coding.is_narrow]
        coded = known.get(literal)
        if coded is None:
            coded = known[literal] = _coded_literal(literal, coding)
        return coded

    def _add_groups(self, slot: int, groups: list[list[Coded]], exactness: Exactness) -> None:
        # Where some value must lie in no range at all, the clause can never hold.
        groups = [[literal for literal in group if literal.ranges] for group in groups]
        if not all(groups):
            return
        for group in groups:
            for place, literal in enumerate(group):
                self._add_literal(literal, is_alternative=place > 0)
        self.columns["slots"].append(slot)
        self.columns["is_exact"].append(exactness is Exactness.FULL)
        self.columns["is_exact_by_patterns"].append(exactness >= Exactness.BY_PATTERNS)
        self.columns["starts"].append(len(self.columns["attributes"]))

    def _add_literal(self, literal: Coded, *, is_alternative: bool) -> None:
        columns, (attribute, ranges, is_wanted, pattern) = self.columns, literal
        has_set = len(ranges) > 1
        columns["attributes"].append(attribute)
        columns["lows"].append(ranges[0][0])
        columns["highs"].append(ranges[-1][1])
        columns["kinds"].append((SET if has_set else RANGE) + (0 if is_wanted else VETO))
        columns["sets"].append(len(columns["set_starts"]) - 1 if has_set else -1)
        columns["is_alternative"].append(is_alternative)
        columns["patterns"].append(pattern)
        if has_set:
            columns["set_lows"] += [low for low, _ in ranges]
            columns["set_highs"] += [high for _, high in ranges]
            columns["set_starts"].append(len(columns["set_lows"]))

    def arrays(self) -> Clauses:
        return Clauses(**{name: np.array(self.columns[name], dtype=dtype) for name, dtype in _DTYPES.items()})


class Exactness(IntEnum):
    """How far codes decide a literal or a clause."""

    NONE = 0
    WITHOUT_ROOM = 1  # they do, but for values beside a constant that has no label
    BY_PATTERNS = 2  # they do, together with the patterns
    FULL = 3


class Coding(NamedTuple):
    """How literals are coded."""

    domains: Domains
    takes_patterns: bool
    is_narrow: bool  # where codes do not decide for lack of room, False is right; otherwise true is


class Coded(NamedTuple):
    """A literal over codes: some value of the attribute lies in the ranges (and matches the pattern), or none does."""

    attribute: int
    ranges: Ranges
    is_wanted: bool
    pattern: int = -1


# What a literal asks of codes, all of which must hold, and how exact that is.
CodedLiteral = tuple[list[Coded], Exactness]


def alternatives_of(part: Expression) -> tuple[Expression, ...]:
    """Return the literals of one part of a clause: itself, or what an `or` lists."""
    return part.operands if isinstance(part, Or) else (part,)


def _coded_alternatives(part: Or, coding: Coding) -> tuple[list[Coded] | None, Exactness]:
    """Return coded literals of which one must hold, None if that is always so; and how exact that is."""
    coded: list[Coded] = []
    exactness = Exactness.FULL
    for literal in part.operands:
        literals, literal_exactness = _coded_literal(literal, coding)
        exactness = min(exactness, literal_exactness)
        if len(literals) == 2:
            # Comparable but not satisfying, as one literal: of several values only one need be so.
            (attribute, comparable, *_), (vetoed, satisfying, *_) = literals
            left = subtract(comparable, satisfying) if vetoed == attribute else comparable
            literals, exactness = [Coded(attribute, left, True)], Exactness.NONE
        if not literals or (not literals[0].ranges and not literals[0].is_wanted):
            return None, exactness
        coded += literals
    return coded, exactness


def _coded_literal(literal: Expression, coding: Coding) -> CodedLiteral:
    """Return what a literal asks of codes, all of which must hold, and how exact that is."""
    leaf, asked = parts_of(literal)
    domains = coding.domains
    if isinstance(leaf, AnyString):
        return _coded_any_string(leaf, asked, domains)
    if not isinstance(leaf, Predicate) or leaf.attribute is None:
        return [], Exactness.NONE
    attribute = domains.attribute_id(leaf.attribute)
    if leaf.op in ("exists", "is null", "is not null"):
        section, is_wanted = presence(leaf.op)
        is_asked = asked in (Asked.TRUE, Asked.NOT_FALSE)
        return [Coded(attribute, [section], is_wanted is is_asked)], Exactness.FULL
    if has_moments(leaf):
        derived = derived_comparison(leaf)
        if derived is None:
            return _coded_mixture(leaf, attribute, asked)
        attribute, leaf = domains.intern_any(derived[0]), derived[1]
    leaf = simplified(leaf)
    pattern = pattern_of(attribute, leaf)
    if pattern is not None and is_opaque(pattern.op) and not coding.takes_patterns:
        return _coded_pattern(pattern, asked, domains)
    found = spaces(leaf, domains.domains[attribute])
    exactness = Exactness.FULL if found.is_tight or coding.is_narrow else Exactness.WITHOUT_ROOM
    # Where some value must lie, and where none may.
    wanted, vetoed = found.satisfying, found.surely
    if coding.is_narrow and not found.is_opaque:
        wanted, vetoed = vetoed, wanted
    match asked:
        case Asked.TRUE if pattern is not None and coding.takes_patterns:
            exactness = Exactness.FULL if found.is_tight else Exactness.BY_PATTERNS
            return [Coded(attribute, found.satisfying, True, domains.add_pattern(pattern))], exactness
        case Asked.TRUE:
            return [Coded(attribute, wanted, True)], Exactness.NONE if found.is_opaque else exactness
        case Asked.FALSE if found.is_opaque:
            return [Coded(attribute, found.comparable, True)], Exactness.NONE
        case Asked.FALSE:
            return [Coded(attribute, found.comparable, True), Coded(attribute, vetoed, False)], exactness
        case Asked.NOT_TRUE if not found.is_opaque:
            return [Coded(attribute, vetoed, False)], exactness
    return [], Exactness.NONE


def _coded_mixture(leaf: Predicate, attribute: int, asked: Asked) -> CodedLiteral:
    """Return what can be asked of codes where moments are mixed with each other and with other constants."""
    if asked in (Asked.NOT_TRUE, Asked.NOT_FALSE):
        return [], Exactness.NONE
    kinds = {"string" if kind == "timestamp" else kind for kind in map(kind_of, leaf.constants())}
    return [Coded(attribute, [SECTIONS[kind] for kind in sorted(kinds)], True)], Exactness.NONE


def _coded_pattern(pattern: Pattern, asked: Asked, domains: Domains) -> CodedLiteral:
    """Return what a literal asks of the pattern attribute, and of the attribute itself."""
    if asked is Asked.NOT_FALSE:
        return [], Exactness.NONE
    attribute = domains.pattern_attribute(pattern)
    if asked is Asked.TRUE:
        return [Coded(attribute, SATISFIED, True)], Exactness.FULL
    none_satisfies = Coded(attribute, SATISFIED, False)
    if asked is Asked.NOT_TRUE:
        return [none_satisfies], Exactness.FULL
    # With `cidr` only addresses can be compared, and codes do not tell them from other strings.
    exactness = Exactness.NONE if pattern.op == "cidr" else Exactness.FULL
    is_any = pattern.attribute == ANY_STRING
    some_string = _some_string(domains) if is_any else Coded(pattern.attribute, [STRINGS], True)
    return [some_string, none_satisfies], exactness


def _some_string(domains: Domains) -> Coded:
    """Return what asks that an event has any string at all."""
    return Coded(domains.pattern_attribute(Pattern(ANY_STRING, "contains", "")), SATISFIED, True)


def _coded_any_string(leaf: AnyString, asked: Asked, domains: Domains) -> tuple[list[Coded], Exactness]:
    """Return what a test of all strings asks of pattern attributes."""
    pattern = pattern_of_any_string(leaf)
    if pattern is not None:
        return _coded_pattern(pattern, asked, domains)
    if asked in (Asked.NOT_TRUE, Asked.NOT_FALSE):
        return [], Exactness.NONE
    return [_some_string(domains)], Exactness.NONE


def pattern_of_any_string(test: AnyString) -> Pattern | None:
    """Return the pattern that some string must satisfy for a test of all strings to be true; None if it is none.

    >>> pattern_of_any_string(AnyString("contains", "X"))
    Pattern(attribute=-1, op='contains', operand='X')
    """
    predicate = simplified(Predicate("any string", test.op, test.operand))
    if predicate.op in ("=", "in") and (texts := sorted({str(constant) for constant in predicate.constants()})):
        return Pattern(ANY_STRING, TEXT_LIST, json.dumps(texts, ensure_ascii=False))
    return pattern_of(ANY_STRING, predicate)


def pattern_of(attribute: int, predicate: Predicate) -> Pattern | None:
    """Return the pattern that a predicate asks for."""
    predicate = simplified(predicate)
    if predicate.op == CASELESS_LIST:
        texts = sorted({fold(str(constant)) for constant in predicate.constants()})
        return Pattern(attribute, CASELESS_LIST, json.dumps(texts, ensure_ascii=False))
    if predicate.op not in PATTERN_OPS or not isinstance(predicate.operand, str):
        return None
    return Pattern(attribute, predicate.op, predicate.operand)


def concatenate(parts: Sequence[Clauses]) -> Clauses:
    """Join clauses of ascending slots; arrays are copied only where several parts have some."""
    parts = [part for part in parts if part.n_clauses] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    set_counts = [len(part.set_starts) - 1 for part in parts]
    set_offsets = np.concatenate([[0], np.cumsum(set_counts)[:-1]])
    sets = [np.where(p.sets >= 0, p.sets + offset, -1) for p, offset in zip(parts, set_offsets, strict=True)]
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _DTYPES}
    joined["sets"] = np.concatenate(sets).astype(np.int32)
    joined["starts"] = _join_starts([part.starts for part in parts])
    joined["set_starts"] = _join_starts([part.set_starts for part in parts])
    return Clauses(**joined)


def _join_starts(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    lengths = np.concatenate([np.diff(part) for part in parts])
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def select(clauses: Clauses, new_slots: NDArray[np.int32]) -> Clauses:
    """Keep the clauses of slots with `new_slots[slot] >= 0`, under their new slots (which must ascend)."""
    kept = picked(clauses, np.flatnonzero(new_slots[clauses.slots] >= 0))
    return kept._replace(slots=new_slots[kept.slots].astype(np.int32))


def picked(clauses: Clauses, kept: NDArray[np.int64]) -> Clauses:
    """Keep some clauses, given by their positions, in this order."""
    lengths = clauses.starts[kept + 1] - clauses.starts[kept]
    literals = spans(clauses.starts[kept], lengths)
    old_sets = clauses.sets[literals]
    has_set = old_sets >= 0
    chosen_sets = old_sets[has_set]
    set_lengths = clauses.set_starts[chosen_sets + 1] - clauses.set_starts[chosen_sets]
    set_items = spans(clauses.set_starts[chosen_sets], set_lengths)
    sets = np.full(len(literals), -1, dtype=np.int32)
    sets[has_set] = np.arange(np.count_nonzero(has_set), dtype=np.int32)
    return Clauses(
        slots=clauses.slots[kept],
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        is_exact=clauses.is_exact[kept],
        is_exact_by_patterns=clauses.is_exact_by_patterns[kept],
        attributes=clauses.attributes[literals],
        lows=clauses.lows[literals],
        highs=clauses.highs[literals],
        kinds=clauses.kinds[literals],
        sets=sets,
        is_alternative=clauses.is_alternative[literals],
        patterns=clauses.patterns[literals],
        set_starts=np.concatenate([[0], np.cumsum(set_lengths)]).astype(np.int64),
        set_lows=clauses.set_lows[set_items],
        set_highs=clauses.set_highs[set_items],
    )


def of_slots(clauses: Clauses, slots: NDArray[np.int32]) -> Clauses:
    """Keep the clauses of some ascending slots, without looking at all the others."""
    firsts, ends = np.searchsorted(clauses.slots, slots), np.searchsorted(clauses.slots, slots, side="right")
    return picked(clauses, spans(firsts, ends - firsts))


def between(clauses: Clauses, first: int, end: int) -> Clauses:
    """Keep the clauses of the slots first .. end - 1."""
    start, stop = np.searchsorted(clauses.slots, [first, end])
    return picked(clauses, np.arange(start, stop))


def spans(starts: NDArray[np.signedinteger], lengths: NDArray[np.signedinteger]) -> NDArray[np.int64]:
    """Return the positions start, start + 1, ... of all spans, one after the other."""
    return span_positions(np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(lengths, np.int64))


def relabelled(clauses: Clauses, moves: Iterable[Move]) -> Clauses:
    """Follow labels that moved: for each (attribute, old labels, new labels), rewrite the bounds that lie on them."""
    lows, highs = clauses.lows.copy(), clauses.highs.copy()
    set_lows, set_highs = clauses.set_lows.copy(), clauses.set_highs.copy()
    set_attributes = _set_attributes(clauses)
    for attribute, old, new in moves:
        if not len(old):
            continue
        _move(clauses.attributes == attribute, lows, highs, old, new)
        _move(set_attributes == attribute, set_lows, set_highs, old, new)
    return clauses._replace(lows=lows, highs=highs, set_lows=set_lows, set_highs=set_highs)


def _set_attributes(clauses: Clauses) -> NDArray[np.int32]:
    """Return the attribute of each range in the sets."""
    has_set = clauses.sets >= 0
    owners = np.zeros(len(clauses.set_starts) - 1, dtype=np.int32)
    owners[clauses.sets[has_set]] = clauses.attributes[has_set]
    return owners[span_owners(clauses.set_starts)]


def _move(
    chosen: NDArray[np.bool_],
    lows: NDArray[np.int32],
    highs: NDArray[np.int32],
    old_labels: NDArray[np.int32],
    new_labels: NDArray[np.int32],
) -> None:
    """Rewrite bounds in place: a low bound is a label or the code after one, a high bound is one or the code before."""
    rows = np.flatnonzero(chosen)
    below = np.searchsorted(old_labels, lows[rows], side="right") - 1
    distance = lows[rows] - old_labels[below]
    is_on = (below >= 0) & (distance <= 1)
    lows[rows[is_on]] = (new_labels[below] + distance)[is_on]
    above = np.minimum(np.searchsorted(old_labels, highs[rows], side="left"), len(old_labels) - 1)
    distance = old_labels[above] - highs[rows]
    is_on = (distance >= 0) & (distance <= 1)
    highs[rows[is_on]] = (new_labels[above] - distance)[is_on]


def always_candidates(clauses: Clauses) -> NDArray[np.int32]:
    """Return the slots with a clause that asks for no value: they are candidates for every event."""
    # A literal and its alternatives are found if each of them is.
    groups = np.cumsum(~clauses.is_alternative) - 1
    is_found = np.ones(groups[-1] + 1 if len(groups) else 0, dtype=np.bool_)
    is_found[groups[clauses.kinds >= VETO]] = False
    owners = span_owners(clauses.starts)[~clauses.is_alternative]
    is_always = np.ones(clauses.n_clauses, dtype=np.bool_)
    is_always[owners[is_found]] = False
    slots: NDArray[np.int32] = np.unique(clauses.slots[is_always])
    return slots


def checked_slots(clauses: Clauses) -> list[int]:
    """Return the slots some of whose candidates are checked exactly."""
    return np.unique(clauses.slots[~clauses.is_exact]).tolist()  # type: ignore[no-any-return]


def swept(domains: Domains, clauses: Clauses, checked: Iterable[Expression] = ()) -> tuple[Domains, Clauses]:
    """Return domains with the attributes, constants and patterns that clauses still use, and the clauses for them.

    Labels stay as they are; attributes and patterns are numbered anew. Constants that had to do without a label are
    forgotten: who still needs them places them again. The ages that the `checked` expressions look at stay, because
    that there are some tells that events depend on the time.
    """
    is_used = np.zeros(len(domains), dtype=np.bool_)
    is_used[clauses.attributes] = True
    if domains.has_ages:
        ages = {domains.known_id(of) for expression in checked for of in ages_of(expression)}
        is_used[[age for age in ages if age is not None]] = True
    old_patterns = {a: pattern for a, pattern in domains.pattern_attributes.items() if is_used[a]}
    is_used[list(old_patterns)] = True
    is_used[[pattern.attribute for pattern in old_patterns.values() if pattern.attribute != ANY_STRING]] = True
    used = np.flatnonzero(is_used)
    new_ids = np.full(len(domains) + 1, ANY_STRING, dtype=np.int32)  # with a last place for ANY_STRING
    new_ids[used] = np.arange(len(used), dtype=np.int32)
    patterns = {
        int(new_ids[attribute]): pattern._replace(attribute=int(new_ids[pattern.attribute]))
        for attribute, pattern in old_patterns.items()
    }
    set_ranges = _set_attributes(clauses), clauses.set_lows, clauses.set_highs
    base = kept_constants(domains.merged_base(), used, [(clauses.attributes, clauses.lows, clauses.highs), set_ranges])
    kept = Domains.restored([domains.names[attribute] for attribute in used.tolist()], patterns, base)
    new_patterns = np.full(len(domains.patterns) + 1, -1, dtype=np.int32)  # with a last place for -1
    for number in np.unique(clauses.patterns[clauses.patterns >= 0]).tolist():
        pattern = domains.patterns[number]
        new_patterns[number] = kept.add_pattern(pattern._replace(attribute=int(new_ids[pattern.attribute])))
    return kept, clauses._replace(attributes=new_ids[clauses.attributes], patterns=new_patterns[clauses.patterns])
