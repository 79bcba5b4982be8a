"""Patterns: which of all the patterns of all attributes the strings of events satisfy, found together.

Patterns are kept in a few immutable *layers*, old and large ones first. New patterns make a new layer when the next
event comes, which is merged with the one before unless that is much larger: adding n patterns, with an event after
each, costs O(n log n) in all. An event waits for a thousand of them at most; larger layers are merged in the background
(`engine/compaction.py`).

In a layer

    starts with, ends with, contains     a literal text, found by the compiled search (`kernels/text_search.py`)
    in strings; in, ignoring case        literal texts, each of which is a whole string, as it is or folded
    like, ilike                          its longest literal text is searched for; where it is found, the kernel tests
                                         the whole pattern
    matches                              the texts of which one must be there (`regex_needs.py`); then the kernel runs
                                         a small automaton (`regex_automata.py`), or RE2 tests the expression. Without
                                         such texts, it is tried on every string that is long enough, by RE2 in sets
    cidr                                 a table for each length of network prefix; IPv6 addresses are left to Python

Every answer is the model's (`model/semantics.py`): tests compare them.
"""

from __future__ import annotations

import functools
import ipaddress
import json
import re
import threading
from collections import defaultdict
from collections.abc import Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import re2

from siftline.encoding.domains import ANY_STRING, CASELESS_LIST, PATTERN_OPS, TEXT_LIST, prefixes_of
from siftline.encoding.regex_automata import automaton_of
from siftline.encoding.regex_literals import literal_of
from siftline.encoding.regex_needs import needs_of
from siftline.kernels.compiler import direct
from siftline.kernels.json_leaves import STRING
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.networks import Networks
from siftline.kernels.pointers import handle_of, no_arrays
from siftline.kernels.spans import side_by_side
from siftline.kernels.text_search import (
    ANY_CHARACTER,
    ANY_TEXT,
    AT_END,
    AT_START,
    FIRST_AUTOMATON,
    FIRST_SLOT,
    FIRST_WORD,
    FOLDED_GROWTH,
    GRAM_MAX,
    GRAM_SIZE,
    MARGIN,
    N_NAMED,
    N_SERIALS,
    N_STRINGS,
    N_TESTS,
    NEVER_REMEMBERED,
    NO_TEST,
    OPEN_TEST,
    PASS_COLUMNS,
    REMEMBERED_SLOTS,
    REMEMBERED_WORDS,
    SLOT_SHIFT,
    STEP,
    WORD_SHIFT,
    Automata,
    Found,
    SearchScratch,
    SearchTable,
    enter_grams,
    file_literals,
    list_entries,
    search_leaves,
)
from siftline.model import leaf_of
from siftline.model.predicate import compile_regex, parse_network
from siftline.model.wildcard import fold, parse_like

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from siftline.encoding.domains import Domains, Pattern
    from siftline.encoding.regex_automata import Automaton

    # A pattern attribute and its pattern.
    Entry = tuple[int, Pattern]
    # The pattern attributes of each event: those of event i are at starts[i] : starts[i + 1].
    Hits = tuple[NDArray[np.int64], NDArray[np.int32]]

# A layer below this many patterns is made anew with what comes.
_REBUILT_PATTERNS_MAX: Final = 64
# An event that meets new patterns merges layers up to this size, in a few milliseconds.
_AT_ONCE: Final = 1024
# An expression that asks for so many characters is tried by itself, on the few strings that have them.
_ALONE_MIN_CHARACTERS: Final = 32
# No string has as many characters.
_LENGTH_TESTED_MAX: Final = 1 << 30
# RE2 builds its automata while it matches, and keeps building if there are many expressions in one. Measured with 320
# expressions without literals, on texts that are always new, microseconds a text: sets of 1 take 480, of 4 130, of 8 or
# 16 95, of 64 500; one by one, 400. As much memory as this may go into the automaton of one set.
_SET_SIZE: Final = 16
_SET_BYTES: Final = 1 << 21
# Everything that may be an address, and little else.
_LIKE_ADDRESS: Final = re.compile(rb"[0-9a-fA-F:.]{2,45}(?:%.*)?", re.DOTALL)
# A lone surrogate as Python writes it; RE2 reads UTF-8, in which U+FFFD must stand in for it.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACEMENT: Final = "\ufffd".encode()
# ASCII without letters.
_UNCASED: Final = bytes(byte for byte in range(128) if not chr(byte).isalpha())
# What stands, with a number, for each escaped character while a wildcard pattern is split.
_MARK: Final = "\0"
_ESCAPED: Final = "\\%_"
# No code point above this one has another case.
_LAST_FOLDED: Final = 0x1FFFF
# A thread keeps at most this much room for strings from one search to the next.
_KEPT_TEXT_BYTES: Final = 1 << 16
# The forms in which an attribute's strings are searched.
_AS_IT_IS: Final = 0
_FOLDED: Final = 1
# A bit set has eight bits for each slot, 16 to 32 for each gram: one gram in a hundred passes it for nothing. It has
# 1 << (slot bits - _WORDS_SHIFT) words, but 1 << _WORD_BITS_MIN at least.
_WORDS_SHIFT: Final = 3
_WORD_BITS_MIN: Final = 3
# The longest step of a pass, and how long literals must be for it.
_STEP_MAX: Final = 4
_LONG_LITERAL: Final = GRAM_MAX + _STEP_MAX - 1
# So many literals that are too short for it get a pass of their own; more are taken together with the long ones.
_FEW_LITERALS: Final = 256
_ANY_LENGTH: Final = (1 << 63) - 1
# Strings of a batch that are this long are searched once each: below, that takes as long as to look for them.
# `NEVER_REMEMBERED` in its place shows what that saves.
REMEMBERED_MIN_BYTES = 16


class Matcher:
    """All pattern attributes of some domains; never changed once it is made.

    Attributes
    ----------
    paths : dict of str to int
        The attributes whose strings are searched.
    takes_all : bool
        Whether all other strings of an event are searched as well.
    layers : tuple of Layer
        Old ones first.
    counts : int64[3]
        How many strings there were so far, and how many of them were searched, each once for each layer; and how often
        RE2 or Python had to test one.
    wants_merge : bool
        Whether some layers should become one, in the background.
    """

    __slots__ = ("_last", "counts", "layers", "n_patterns", "paths", "prefixes", "takes_all", "wants_merge")

    def __init__(self, domains: Domains, previous: Matcher | None) -> None:
        last: int = previous._last if previous else -1
        new = list(takewhile(lambda entry: entry[0] > last, reversed(domains.pattern_attributes.items())))[::-1]
        self.paths: dict[str, int] = previous.paths if previous else {}
        self.layers: tuple[Layer, ...] = previous.layers if previous else ()
        self.prefixes: frozenset[str] = previous.prefixes if previous else frozenset()
        self.takes_all = domains.takes_all_strings
        self.counts: NDArray[np.int64] = previous.counts if previous else np.zeros(3, dtype=np.int64)
        self.n_patterns = len(domains.pattern_attributes)
        self._last: int = new[-1][0] if new else last
        entries = [entry for entry in new if entry[1].op in PATTERN_OPS]
        if entries:
            self.layers = _extended(self.layers, entries)
            owners = {pattern.attribute for _, pattern in entries} - {ANY_STRING}
            self.paths = self.paths | {domains.names[owner]: owner for owner in owners}
            # What may hold a string with patterns somewhere below it.
            self.prefixes = prefixes_of(self.paths)
        self.wants_merge = bool(_mergeable(self.layers))

    def mergeable(self) -> Sequence[Layer]:
        """Return layers that should become one, if there are any."""
        return _mergeable(self.layers)

    def merged(self, chosen: Sequence[Layer], layer: Layer) -> Matcher:
        """Return a matcher with one layer in the place of several; the same if these are gone."""
        places = [place for place, each in enumerate(self.layers) if any(each is old for old in chosen)]
        if len(places) < len(chosen):
            return self
        other = Matcher.__new__(Matcher)
        other.layers = (*self.layers[: places[0]], layer, *self.layers[places[-1] + 1 :])
        other.paths, other.prefixes, other.takes_all = self.paths, self.prefixes, self.takes_all
        other.n_patterns, other._last, other.counts = self.n_patterns, self._last, self.counts
        other.wants_merge = bool(other.mergeable())
        return other

    def found_in(self, leaves: LeafColumns, event_starts: NDArray[np.int64]) -> Hits:
        """Return the pattern attributes of events, whose leaves come one behind the other."""
        found: Hits | None = None
        for layer in self.layers:
            hits = layer.found_in(leaves, event_starts)
            self.counts += _workspace().counts
            found = hits if found is None else side_by_side(*found, *hits)
        if found is None:
            return np.zeros(len(event_starts), dtype=np.int64), np.empty(0, dtype=np.int32)
        return found


def hits_of(finder: Matcher | Layer, attribute: int, texts: Sequence[str | None]) -> Hits:
    """Return the pattern attributes of each of several strings of an attribute; a null has none."""
    data = [b"" if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
    is_text = np.array([text is not None for text in texts], dtype=np.bool_)
    leaves = _as_leaves(np.full(len(texts), attribute, dtype=np.int32), data, is_text)
    return finder.found_in(leaves, np.arange(len(texts) + 1))


def hits_in(
    finder: Matcher, attribute: int, starts: NDArray[np.int64], texts: NDArray[np.uint8], are_there: NDArray[np.bool_]
) -> Hits:
    """Do as `hits_of` with strings in UTF-8, the i-th being texts[starts[i] : starts[i + 1]]."""
    n = len(starts) - 1
    kinds = np.where(are_there, np.uint8(STRING), np.uint8(0))
    leaves = _leaves(np.full(n, attribute, dtype=np.int32), kinds, starts[:-1], starts[1:], texts)
    return finder.found_in(leaves, np.arange(n + 1))


def matcher_of(domains: Domains) -> Matcher:
    """Return the matcher for the patterns that the domains have now."""
    matcher = domains.matcher
    if matcher is None or matcher.n_patterns != len(domains.pattern_attributes):
        matcher = domains.matcher = Matcher(domains, matcher)
    return matcher


def n_new_patterns(domains: Domains) -> int:
    """Return how many patterns the matcher does not know yet."""
    return len(domains.pattern_attributes) - (domains.matcher.n_patterns if domains.matcher is not None else 0)


def append_patterns(tree: Mapping[str, Any], domains: Domains, owners: list[int], values: list[Any]) -> None:
    """Append the pattern attributes of one event that was found to be in order, each as true."""
    matcher = matcher_of(domains)
    attributes: list[int] = []
    texts: list[str] = []
    for key, value in tree.items():
        if matcher.takes_all or key in matcher.paths or key in matcher.prefixes:
            _collect(value, key, matcher, attributes, texts)
    if texts:
        data = [text.encode("utf-8", "surrogatepass") for text in texts]
        leaves = _as_leaves(np.array(attributes, dtype=np.int32), data, np.ones(len(data), dtype=np.bool_))
        _, found = matcher.found_in(leaves, np.array((0, len(data))))
        owners += found.tolist()
        values += [True] * len(found)


def _collect(value: Any, path: str, matcher: Matcher, attributes: list[int], texts: list[str]) -> None:
    """Append the strings at a path and below that are to be searched, and their attributes."""
    if type(value) is str:
        if matcher.takes_all or path in matcher.paths:
            attributes.append(matcher.paths.get(path, ANY_STRING))
            texts.append(value)
    elif isinstance(value, Mapping):
        for key, child in value.items():
            _collect(child, f"{path}.{key}", matcher, attributes, texts)
    elif isinstance(value, (list, tuple)):
        for element in value:
            _collect(element, path, matcher, attributes, texts)
    elif matcher.takes_all or path in matcher.paths:
        leaf = leaf_of(value, path)
        if isinstance(leaf, str):
            attributes.append(matcher.paths.get(path, ANY_STRING))
            texts.append(leaf)


def _as_leaves(attributes: NDArray[np.int32], texts: list[bytes], is_text: NDArray[np.bool_]) -> LeafColumns:
    """Return strings as parsed JSON would have them."""
    ends, kinds = np.cumsum([0, *map(len, texts)]), np.where(is_text, np.uint8(STRING), np.uint8(0))
    return _leaves(attributes, kinds, ends[:-1], ends[1:], np.frombuffer(b"".join(texts), dtype=np.uint8).copy())


def _leaves(
    attributes: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    texts: NDArray[np.uint8],
) -> LeafColumns:
    nothing = no_arrays(LeafColumns)
    return LeafColumns(attributes, kinds, nothing.numbers, nothing.residuals, starts, ends, texts)


def _extended(layers: tuple[Layer, ...], entries: Sequence[Entry]) -> tuple[Layer, ...]:
    """Return layers with new patterns in the last one.

    Where very many come, whoever brings them waits, and the limits do not count.
    """
    kept, merged = list(layers), list(entries)
    is_bulk = len(merged) > _AT_ONCE
    while kept and len(kept[-1].entries) < max(_REBUILT_PATTERNS_MAX, 2 * len(merged)):
        if len(kept[-1].entries) + len(merged) > _AT_ONCE and not is_bulk:
            break
        merged = [*kept.pop().entries, *merged]
    return (*kept, Layer(merged))


def _mergeable(layers: tuple[Layer, ...]) -> Sequence[Layer]:
    """Return layers behind each other that should become one: of a similar size, and no longer changed by events."""
    sizes = [len(layer.entries) for layer in layers]
    end = len(layers)
    while end and 2 * sizes[end - 1] < _AT_ONCE:
        end -= 1
    while end > 1:
        first, size = end - 1, sizes[end - 1]
        while first and sizes[first - 1] < 2 * size:
            first -= 1
            size += sizes[first]
        if end - first > 1:
            return layers[first:end]
        end -= 1
    return ()


def merged_layer(layers: Iterable[Layer]) -> Layer:
    """Return one layer with the patterns of several."""
    return Layer([entry for layer in layers for entry in layer.entries])


class Layer:
    """Some patterns of some attributes.

    Examples
    --------
    >>> from siftline.encoding.domains import Pattern
    >>> layer = Layer([(7, Pattern(0, "contains", "b")), (8, Pattern(0, "ends with", "b"))])
    >>> leaves = _as_leaves(np.zeros(2, dtype=np.int32), [b"abc", b"b"], np.ones(2, dtype=np.bool_))
    >>> starts, found = layer.found_in(leaves, np.arange(3))
    >>> starts.tolist(), sorted(found[1:].tolist())
    ([0, 1, 3], [7, 8])
    """

    __slots__ = ("_table", "_testers", "entries", "handle", "n_owners", "n_targets")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        literals = _Literals()
        sets: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        networks: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        # What finds the targets of a string that an open target stands for: itself, or several.
        self._testers: dict[int, Callable[[bytes], Sequence[int]]] = {}
        for target, (attribute, op, operand) in entries:
            match op:
                case "starts with":
                    literals.add(attribute, _AS_IT_IS, operand, AT_START, target)
                case "ends with":
                    literals.add(attribute, _AS_IT_IS, operand, AT_END, target)
                case "contains":
                    literals.add(attribute, _AS_IT_IS, operand, 0, target)
                case "like":
                    literals.add_like(attribute, _AS_IT_IS, operand, target)
                case "ilike":
                    literals.add_like(attribute, _FOLDED, fold(operand), target)
                case _ if op in (CASELESS_LIST, TEXT_LIST):
                    for text in json.loads(operand):
                        literals.add_equal(attribute, _FOLDED if op == CASELESS_LIST else _AS_IT_IS, text, target)
                case "matches":
                    self._testers[target] = _Regex(operand, target).found
                    if not literals.add_regex(attribute, operand, target):
                        sets[attribute].append((target, operand))
                case "cidr":
                    networks[attribute].append((target, operand))
                case _:
                    raise ValueError(f"unknown operator {op!r}")
        for attribute, regexes in sets.items():
            for first in range(0, len(regexes), _SET_SIZE):
                part = regexes[first : first + _SET_SIZE]
                literals.add(attribute, _FOLDED, "", 0, part[0][0], OPEN_TEST)
                self._testers[part[0][0]] = _Regexes(part).found
        addresses, tables = _network_tables(networks)
        self._testers |= {target: each.found for target, each in addresses.items()}
        self._table = literals.table(tables)
        self.n_targets = len(self._table.targets) + len(self._table.always) + len(tables.targets) + len(tables.has_ipv6)
        self.n_owners = 1 + max(target for target, _ in entries)
        self.handle: Any = handle_of(self._table)

    def found_in(self, leaves: LeafColumns, event_starts: NDArray[np.int64]) -> Hits:
        """Return the pattern attributes of this layer that events have, whose leaves come one behind the other."""
        workspace = _workspace()
        longest = int((leaves.text_ends - leaves.text_starts).max(initial=0))
        found = workspace.searched(self, self.n_owners, self.n_targets, longest, leaves, event_starts)
        more = self._confirmed(leaves, found, workspace.counts)
        starts, targets = found.starts, found.targets
        return _with_more(starts, targets, more) if more else (starts, targets)

    def confirmed(self, leaves: LeafColumns, open_leaves: Sequence[int], open_targets: Sequence[int]) -> set[int]:
        """Return the targets that hold among those that were left open in the leaves of one event."""
        pairs = zip(open_leaves, open_targets, strict=True)
        return {holding for leaf, target in pairs for holding in self._testers[target](_text(leaves, leaf))}

    def _confirmed(self, leaves: LeafColumns, found: Found, counts: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Return (event, target) of what was left open and holds; each different string is tested once."""
        n_open = len(found.open_targets)
        if not n_open:
            return []
        events = [0] * n_open
        if len(found.starts) > 2:
            events = (np.searchsorted(found.open_starts, np.arange(n_open), side="right") - 1).tolist()
        more: list[tuple[int, int]] = []
        texts: dict[int, bytes] = {}
        known: dict[tuple[int, bytes], Sequence[int]] = {}
        for event, leaf, target in zip(events, found.open_leaves.tolist(), found.open_targets.tolist(), strict=True):
            text = texts.get(leaf)
            if text is None:
                text = texts[leaf] = _text(leaves, leaf)
            holding = known.get((target, text))
            if holding is None:
                holding = known[target, text] = self._testers[target](text)
            more += [(event, confirmed) for confirmed in holding]
        counts[-1] = len(known)
        return more


def _text(leaves: LeafColumns, leaf: int) -> bytes:
    return leaves.texts[leaves.text_starts[leaf] : leaves.text_ends[leaf]].tobytes()


def _with_more(starts: NDArray[np.int64], targets: NDArray[np.int32], more: list[tuple[int, int]]) -> Hits:
    """Add targets to those of some events, each once for an event."""
    if len(starts) == 2:
        several = np.array(sorted({target for _, target in more}), dtype=np.int32)
        return np.array((0, len(targets) + len(several))), np.concatenate((targets, several))
    events, others = np.array(sorted(set(more)), dtype=np.int64).T
    more_starts = np.searchsorted(events, np.arange(len(starts)))
    joined: Hits = side_by_side(starts, targets, more_starts, others.astype(np.int32))
    return joined


def empty_search_scratch(n_bytes: int, n_owners: int, n_hits: int) -> SearchScratch:
    """Return scratch for strings of this many bytes in any form, targets below `n_owners`, and this many hits."""
    return SearchScratch(
        text=np.zeros(FOLDED_GROWTH * n_bytes + MARGIN, dtype=np.uint8),
        stamps=np.zeros(n_owners, dtype=np.int64),
        string_stamps=np.zeros(n_owners, dtype=np.int64),
        folded=np.zeros(0, dtype=np.int32),
        serials=np.zeros(N_SERIALS, dtype=np.int64),
        hits=np.zeros(n_hits, dtype=np.int32),
        remembered=np.zeros(REMEMBERED_SLOTS * REMEMBERED_WORDS, dtype=np.int64),
    )


def empty_found(n_events: int, n_targets: int) -> Found:
    """Return room for what is found in some events, whose targets are this many."""
    return Found(
        starts=np.zeros(n_events + 1, dtype=np.int64),
        targets=np.empty(n_targets, dtype=np.int32),
        open_starts=np.zeros(n_events + 1, dtype=np.int64),
        open_leaves=np.empty(n_targets, dtype=np.int64),
        open_targets=np.empty(n_targets, dtype=np.int32),
    )


class _Workspace:
    """What one thread keeps for the search, with room for what it has met so far."""

    def __init__(self) -> None:
        self._scratch = empty_search_scratch(1024, 64, 1 << 12)
        self._handle: Any = handle_of(self._scratch)
        self._targets = np.empty(1024, dtype=np.int32)
        self._open_leaves, self._open_targets = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.int32)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many strings there were in the last search, how many of them were searched, and the tests of them."""
        return self._scratch.serials[N_STRINGS : N_TESTS + 1]

    def _replace(self, **arrays: NDArray[Any]) -> None:
        self._scratch = self._scratch._replace(**arrays)
        self._handle = handle_of(self._scratch)

    def searched(
        self,
        layer: Layer,
        n_owners: int,
        n_targets: int,
        longest: int,
        leaves: LeafColumns,
        event_starts: NDArray[np.int64],
    ) -> Found:
        """Return what a layer finds, in arrays of their own."""
        if len(self._scratch.stamps) < n_owners:
            size = 2 * n_owners
            self._replace(stamps=np.zeros(size, dtype=np.int64), string_stamps=np.zeros(size, dtype=np.int64))
        if len(self._scratch.hits) < 2 * n_targets:
            self._replace(hits=np.zeros(4 * n_targets, dtype=np.int32))
        if len(self._scratch.text) < FOLDED_GROWTH * longest + MARGIN:
            self._replace(text=np.zeros(2 * FOLDED_GROWTH * longest + MARGIN, dtype=np.uint8))
        n_events = len(event_starts) - 1
        starts, open_starts = np.zeros(n_events + 1, dtype=np.int64), np.zeros(n_events + 1, dtype=np.int64)
        self.counts[:] = 0
        event, search = 0, _searcher()
        remembered_min = REMEMBERED_MIN_BYTES if n_events > 1 else NEVER_REMEMBERED
        while True:
            found = Found(starts, self._targets, open_starts, self._open_leaves, self._open_targets)
            done = search(leaves, event_starts, layer.handle, self._handle, found, event, remembered_min)
            if done == n_events:
                break
            event = done if done >= 0 else -1 - done
            if done < 0:
                self._replace(folded=folded_characters())
            else:
                self._grow(n_targets)
        if len(self._scratch.text) > _KEPT_TEXT_BYTES:
            self._replace(text=np.zeros(_KEPT_TEXT_BYTES, dtype=np.uint8))
        n_found, n_open = int(starts[-1]), int(open_starts[-1])
        return Found(
            starts,
            self._targets[:n_found].copy(),
            open_starts,
            self._open_leaves[:n_open].copy(),
            self._open_targets[:n_open].copy(),
        )

    def _grow(self, n_targets: int) -> None:
        self._targets = np.resize(self._targets, 2 * (len(self._targets) + n_targets))
        self._open_leaves = np.resize(self._open_leaves, 2 * (len(self._open_leaves) + n_targets))
        self._open_targets = np.resize(self._open_targets, 2 * (len(self._open_targets) + n_targets))


class _OfThread(threading.local):
    workspace: _Workspace | None = None


_of_thread = _OfThread()


def _workspace() -> _Workspace:
    workspace = _of_thread.workspace
    if workspace is None:
        workspace = _of_thread.workspace = _Workspace()
    return workspace


@functools.cache
def _searcher() -> Callable[..., int]:
    """Return `search_leaves` for arguments whose types are known."""
    handle = np.empty(0, dtype=np.int64)
    return direct(search_leaves, no_arrays(LeafColumns), handle, handle, handle, no_arrays(Found), 0, 0)


@functools.cache
def folded_characters() -> NDArray[np.int32]:
    """Return each code point with simple case folding, as the model has it."""
    points = range(_LAST_FOLDED + 1)
    return np.array([ord(fold(chr(point))) for point in points], dtype=np.int32)


class _Literals:
    """Literal texts, and what is asked of a string in which one of them stands."""

    def __init__(self) -> None:
        # By owner (attribute and form), text and anchors: (target, test).
        self._by_literal: defaultdict[tuple[int, bytes, int], list[tuple[int, int]]] = defaultdict(list)
        self._always: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._patterns: list[bytes] = []
        self._automata: list[Automaton] = []

    def add(self, attribute: int, form: int, text: str, anchors: int, target: int, test: int = NO_TEST) -> None:
        """Ask for a text somewhere in a string, or at an end of it, and for what a test says of the string."""
        owner = 2 * (attribute - ANY_STRING) + form
        data = text.encode("utf-8", "surrogatepass")
        if data:
            self._by_literal[owner, data, anchors].append((target, test))
        else:
            self._always[owner].append((target, test))

    def add_equal(self, attribute: int, form: int, text: str, target: int) -> None:
        """Ask for a text that is the whole string."""
        if text:
            self.add(attribute, form, text, AT_START | AT_END, target)
        else:
            self._add_pattern(attribute, form, [()], target)

    def _add_pattern(self, attribute: int, form: int, segments: Sequence[tuple[str | None, ...]], target: int) -> None:
        self._patterns.append(coded_pattern(segments))
        self.add(attribute, form, longest_part(segments), 0, target, len(self._patterns) - 1)

    def add_like(self, attribute: int, form: int, pattern: str, target: int) -> None:
        """Ask for what a wildcard pattern says."""
        match literal_segments(pattern):
            case [text]:
                self.add_equal(attribute, form, text, target)
            case [text, ""]:
                self.add(attribute, form, text, AT_START, target)
            case ["", text]:
                self.add(attribute, form, text, AT_END, target)
            case ["", text, ""]:
                self.add(attribute, form, text, 0, target)
            case _:
                first, *others = parse_like(pattern)
                middle = [segment for segment in others[:-1] if segment]
                self._add_pattern(attribute, form, [first, *middle, *others[-1:]], target)

    def add_regex(self, attribute: int, regex: str, target: int) -> bool:
        """Ask for what a regular expression says, if there are texts to look for, or a length."""
        literal = literal_of(regex)
        if literal is not None and literal.text and literal.is_all:
            anchors = AT_START * literal.is_at_start | AT_END * literal.is_at_end
            self.add(attribute, _AS_IT_IS, literal.text, anchors, target)
            return True
        needs, automaton = needs_of(regex), automaton_of(regex)
        if automaton is not None:
            self._automata.append(automaton)
            for text in needs.texts or ("",):
                self.add(attribute, _FOLDED, text, 0, target, FIRST_AUTOMATON + len(self._automata) - 1)
            return True
        texts = needs.texts or ("",) * (needs.shortest >= _ALONE_MIN_CHARACTERS)
        for text in texts:
            self.add(attribute, _FOLDED, text, 0, target, OPEN_TEST - min(needs.shortest, _LENGTH_TESTED_MAX))
        return bool(texts)

    def _join_forms(self) -> None:
        """Look for texts that folding does not change in folded strings, where other texts are looked for there.

        No other character is folded to one of theirs, so that they are found in the same strings.
        """
        folded = {owner for owner, _, _ in self._by_literal if owner & 1}
        unchanged = [
            (owner, text, anchors)
            for (owner, text, anchors), asked in self._by_literal.items()
            if owner + 1 in folded
            and text.translate(None, _UNCASED) == b""
            and all(test == NO_TEST for _, test in asked)
        ]
        for owner, text, anchors in unchanged:
            self._by_literal[owner + 1, text, anchors] += self._by_literal.pop((owner, text, anchors))

    def table(self, networks: Networks) -> SearchTable:
        """Return everything for the search."""
        self._join_forms()
        literals = list(self._by_literal.items())
        texts, starts = _flat([text for (_, text, _), _ in literals])
        owners = np.array([owner for (owner, _, _), _ in literals], dtype=np.int64)
        n_owners = 1 + max(self._always.keys() | {int(owners.max(initial=-1))}, default=-1)
        n_owners += n_owners & 1  # both forms of each attribute
        plan = _Plan.of(owners, np.diff(starts), n_owners)
        passes, entries = plan.filed(texts, starts)
        target_starts, targets, tests = _asked([asked for _, asked in literals])
        always_owners = sorted(self._always)
        own_starts, always, always_tests = _asked([self._always[owner] for owner in always_owners])
        always_starts = own_starts[np.searchsorted(always_owners, np.arange(n_owners + 1))]
        patterns, pattern_starts = _flat(self._patterns)
        return SearchTable(
            pass_starts=plan.pass_starts,
            **passes._asdict(),
            **entries._asdict(),
            text_starts=starts,
            texts=texts,
            anchors=np.array([anchors for (_, _, anchors), _ in literals], dtype=np.uint8),
            target_starts=target_starts,
            targets=targets,
            tests=tests,
            pattern_starts=pattern_starts.astype(np.int32),
            patterns=patterns,
            always_starts=always_starts,
            always=always,
            always_tests=always_tests,
            is_searched=(np.diff(plan.pass_starts) > 0) | (np.diff(always_starts) > 0),
            networks=networks,
            automata=laid_out_automata(self._automata),
        )


def laid_out_automata(automata: list[Automaton]) -> Automata:
    """Return the arrays of automata, one behind the other."""
    steps = [automaton.steps.ravel() for automaton in automata]
    ends = [automaton.matches_at_end for automaton in automata]
    return Automata(
        classes=np.concatenate([np.zeros(0, dtype=np.uint8), *(automaton.classes for automaton in automata)]),
        named=_named([automaton.named for automaton in automata]),
        widths=np.array([automaton.steps.shape[1] for automaton in automata], dtype=np.int64),
        step_starts=np.cumsum([0, *map(len, steps)]),
        steps=np.concatenate([np.zeros(0, dtype=np.int16), *steps]),
        end_starts=np.cumsum([0, *map(len, ends)]),
        matches_at_end=np.concatenate([np.zeros(0, dtype=np.bool_), *ends]),
    )


def _named(characters: list[tuple[str, ...]]) -> NDArray[np.int32]:
    named = np.full((len(characters), N_NAMED), -1, dtype=np.int32)
    for row, each in zip(named, characters, strict=True):
        row[: len(each)] = [ord(character) for character in each]
    return named.ravel()


class _Passes(NamedTuple):
    """The passes of all attributes and forms; see `SearchTable`."""

    passes: NDArray[np.int64]
    pass_entries: NDArray[np.int64]
    bits: NDArray[np.uint64]
    slots: NDArray[np.int32]


class _Entries(NamedTuple):
    """What is filed in the passes; see `SearchTable`."""

    grams: NDArray[np.uint32]
    entry_literals: NDArray[np.int32]
    offsets: NDArray[np.int32]


class _Plan(NamedTuple):
    """Which passes there are, by the size of their grams and by their steps, and which literals each of them finds."""

    pass_starts: NDArray[np.int32]
    sizes: NDArray[np.int64]
    steps: NDArray[np.int64]
    pass_numbers: NDArray[np.int64]  # of each literal

    @classmethod
    def of(cls, owners: NDArray[np.int64], lengths: NDArray[np.int64], n_owners: int) -> _Plan:
        """Choose the passes for literals of these owners and lengths."""
        order = np.lexsort((lengths, owners))
        used, firsts = np.unique(owners[order], return_index=True)
        pass_numbers = np.zeros(len(owners), dtype=np.int64)
        found: list[tuple[int, int]] = []
        n_passes = np.zeros(n_owners + 1, dtype=np.int32)
        for owner, own in zip(used.tolist(), np.split(order, firsts[1:]), strict=False):
            n_before, place = len(found), 0
            for size, step, longest in _chosen_passes(lengths[own]):
                end = int(np.searchsorted(lengths[own], longest, side="right"))
                pass_numbers[own[place:end]] = len(found)
                found.append((size, step))
                place = end
            n_passes[owner + 1] = len(found) - n_before
        sizes, steps = np.array(found, dtype=np.int64).reshape(-1, 2).T.copy()
        return cls(np.cumsum(n_passes, dtype=np.int32), sizes, steps, pass_numbers)

    def filed(self, texts: NDArray[np.uint8], starts: NDArray[np.int64]) -> tuple[_Passes, _Entries]:
        """File literals under their grams."""
        numbers, n = self.pass_numbers, len(self.pass_numbers)
        n_bits = max(10, int(4 * n).bit_length())
        firsts = file_literals(texts, starts, numbers, self.sizes, self.steps, n_bits)
        steps = self.steps[numbers]
        n_entries = int(steps.sum())
        grams, literals = np.empty(n_entries, dtype=np.uint32), np.empty(n_entries, dtype=np.int32)
        offsets = np.empty(n_entries, dtype=np.int32)
        list_entries(texts, starts, self.sizes[numbers], steps, firsts, (grams, literals, offsets))
        of_pass = numbers[literals]
        order = np.lexsort((grams, of_pass))
        pass_entries = np.searchsorted(of_pass[order], np.arange(len(self.sizes) + 1))
        passes, n_words, n_slots = self._laid_out(np.diff(pass_entries))
        bits, slots = np.zeros(n_words, dtype=np.uint64), np.full(n_slots, -1, dtype=np.int32)
        grams = grams[order]
        enter_grams(grams, pass_entries, passes, bits, slots)
        return _Passes(passes, pass_entries, bits, slots), _Entries(grams, literals[order], offsets[order])

    def _laid_out(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], int, int]:
        """Return the columns of passes with these numbers of entries, and how many words and slots they have in all."""
        slot_bits = np.array([max(4, int(2 * n).bit_length()) for n in counts.tolist()], dtype=np.int64)
        word_bits = np.maximum(slot_bits - _WORDS_SHIFT, _WORD_BITS_MIN)
        passes = np.zeros((len(counts), PASS_COLUMNS), dtype=np.int64)
        passes[:, GRAM_SIZE], passes[:, STEP] = self.sizes, self.steps
        words, slots = np.int64(1) << word_bits, np.int64(1) << slot_bits
        passes[:, FIRST_WORD], passes[:, FIRST_SLOT] = np.cumsum(words) - words, np.cumsum(slots) - slots
        passes[:, WORD_SHIFT], passes[:, SLOT_SHIFT] = 64 - word_bits, 64 - slot_bits
        return passes, int(words.sum()), int(slots.sum())


def _chosen_passes(lengths: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Return passes for ascending lengths of literals: the size of a gram, the step, and the longest of its literals.

    With few short literals, two passes take less time than one: one for them, and one in long steps for the others.
    Where there are literals of two bytes, every place is looked at anyway, so those of three bytes go with them.

    >>> _chosen_passes(np.array([2, 9, 12])), _chosen_passes(np.array([4, 9, 12]))
    ([(2, 1, 3), (4, 4, 9223372036854775807)], [(3, 2, 6), (4, 4, 9223372036854775807)])
    """
    passes = [(1, 1, 1)] if (lengths == 1).any() else []
    if (lengths == 2).any():
        passes.append((2, 1, 3))
        lengths = lengths[lengths > 3]
    lengths = lengths[lengths > 1]
    if not len(lengths):
        return passes
    shortest, n_short = int(lengths[0]), int(np.searchsorted(lengths, _LONG_LITERAL))
    if shortest > GRAM_MAX or not n_short:
        return [*passes, (GRAM_MAX, min(shortest - GRAM_MAX + 1, _STEP_MAX), _ANY_LENGTH)]
    if n_short <= _FEW_LITERALS:
        passes.append((GRAM_MAX - 1, shortest - GRAM_MAX + 2, _LONG_LITERAL - 1))
        return [*passes, (GRAM_MAX, _STEP_MAX, _ANY_LENGTH)] if n_short < len(lengths) else passes
    if shortest < GRAM_MAX:
        passes.append((shortest, 1, shortest))
    return [*passes, (GRAM_MAX, 1, _ANY_LENGTH)]


def literal_segments(pattern: str) -> list[str]:
    r"""Return the texts between the `%` of a wildcard pattern, those between two of them only if they are not empty.

    The list is empty if there is a `_`, or an escape that is not needed. This is `parse_like` for what most patterns
    are, without a look at each character.

    >>> literal_segments(r"%\\cmd.exe"), literal_segments("a_"), literal_segments("a%%b")
    (['', '\\cmd.exe'], [], ['a', 'b'])
    """
    plain = pattern
    if "\\" in pattern:
        if _MARK in pattern:
            return []
        for number, escaped in enumerate(_ESCAPED):
            plain = plain.replace(f"\\{escaped}", f"{_MARK}{number}")
    if "_" in plain or "\\" in plain:
        return []
    first, *others = plain.split("%")
    segments = [first, *filter(None, others[:-1]), *others[-1:]]
    if plain is not pattern:
        for number, escaped in enumerate(_ESCAPED):
            segments = [segment.replace(f"{_MARK}{number}", escaped) for segment in segments]
    return segments


def _flat(texts: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    starts = np.cumsum([0, *map(len, texts)])
    return np.frombuffer(b"".join(texts), dtype=np.uint8).copy(), starts


def _asked(lists: list[list[tuple[int, int]]]) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Return (starts, targets, tests) of lists of (target, test)."""
    starts = np.cumsum([0, *map(len, lists)]).astype(np.int32)
    both = np.array([pair for each in lists for pair in each], dtype=np.int32).reshape(-1, 2)
    return starts, both[:, 0].copy(), both[:, 1].copy()


def coded_pattern(segments: Iterable[tuple[str | None, ...]]) -> bytes:
    """Return a wildcard pattern as the kernel reads it."""
    any_character = bytes([ANY_CHARACTER])
    coded = (
        b"".join(any_character if c is None else c.encode("utf-8", "surrogatepass") for c in segment)
        for segment in segments
    )
    return bytes([ANY_TEXT]).join(coded)


def longest_part(segments: Iterable[tuple[str | None, ...]]) -> str:
    """Return the longest text without wildcards."""
    parts: list[str] = []
    for segment in segments:
        parts.append("")
        for character in segment:
            if character is None:
                parts.append("")
            else:
                parts[-1] += character
    return max(parts, key=len)


class _Regex:
    """A regular expression, compiled when it is first needed: that takes more time and memory than most ever repay."""

    __slots__ = ("_compiled", "_regex", "_target")

    def __init__(self, regex: str, target: int) -> None:
        self._regex = regex
        self._target = (target,)
        self._compiled: Any = None

    def found(self, data: bytes) -> Sequence[int]:
        """Return the pattern attribute of the expression if it matches somewhere in a text in UTF-8."""
        return self._target if self.holds(data) else ()

    def holds(self, data: bytes) -> bool:
        """Return whether the expression matches somewhere in a text in UTF-8."""
        if self._compiled is None:
            self._compiled = compile_regex(self._regex)
        return self._compiled.search(_SURROGATE.sub(_REPLACEMENT, data)) is not None


class _Regexes:
    """Regular expressions that RE2 tries all at once.

    One that matches everything is among them: if RE2 does not report it, it has run out of memory, and says so to
    nobody. They are then tried one by one, as they are if there is no such set.
    """

    def __init__(self, regexes: Sequence[tuple[int, str]]) -> None:
        self._attributes = [attribute for attribute, _ in regexes]
        self._regexes = [_Regex(regex, attribute) for attribute, regex in regexes]
        self._set = _regex_set([regex for _, regex in regexes])

    def found(self, data: bytes) -> list[int]:
        """Return the pattern attributes of the expressions that match somewhere in a text in UTF-8."""
        witness = len(self._regexes)
        numbers = self._set.Match(_SURROGATE.sub(_REPLACEMENT, data)) if self._set is not None else None
        if numbers is None or witness not in numbers:
            numbers = [number for number, regex in enumerate(self._regexes) if regex.holds(data)]
        return [self._attributes[number] for number in numbers if number != witness]


def _regex_set(regexes: Sequence[str]) -> Any:
    """Return a set of expressions, and behind them one that matches everything; None if RE2 cannot make one."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _SET_BYTES
    together = re2.Set.SearchSet(options)
    try:
        for regex in [*regexes, ""]:
            together.Add(regex)
        together.Compile()
    except re2.error:
        return None
    return together


def _network_tables(networks: Mapping[int, list[tuple[int, str]]]) -> tuple[dict[int, _Networks], Networks]:
    """Return the IPv6 networks by the target that stands for those of an attribute, and tables of the others.

    `networks` has pattern attributes and networks, by the attribute whose strings are addresses.
    """
    n_places = 1 + max((attribute - ANY_STRING for attribute in networks), default=-1)
    standing, addresses = np.full(n_places, -1, dtype=np.int32), {}
    groups: list[list[tuple[int, int, int]]] = [[] for _ in range(n_places)]
    keys: list[int] = []
    targets: list[int] = []
    for attribute, each in networks.items():
        parsed = [(parse_network(text), target, text) for target, text in each]
        others = [(target, text) for network, target, text in parsed if network.version == 6]
        if others:
            standing[attribute - ANY_STRING] = others[0][0]
            addresses[others[0][0]] = _Networks(others)
        by_size: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for network, target, _ in parsed:
            if network.version == 4:
                n_bits = network.max_prefixlen - network.prefixlen
                by_size[n_bits].append((int(network.network_address) >> n_bits, target))
        for n_bits, pairs in by_size.items():
            groups[attribute - ANY_STRING].append((n_bits, len(keys), len(keys) + len(pairs)))
            keys += [key for key, _ in sorted(pairs)]
            targets += [target for _, target in sorted(pairs)]
    flat = [group for each in groups for group in each]
    return addresses, Networks(
        starts=np.cumsum([0, *map(len, groups)]).astype(np.int32),
        groups=np.array(flat, dtype=np.int64).reshape(-1, 3),
        keys=np.array(keys, dtype=np.int64),
        targets=np.array(targets, dtype=np.int32),
        has_ipv6=standing >= 0,
        ipv6_targets=standing,
    )


class _Networks:
    """IPv6 networks by how many bits they leave to hosts."""

    def __init__(self, networks: Sequence[tuple[int, str]]) -> None:
        self._tables: defaultdict[int, dict[int, list[int]]] = defaultdict(dict)
        for attribute, text in networks:
            network = parse_network(text)
            n_host_bits = network.max_prefixlen - network.prefixlen
            table = self._tables[n_host_bits]
            table.setdefault(int(network.network_address) >> n_host_bits, []).append(attribute)

    def found(self, data: bytes) -> list[int]:
        """Return the pattern attributes of the networks that an address is in."""
        if _LIKE_ADDRESS.fullmatch(data) is None:
            return []
        try:
            address = ipaddress.ip_address(data.decode("utf-8", "surrogatepass"))
        except ValueError:
            return []
        if address.version != 6:
            return []
        number = int(address)
        return [target for n_bits, table in self._tables.items() for target in table.get(number >> n_bits, ())]
