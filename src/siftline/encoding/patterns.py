"""Patterns: which of all the patterns of an attribute a string satisfies, found together and not one by one.

Patterns of one attribute are kept in a few immutable *layers*, old and large ones first. New patterns make a new layer
when the next event comes, which is merged with the one before unless that is much larger: adding n patterns, with an
event after each, costs O(n log n) in all. An event waits for a thousand of them at most; larger layers are merged in
the background (`tidying.py`), up to a size whose automaton holds up other threads for some milliseconds only.

In a layer

    ends with 'x', like '%x'     a table for each length of suffix, of which few go with the end of a string
    contains 'x', like '%x%'     an Aho-Corasick automaton: one pass over the string, however many texts it looks for
    ilike                        the same for folded text, with tables for equality and prefixes
    in, ignoring case            the tables for equality of folded text
    other like, ilike            the longest literal part in the automaton; the model's own test where it is found
    matches                      like the above, by what `regex_literals` finds; without a literal, in sets of RE2
    cidr                         a table for each length of network prefix

Every answer is the model's (`model/semantics.py`): tests compare them.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import ahocorasick
import re2

from siftline.encoding.domains import CASELESS_LIST, PATTERN_OPS, prefixes_of
from siftline.encoding.regex_literals import literal_of
from siftline.model import leaf_of
from siftline.model.predicate import compile_regex, parse_network
from siftline.model.semantics import without_surrogates
from siftline.model.wildcard import fold, like, parse_like

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from siftline.encoding.domains import Domains, Pattern

    # A pattern attribute and its pattern.
    Entry = tuple[int, Pattern]
    # Adds the pattern attributes that a string has.
    Finder = Callable[[str, set[int]], None]
    Test = Callable[[str], bool]

# A layer below this many patterns is made anew with what comes.
_REBUILT_PATTERNS_MAX: Final = 64
# An event that meets new patterns merges layers up to this size, in two milliseconds.
_AT_ONCE: Final = 1024
# Merging goes up to this size: an automaton is made, and freed, in one go that no other thread can interrupt.
_LARGEST: Final = 1 << 14
# This many texts are looked for one by one: the automaton has something to say at every place where one of them is.
_FEW_PARTS: Final = 8
# A shorter literal is found too often to be worth a test each time.
_SHORTEST_LITERAL: Final = 3
# RE2 builds its automata while it matches, and keeps building if there are many expressions in one. Measured with 320
# expressions without literals, on texts that are always new, microseconds a text: sets of 1 take 480, of 4 130, of 8 or
# 16 95, of 64 500; one by one, 400. As much memory as this may go into the automaton of one set.
_SET_SIZE: Final = 16
_SET_BYTES: Final = 1 << 21
# Everything that may be an address, and little else.
_LIKE_ADDRESS: Final = re.compile(r"[0-9a-fA-F:.]{2,45}(?:%.*)?", re.DOTALL)


class Matcher:
    """All pattern attributes of some domains; never changed once it is made.

    Attributes
    ----------
    by_path : dict
        The layers of each path.
    wants_merge : bool
        Whether some layers should become one, in the background.
    """

    __slots__ = ("_last", "by_path", "n_patterns", "prefixes", "wants_merge")

    def __init__(self, domains: Domains, previous: Matcher | None) -> None:
        last: int = previous._last if previous else -1
        new = list(takewhile(lambda entry: entry[0] > last, reversed(domains.pattern_attributes.items())))[::-1]
        self.by_path: dict[str, tuple[Layer, ...]] = dict(previous.by_path) if previous else {}
        self.n_patterns = len(domains.pattern_attributes)
        self._last: int = new[-1][0] if new else last
        groups: dict[str, list[Entry]] = {}
        for entry in new:
            if entry[1].op in PATTERN_OPS:
                groups.setdefault(domains.names[entry[1].attribute], []).append(entry)
        for path, entries in groups.items():
            self.by_path[path] = _extended(self.by_path.get(path, ()), entries)
        # What may hold a string with patterns somewhere below it.
        self.prefixes = prefixes_of(self.by_path)
        self.wants_merge = any(_mergeable(self.by_path[path]) for path in groups)
        if previous is not None and previous.wants_merge and not self.wants_merge:
            self.wants_merge = self.mergeable() is not None

    def mergeable(self) -> tuple[str, Sequence[Layer]] | None:
        """Return layers of a path that should become one, if there are any."""
        for path, layers in self.by_path.items():
            if chosen := _mergeable(layers):
                return path, chosen
        return None

    def merged(self, path: str, chosen: Sequence[Layer], layer: Layer) -> Matcher:
        """Return a matcher with one layer in the place of several; the same if these are gone."""
        layers = self.by_path.get(path, ())
        places = [place for place, each in enumerate(layers) if any(each is old for old in chosen)]
        if len(places) < len(chosen):
            return self
        other = Matcher.__new__(Matcher)
        other.by_path = {**self.by_path, path: (*layers[: places[0]], layer, *layers[places[-1] + 1 :])}
        other.n_patterns, other._last, other.prefixes = self.n_patterns, self._last, self.prefixes
        other.wants_merge = other.mergeable() is not None
        return other

    def find(self, path: str, text: str, found: set[int]) -> None:
        """Add the pattern attributes that an event with this string at the path has."""
        for layer in self.by_path.get(path, ()):
            layer.find(text, found)

    def found(self, path: str, text: str) -> list[int]:
        """Return the pattern attributes that an event with this string at the path has."""
        found: set[int] = set()
        self.find(path, text, found)
        return sorted(found)


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
    by_path, found = matcher.by_path, set[int]()
    for key, value in tree.items():
        if key in by_path and type(value) is str:
            matcher.find(key, value, found)
        elif key in by_path or key in matcher.prefixes:
            _look_into(value, key, matcher, found)
    owners += found
    values += [True] * len(found)


def _look_into(value: Any, path: str, matcher: Matcher, found: set[int]) -> None:
    if isinstance(value, Mapping):
        for key, child in value.items():
            _look_into(child, f"{path}.{key}", matcher, found)
    elif isinstance(value, (list, tuple)):
        for element in value:
            _look_into(element, path, matcher, found)
    elif path in matcher.by_path:
        leaf = leaf_of(value, path)
        if isinstance(leaf, str):
            matcher.find(path, leaf, found)


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
        while first and sizes[first - 1] < 2 * size and size + sizes[first - 1] <= _LARGEST:
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
    """Some patterns of one attribute.

    Examples
    --------
    >>> from siftline.encoding.domains import Pattern
    >>> layer = Layer([(7, Pattern(0, "contains", "b")), (8, Pattern(0, "ends with", "b"))])
    >>> found = set()
    >>> layer.find("abc", found)
    >>> found
    {7}
    """

    __slots__ = ("_finders", "entries")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        plain, folded = _Texts(), _Texts()
        regexes: list[tuple[int, str]] = []
        networks: list[tuple[int, str]] = []
        for attribute, (_, op, operand) in entries:
            match op:
                case "starts with":
                    plain.add_prefix(operand, attribute)
                case "ends with":
                    plain.add_suffix(operand, attribute)
                case "contains":
                    plain.add_part(operand, attribute)
                case "like":
                    plain.add_like(operand, attribute)
                case "ilike":
                    folded.add_like(fold(operand), attribute)
                case _ if op == CASELESS_LIST:
                    for text in json.loads(operand):
                        folded.add_equal(text, attribute)
                case "matches":
                    if not plain.add_regex(operand, attribute):
                        regexes.append((attribute, operand))
                case "cidr":
                    networks.append((attribute, operand))
                case _:
                    raise ValueError(f"unknown operator {op!r}")
        self._finders: list[Finder] = plain.finders()
        if folded_finders := folded.finders():
            self._finders.append(partial(_find_folded, folded_finders))
        self._finders += [
            _Regexes(regexes[first : first + _SET_SIZE]).find for first in range(0, len(regexes), _SET_SIZE)
        ]
        if networks:
            self._finders.append(_Networks(networks).find)

    def find(self, text: str, found: set[int]) -> None:
        """Add the pattern attributes of the patterns that a string satisfies."""
        for finder in self._finders:
            finder(text, found)


def _find_folded(finders: list[Finder], text: str, found: set[int]) -> None:
    folded = fold(text)
    for finder in finders:
        finder(folded, found)


class _Texts:
    """Literal texts that a string is asked for: to be equal to one, to start or end with it, or to contain it."""

    def __init__(self) -> None:
        self._always: list[int] = []
        self._equals: dict[str, list[int]] = {}
        self._prefixes: dict[int, dict[str, list[int]]] = {}
        self._suffixes: dict[int, dict[str, list[int]]] = {}
        self._suffix_lengths: dict[str, list[int]] = {}
        self._shortest_suffix = 0
        self._parts: dict[str, _Part] = {}
        self._tests: list[tuple[int, Test]] = []
        self._automaton: Any = None
        self._numbered: list[tuple[tuple[int, ...], tuple[tuple[int, Test], ...]]] = []

    # filling

    def add_equal(self, text: str, attribute: int) -> None:
        self._equals.setdefault(text, []).append(attribute)

    def add_prefix(self, text: str, attribute: int) -> None:
        self._prefixes.setdefault(len(text), {}).setdefault(text, []).append(attribute)

    def add_suffix(self, text: str, attribute: int) -> None:
        if text:
            self._suffixes.setdefault(len(text), {}).setdefault(text, []).append(attribute)
        else:
            self._always.append(attribute)

    def add_part(self, text: str, attribute: int, test: Test | None = None) -> None:
        """Ask for a text somewhere in a string, and for what the test says of the string."""
        if not text:
            self._add_test(attribute, test)
            return
        part = self._parts.setdefault(text, _Part())
        if test is None:
            part.attributes.append(attribute)
        else:
            part.tests.append((attribute, test))

    def _add_test(self, attribute: int, test: Test | None) -> None:
        if test is None:
            self._always.append(attribute)
        else:
            self._tests.append((attribute, test))

    def add_like(self, pattern: str, attribute: int) -> None:
        """Ask for what a wildcard pattern says."""
        first, *others = parse_like(pattern)
        middle = [segment for segment in others[:-1] if segment]
        segments = [first, *middle, *others[-1:]]
        texts = ["".join(character or "" for character in segment) for segment in segments]
        has_gaps = any(None in segment for segment in segments)
        match texts:
            case [text] if not has_gaps:
                self.add_equal(text, attribute)
            case [text, ""] if not has_gaps:
                self.add_prefix(text, attribute)
            case ["", text] if not has_gaps:
                self.add_suffix(text, attribute)
            case ["", text, ""] if not has_gaps:
                self.add_part(text, attribute)
            case _:
                self.add_part(_longest_part(segments), attribute, partial(_is_like, pattern))

    def add_regex(self, regex: str, attribute: int) -> bool:
        """Ask for what a regular expression says, if there is a literal text to look for."""
        literal = literal_of(regex)
        if literal is None:
            return False
        if not literal.is_all:
            if len(literal.text) < _SHORTEST_LITERAL:
                return False
            self.add_part(literal.text, attribute, _Regex(regex).holds)
        elif literal.is_at_start and literal.is_at_end:
            self.add_equal(literal.text, attribute)
        elif literal.is_at_start:
            self.add_prefix(literal.text, attribute)
        elif literal.is_at_end:
            self.add_suffix(literal.text, attribute)
        else:
            self.add_part(literal.text, attribute)
        return True

    # finding

    def finders(self) -> list[Finder]:
        """Return what finds everything that was added; nothing may be added any more."""
        finders: list[Finder] = []
        if self._always:
            finders.append(self._find_always)
        if self._equals:
            finders.append(self._find_equals)
        for tables, finder in ((self._prefixes, self._find_prefixes), (self._suffixes, self._find_suffixes)):
            if tables:
                finders.append(finder)
        self._prefixes = dict(sorted(self._prefixes.items()))
        self._sort_suffixes()
        if len(self._parts) > _FEW_PARTS:
            self._build_automaton()
            finders.append(self._find_parts)
        elif self._parts:
            finders.append(self._find_few_parts)
        if self._tests:
            finders.append(self._find_by_tests)
        return finders

    def _sort_suffixes(self) -> None:
        """Note which lengths there are for each ending: few, while all suffixes together have dozens."""
        self._shortest_suffix = min(self._suffixes, default=0)
        for length in sorted(self._suffixes):
            for ending in {text[-self._shortest_suffix :] for text in self._suffixes[length]}:
                self._suffix_lengths.setdefault(ending, []).append(length)

    def _build_automaton(self) -> None:
        self._automaton = ahocorasick.Automaton(ahocorasick.STORE_INTS)
        # Tuples of numbers cost the garbage collector nothing.
        self._numbered = [(tuple(part.attributes), tuple(part.tests)) for part in self._parts.values()]
        for number, text in enumerate(self._parts):
            self._automaton.add_word(text, number)
        self._automaton.make_automaton()
        self._parts = {}

    def _find_always(self, text: str, found: set[int]) -> None:
        found.update(self._always)

    def _find_equals(self, text: str, found: set[int]) -> None:
        found.update(self._equals.get(text, ()))

    def _find_prefixes(self, text: str, found: set[int]) -> None:
        for length, table in self._prefixes.items():
            if length > len(text):
                break
            found.update(table.get(text[:length], ()))

    def _find_suffixes(self, text: str, found: set[int]) -> None:
        for length in self._suffix_lengths.get(text[-self._shortest_suffix :], ()):
            if length > len(text):
                break
            found.update(self._suffixes[length].get(text[-length:], ()))

    def _find_parts(self, text: str, found: set[int]) -> None:
        for number in {number for _, number in self._automaton.iter(text)}:
            attributes, tests = self._numbered[number]
            found.update(attributes)
            if tests:
                found.update(attribute for attribute, test in tests if test(text))

    def _find_few_parts(self, text: str, found: set[int]) -> None:
        for wanted, part in self._parts.items():
            if wanted in text:
                part.find(text, found)

    def _find_by_tests(self, text: str, found: set[int]) -> None:
        found.update(attribute for attribute, test in self._tests if test(text))


class _Part:
    """The patterns with one literal text in common: those that ask for nothing else, and those with a test."""

    __slots__ = ("attributes", "tests")

    def __init__(self) -> None:
        self.attributes: list[int] = []
        self.tests: list[tuple[int, Test]] = []

    def find(self, text: str, found: set[int]) -> None:
        """Add what is found in a string that contains the text."""
        found.update(self.attributes)
        if self.tests:
            found.update(attribute for attribute, test in self.tests if test(text))


def _longest_part(segments: Iterable[tuple[str | None, ...]]) -> str:
    """Return the longest text without wildcards."""
    parts = [part for segment in segments for part in "".join(c or "\0" for c in segment).split("\0")]
    return max(parts, key=len)


def _is_like(pattern: str, text: str) -> bool:
    return like(text, pattern)


class _Regex:
    """A regular expression, compiled when it is first needed: that takes more time and memory than most ever repay."""

    __slots__ = ("_compiled", "_regex")

    def __init__(self, regex: str) -> None:
        self._regex = regex
        self._compiled: Any = None

    def holds(self, text: str) -> bool:
        """Return whether the expression matches somewhere in the text."""
        return self.holds_for(_utf8(text))

    def holds_for(self, data: bytes) -> bool:
        """Return the same for a text in UTF-8."""
        if self._compiled is None:
            self._compiled = compile_regex(self._regex)
        return self._compiled.search(data) is not None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return without_surrogates(text).encode()


class _Regexes:
    """Regular expressions that RE2 tries all at once.

    One that matches everything is among them: if RE2 does not report it, it has run out of memory, and says so to
    nobody. They are then tried one by one, as they are if there is no such set.
    """

    def __init__(self, regexes: Sequence[tuple[int, str]]) -> None:
        self._attributes = [attribute for attribute, _ in regexes]
        self._regexes = [_Regex(regex) for _, regex in regexes]
        self._set = _regex_set([regex for _, regex in regexes])

    def find(self, text: str, found: set[int]) -> None:
        """Add the pattern attributes of the expressions that match somewhere in the text."""
        data, witness = _utf8(text), len(self._regexes)
        numbers = self._set.Match(data) if self._set is not None else None
        if numbers is None or witness not in numbers:
            numbers = [number for number, regex in enumerate(self._regexes) if regex.holds_for(data)]
        found.update(self._attributes[number] for number in numbers if number != witness)


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


class _Networks:
    """Networks by their version and how many bits they leave to hosts."""

    def __init__(self, networks: Sequence[tuple[int, str]]) -> None:
        self._tables: dict[int, dict[int, dict[int, list[int]]]] = {4: {}, 6: {}}
        for attribute, text in networks:
            network = parse_network(text)
            n_host_bits = network.max_prefixlen - network.prefixlen
            table = self._tables[network.version].setdefault(n_host_bits, {})
            table.setdefault(int(network.network_address) >> n_host_bits, []).append(attribute)

    def find(self, text: str, found: set[int]) -> None:
        """Add the pattern attributes of the networks that an address is in."""
        if _LIKE_ADDRESS.fullmatch(text) is None:
            return
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return
        number = int(address)
        for n_host_bits, table in self._tables[address.version].items():
            found.update(table.get(number >> n_host_bits, ()))
