"""Events as JSON texts, encoded without building objects.

The compiled parser says of every text: fine, bad, or one that only Python gets right (repeated keys, enormous
integers). The latter are rare; they go through `json.loads`, and their codes are put in between the others.
"""

from __future__ import annotations

import functools
import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from siftline.encoding.domain import TRUE
from siftline.encoding.domain_tables import tables_of
from siftline.encoding.events import append_leaves, locate
from siftline.encoding.flat_domains import binary_buffers, read_only
from siftline.encoding.json_leaves import NUMBER, OK, STRING, parse_json
from siftline.encoding.moments import Instants
from siftline.encoding.patterns import matcher_of
from siftline.errors import EventError
from siftline.kernels.compiler import direct
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.locate import locate_leaves
from siftline.kernels.pointers import no_arrays
from siftline.kernels.spans import side_by_side
from siftline.model import MAX_EVENT_DEPTH, MAX_INTEGER_DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from siftline.encoding.domain_tables import DomainTables
    from siftline.encoding.domains import Domains
    from siftline.encoding.events import Arrays
    from siftline.encoding.flat_domains import Base
    from siftline.encoding.json_leaves import Leaves
    from siftline.encoding.path_hash import Paths

# Texts are parsed in blocks of about this many bytes: the parser's arrays are several times as large as its input.
_BLOCK_BYTES: Final = 1 << 22

# Python converts no integer beyond a limit, which programs can set to 640 digits. Constants are doubles or int64.
_ENORMOUS: Final = 10**400
_MANY_DIGITS: Final = re.compile(f"[0-9]{{{MAX_INTEGER_DIGITS + 1}}}")

_BOM: Final = b"\xef\xbb\xbf"
_NEWLINE: Final = 10
_SPACE: Final = b" \t\r"
# Where the first event begins.
_FIRST: Final = read_only(np.zeros(1, dtype=np.int64))


class JsonSource:
    r"""Events as JSON texts in UTF-8: event i is data[starts[i]:ends[i]].

    Parameters
    ----------
    data : bytes or uint8 array
        Kept, not copied.
    starts, ends : int64[n]
        Where each text begins and ends.
    skip_bad : bool
        What is not a JSON object counts as an event without attributes, and `errors` says what is wrong with it.
        Otherwise it is an error.
    lines : int64[n], optional
        The line numbers that errors name, instead of the positions of events.

    Attributes
    ----------
    errors : dict of int to str
        After `encode` with `skip_bad`, what was wrong with which event. Such an event must match nothing at all.

    Examples
    --------
    >>> from siftline.encoding.domains import Domains
    >>> source = json_lines(b'{"a": 1}\n[2]\n', skip_bad=True)
    >>> starts, attributes, codes = source.encode(Domains())
    >>> len(source), source.tree(0), source.errors
    (2, {'a': 1}, {1: 'line 2: not a JSON object: an array'})
    """

    def __init__(
        self,
        data: bytes | NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        *,
        skip_bad: bool = False,
        lines: NDArray[np.int64] | None = None,
    ) -> None:
        self._data = data if isinstance(data, np.ndarray) else np.frombuffer(data, dtype=np.uint8)
        self._starts = starts
        self._ends = ends
        self._skip_bad = skip_bad
        self._lines = lines
        self.errors: dict[int, str] = {}

    @classmethod
    def from_arrow(cls, texts: Any, *, skip_bad: bool = False) -> JsonSource:
        """Return the events in an Arrow array of strings or binaries; the texts of a single chunk are not copied."""
        array = _one_array(texts)
        _check_no_null(array, skip_bad)
        starts, data = binary_buffers(array)
        ends = starts[1:]
        if array.null_count:
            ends = np.where(array.is_valid().to_numpy(zero_copy_only=False), ends, starts[:-1])
        return cls(data, starts[:-1], ends, skip_bad=skip_bad)

    def __len__(self) -> int:
        return len(self._starts)

    def tree(self, position: int) -> Mapping[str, Any]:
        """Return one event as `json.loads` understands it."""
        start, end = int(self._starts[position]), int(self._ends[position])
        if not 0 <= start <= end <= self._data.size:
            raise ValueError(f"event {position} is from {start} to {end}, outside the {self._data.size} bytes of data")
        try:
            return load_object(self._data[start:end].tobytes())
        except EventError as error:
            raise EventError(self._naming(position, error)) from None

    def encode(self, domains: Domains, now: int = 0) -> Arrays:
        """Encode all events, those that the compiled parser leaves over with Python's."""
        self.errors = {}
        tables = tables_of(domains)
        if not tables.is_worth_merging(len(self)):
            return self._encode_objects(range(len(self)), domains, now)
        parts = [self._encode_block(first, end, tables, domains, now) for first, end in self._blocks()]
        return joined(parts)

    def parsed(self, positions: NDArray[np.int64], paths: Paths, *, keeps_strings: bool = False) -> Leaves:
        """Return the leaves of some events, which ascend and are at least one, with these attributes."""
        return parse_json(*self._texts(positions), paths, keeps_strings=keeps_strings)

    def one_text(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """Return the data of a single event, and where it starts and ends, as arrays that kernels may read only."""
        data = self._data if not self._data.flags.writeable else read_only(self._data)
        return data, read_only(self._starts), read_only(self._ends)

    def _texts(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """Return the part of the data that has some events, and where in it they start and end."""
        data = self._data
        starts, ends = (np.asarray(bounds[positions], dtype=np.int64) for bounds in (self._starts, self._ends))
        if data.size > _BLOCK_BYTES:
            low, high = int(starts.min()), int(ends.max())
            data, starts, ends = data[low:high], starts - low, ends - low
        return data, starts, ends

    def _blocks(self) -> list[tuple[int, int]]:
        """Return ranges of events with about _BLOCK_BYTES of text."""
        n = len(self)
        if self._data.size <= _BLOCK_BYTES:
            return [(0, n)]
        sizes = np.cumsum(np.asarray(self._ends) - np.asarray(self._starts))
        cuts = np.searchsorted(sizes, np.arange(_BLOCK_BYTES, sizes[-1] if n else 0, _BLOCK_BYTES))
        bounds = np.unique(np.concatenate([[0], cuts, [n]])).tolist()
        return list(pairwise(bounds)) or [(0, n)]

    def _encode_block(self, first: int, end: int, tables: DomainTables, domains: Domains, now: int) -> Arrays:
        starts, ends, data = self._starts[first:end], self._ends[first:end], self._data
        if data.size > _BLOCK_BYTES and end > first:
            low, high = int(starts.min()), int(ends.max())
            data, starts, ends = data[low:high], starts - low, ends - low
        leaves = parse_json(data, starts, ends, tables.path_hash, keeps_strings=domains.takes_all_strings)
        satisfied = None
        if domains.pattern_attributes:
            leaves = leaves._replace(attributes=tables.path_attributes[leaves.attributes])
            satisfied = _pattern_leaves(leaves, domains)
            leaves = leaves.of_paths() if domains.takes_all_strings else leaves
        arrays = leaves.event_starts, leaves.attributes, _locator()(leaves.columns, tables.base.handle)
        if satisfied is not None:
            arrays = _beside(arrays, satisfied)
        if domains.moments:
            arrays = _beside(arrays, _moment_leaves(leaves, domains, tables.base, now))
        odd = np.flatnonzero(leaves.statuses != OK)
        if not odd.size:
            return arrays
        # Bad ones as well: Python knows best what is wrong with them.
        extra = self._encode_objects((first + odd).tolist(), domains, now)
        return _merged(arrays, odd, extra)

    def _encode_objects(self, positions: Sequence[int], domains: Domains, now: int) -> Arrays:
        """Encode some events by way of Python objects."""
        owners: list[int] = []
        values: list[Any] = []
        ends = [0]
        for position in positions:
            self._append_object(position, domains, owners, values, now)
            ends.append(len(owners))
        return locate(owners, values, np.array(ends, dtype=np.int64), domains)

    def _append_object(self, position: int, domains: Domains, owners: list[int], values: list[Any], now: int) -> None:
        if position in self.errors:
            return
        n_values = len(values)
        try:
            tree = self.tree(position)
        except EventError as error:
            self._refuse(position, error)
            return
        try:
            append_leaves(tree, domains, owners, values, now)
        except EventError as error:
            del owners[n_values:], values[n_values:]
            self._refuse(position, EventError(self._naming(position, error)))

    def _refuse(self, position: int, error: EventError) -> None:
        if not self._skip_bad:
            raise error from None
        self.errors[position] = str(error)

    def _naming(self, position: int, reason: object) -> str:
        """Return the reason after the name of the event, if there could be any doubt which it is."""
        if self._lines is not None:
            return f"line {self._lines[position]}: {reason}"
        return f"event {position}: {reason}" if len(self) > 1 else str(reason)


class OneText(JsonSource):
    """One event as JSON text, with the dict that the text was written from, if there is one.

    Of most events nobody wants the text again, so the arrays are made when they are asked for.
    """

    def __init__(self, text: bytes, tree: Mapping[str, Any] | None = None) -> None:
        self._text, self._tree = text, tree
        self._skip_bad, self._lines = False, None
        self.errors = {}

    @functools.cached_property
    def _data(self) -> NDArray[np.uint8]:  # type: ignore[override]
        return np.frombuffer(self._text, dtype=np.uint8)

    @functools.cached_property
    def _starts(self) -> NDArray[np.int64]:  # type: ignore[override]
        return _FIRST

    @functools.cached_property
    def _ends(self) -> NDArray[np.int64]:  # type: ignore[override]
        return np.array([len(self._text)], dtype=np.int64)

    def __len__(self) -> int:
        return 1

    def tree(self, position: int) -> Mapping[str, Any]:
        """Return the event as it was given."""
        return super().tree(position) if self._tree is None else self._tree


def one_json(data: bytes, *, skip_bad: bool = False) -> JsonSource:
    """Return a source with one event, the whole text."""
    return JsonSource(data, _FIRST, np.array([len(data)], dtype=np.int64), skip_bad=skip_bad)


def json_lines(data: bytes, *, skip_bad: bool = False) -> JsonSource:
    """Return the events in a JSON Lines text, one on each line that is not blank; errors name the line."""
    content = np.frombuffer(data, dtype=np.uint8)
    newlines = np.flatnonzero(content == _NEWLINE)
    starts = np.concatenate([[0], newlines + 1]).astype(np.int64)
    ends = np.concatenate([newlines, [content.size]]).astype(np.int64)
    if content[:3].tobytes() == _BOM:
        starts[0] = 3
    kept = np.flatnonzero(~_are_blank(content, starts, ends))
    return JsonSource(data, starts[kept], ends[kept], skip_bad=skip_bad, lines=kept + 1)


def _are_blank(content: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    blank: NDArray[np.bool_] = starts == ends
    full = np.flatnonzero(~blank)
    # Lines that begin with white space are rare: only those are looked at one by one.
    for i in full[np.isin(content[starts[full]], np.frombuffer(_SPACE, dtype=np.uint8))].tolist():
        blank[i] = not content[starts[i] : ends[i]].tobytes().strip(_SPACE)
    return blank


def load_object(text: bytes) -> dict[str, Any]:
    """Return a JSON object as a dict; anything else is an EventError that says where and why, as far as known."""
    n_before = len(_BOM) if text.startswith(_BOM) else 0
    try:
        characters = text[n_before:].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise EventError(f"not a JSON object: invalid UTF-8 at byte {n_before + error.start}") from None
    try:
        tree = _loads(characters)
    except json.JSONDecodeError as error:
        n_bytes = n_before + len(characters[: error.pos].encode("utf-8", "surrogatepass"))
        raise EventError(f"not a JSON object: {_first_lower(error.msg)} at byte {n_bytes}") from None
    except RecursionError:
        raise EventError(f"the event nests deeper than {MAX_EVENT_DEPTH} levels") from None
    if not isinstance(tree, dict):
        raise EventError(f"not a JSON object: {_kind(tree)}")
    return tree


def _loads(characters: str) -> Any:
    if len(characters) > MAX_INTEGER_DIGITS and _MANY_DIGITS.search(characters) is not None:
        return json.loads(characters, parse_int=_integer)
    try:
        return json.loads(characters)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(characters, parse_int=_integer)


def _integer(digits: str) -> int:
    """Return an integer that is not too long; beyond Python's limit, one that compares as it would with constants."""
    if len(digits.removeprefix("-")) > MAX_INTEGER_DIGITS:
        raise EventError(f"an integer has more than {MAX_INTEGER_DIGITS:,} digits")
    try:
        return int(digits)
    except ValueError:
        return -_ENORMOUS if digits.startswith("-") else _ENORMOUS


def _first_lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _kind(tree: object) -> str:
    if tree is None or isinstance(tree, bool):
        return str(tree).lower() if tree is not None else "null"
    return "an array" if isinstance(tree, list) else "a string" if isinstance(tree, str) else "a number"


@functools.cache
def _locator() -> Callable[[LeafColumns, Any], NDArray[np.int32]]:
    """Return `locate_leaves` for the columns that `parse_json` makes, whose types are known."""
    return direct(locate_leaves, no_arrays(LeafColumns), np.empty(0, dtype=np.int64))


def _pattern_leaves(leaves: Leaves, domains: Domains) -> Arrays:
    """Return the pattern attributes of all events."""
    starts, attributes = matcher_of(domains).found_in(leaves.columns, leaves.event_starts)
    return starts, attributes, np.full(len(attributes), TRUE, dtype=np.int32)


def _moment_leaves(leaves: Leaves, domains: Domains, base: Base, now: int) -> Arrays:
    """Return the instants and ages of all events."""
    is_read = np.zeros(len(domains), dtype=np.bool_)
    is_read[list(domains.moments)] = True
    chosen = np.flatnonzero((leaves.kinds == STRING) & is_read[leaves.attributes])
    instants = Instants.read(leaves.texts, leaves.text_starts[chosen], leaves.text_ends[chosen])
    times = chosen[instants.places]
    events = np.searchsorted(leaves.event_starts, times, side="right") - 1
    parts = []
    for owner, derived in domains.moments.items():
        own = np.flatnonzero(leaves.attributes[times] == owner)
        for attribute, op in derived:
            parts.append((events[own], np.full(len(own), attribute, dtype=np.int32), *instants.numbers(op, now, own)))
    owners, attributes, numbers, residuals = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(owners, kind="stable")
    nowhere = np.zeros(len(order), dtype=np.int64)
    columns = LeafColumns(
        attributes=attributes[order],
        kinds=np.full(len(order), NUMBER, dtype=np.uint8),
        numbers=numbers[order],
        residuals=residuals[order],
        text_starts=nowhere,
        text_ends=nowhere,
        texts=leaves.texts,
    )
    codes = base.located(columns)
    return np.searchsorted(owners[order], np.arange(len(leaves.statuses) + 1)), attributes[order], codes


def _beside(arrays: Arrays, extra: Arrays) -> Arrays:
    """Put more leaves of all events behind those that they have in the arrays."""
    starts, attributes, codes = arrays
    extra_starts, extra_attributes, extra_codes = extra
    joined_starts, joined_attributes = side_by_side(starts, attributes, extra_starts, extra_attributes)
    return joined_starts, joined_attributes, side_by_side(starts, codes, extra_starts, extra_codes)[1]


def _merged(arrays: Arrays, events: NDArray[np.int64], extra: Arrays) -> Arrays:
    """Put more leaves of some events before those that they have in the arrays."""
    starts, attributes, codes = arrays
    extra_starts, extra_attributes, extra_codes = extra
    counts = np.diff(extra_starts)
    places = np.repeat(starts[events], counts)
    shifts = np.zeros(len(starts), dtype=np.int64)
    shifts[events + 1] = counts
    return (
        starts + np.cumsum(shifts),
        np.insert(attributes, places, extra_attributes),
        np.insert(codes, places, extra_codes),
    )


def joined(parts: Sequence[Arrays]) -> Arrays:
    """Put the events of several parts one behind the other."""
    if len(parts) == 1:
        return parts[0]
    counts = [np.zeros(1, dtype=np.int64), *(np.diff(starts) for starts, _, _ in parts)]
    nothing = np.zeros(0, dtype=np.int32)
    return (
        np.cumsum(np.concatenate(counts), dtype=np.int64),
        np.concatenate([nothing, *(attributes for _, attributes, _ in parts)]),
        np.concatenate([nothing, *(codes for _, _, codes in parts)]),
    )


def _one_array(texts: Any) -> Any:
    """Return texts of any Arrow layout as one array with 64-bit offsets; only views and chunks are copied."""
    if isinstance(texts.type, pa.BaseExtensionType):
        texts = texts.cast(texts.type.storage_type)
    is_text = pa.types.is_string(texts.type) or pa.types.is_string_view(texts.type)
    wide = texts.cast(pa.large_string() if is_text or pa.types.is_large_string(texts.type) else pa.large_binary())
    if not isinstance(wide, pa.ChunkedArray):
        return wide
    return wide.chunk(0) if wide.num_chunks == 1 else wide.combine_chunks()


def _check_no_null(array: Any, skip_bad: bool) -> None:
    if array.null_count and not skip_bad:
        position = array.is_null().index(True).as_py()
        raise EventError(f"event {position}: it is null")
