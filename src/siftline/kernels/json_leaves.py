"""From the bytes of JSON objects to the leaves of events, in flat arrays.

One loop reads a key (in objects), a value, and a comma or closing brackets after it. Open containers are a stack of
frames; frame 0 is no container, its serial counts the objects opened so far. Of a key only the state of its path is
kept (see json_path), and a nested object continues from that state.

Repeated keys: every slot of the path table has a stamp, the serial of the object in which its path was last read.
Serials only grow, so if the path was read in this object or inside of it, its stamp is not below the serial of this
object. This never misses a repeated key. It also reports {"a": {"b": 1}, "a.b": 2}, which is rare and left to Python.
Keys that are not in the table cannot lead to a leaf, repeated or not.

With an attribute for the `others`, all strings are leaves, those at unknown paths under that attribute. Then every key
may lead to a leaf, and every path is followed. The unknown ones have stamps too, in a hash table that lasts for one
event: what is older than its outermost object counts as empty. Two paths of one hash share an entry, whose stamp is
that of the later one; so no repeated key is missed, but an event may be left to Python for nothing.

Every value is written after the leaves so far, but only a value with a known attribute moves the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.json_number import NULL, NUMBER, parse_number, skip_infinity, skip_number
from siftline.kernels.json_path import (
    DOT,
    HASH_SEED,
    NO_ATTRIBUTE,
    PathHash,
    attribute_of,
    extend_path,
    find_path,
    finish_hash,
)
from siftline.kernels.json_string import decode_string
from siftline.kernels.json_words import (
    ONE,
    ZERO,
    bad,
    byte_at,
    byte_of,
    failed_at,
    first_byte,
    is_bad,
    load_word,
    low_bytes,
    skip_space,
    slow,
    string_stops,
)
from siftline.kernels.pointers import arrays_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.leaves import LeafColumns

__all__ = [
    "BAD",
    "FALSE",
    "FRAME_FIELDS",
    "FRAME_WORDS",
    "NO_OTHERS",
    "NULL",
    "NUMBER",
    "OK",
    "SLOW",
    "STRING",
    "TEXT_MARGIN",
    "TRUE",
    "Scratch",
    "Statuses",
    "parse_events",
]

# Kinds of leaves, with NULL and NUMBER.
FALSE: Final = 1
TRUE: Final = 2
STRING: Final = 4

# Statuses of events.
OK: Final = 0
BAD: Final = 1
SLOW: Final = 2

# Instead of the attribute of strings at unknown paths: they are no leaves.
NO_OTHERS: Final = -1

# Strings are written eight bytes at a time, so this many bytes after the last text are scratch.
TEXT_MARGIN: Final = 8

# In a table of unknown paths, the slots for an event are a quarter as many as its bytes, or up to twice as many. No key
# takes less than five bytes, with its colon, its value and what separates it from the next.
_BYTES_PER_SLOT: Final = 4
# Two words for each slot: the hash of a path, and its stamp.
UNKNOWN_WORDS: Final = 2

# A frame has in `frames`: the byte that closes it; the length of its path; the attribute of an array's elements,
# _UNKNOWN if nothing inside can be a leaf; the serial of an object. In `frame_words`: the state of its path and the
# incomplete last word. The path of an object ends with a dot, except that of the outermost one. Frame 0 has, instead of
# a length, the last slot of the table of unknown paths for this event.
FRAME_FIELDS: Final = 4
FRAME_WORDS: Final = 2
_LENGTH: Final = np.uint64(1)
_ATTRIBUTE: Final = np.uint64(2)
_SERIAL: Final = np.uint64(3)

# Values instead of an attribute, besides NO_ATTRIBUTE: no prefix of a known path; a repeated key.
_UNKNOWN: Final = -2
_REPEATED: Final = -3

_QUOTE: Final = 0x22
_COMMA: Final = 0x2C
_MINUS: Final = 0x2D
_DIGIT_0: Final = 0x30
_DIGIT_9: Final = 0x39
_COLON: Final = 0x3A
_OPEN_ARRAY: Final = 0x5B
_OPEN_OBJECT: Final = 0x7B
_CLOSE_OBJECT: Final = 0x7D
# A closing bracket is its opening bracket plus two.
_OPEN_TO_CLOSE: Final = 2

_BYTE_ORDER_MARK: Final = np.uint64(int.from_bytes(b"\xef\xbb\xbf", "little"))
_NULL_WORD: Final = np.uint64(int.from_bytes(b"null", "little"))
_TRUE_WORD: Final = np.uint64(int.from_bytes(b"true", "little"))
_FALSE_WORD: Final = np.uint64(int.from_bytes(b"false", "little"))
_NAN_WORD: Final = np.uint64(int.from_bytes(b"NaN", "little"))


class Scratch(NamedTuple):
    """The scratch of one thread for the parser."""

    powers: NDArray[np.uint64]  # of five, see json_number
    stamps: NDArray[np.int64]  # by slot of the path table
    frames: NDArray[np.int64]
    frame_words: NDArray[np.uint64]
    path: NDArray[np.uint64]  # the complete words of a path
    unknown: NDArray[np.uint64]  # a hash table of unknown paths; as long as an event, if there are `others`


class Statuses(NamedTuple):
    """The outcome of each event; `encoding/json_leaves.py` describes each column."""

    event_starts: NDArray[np.int64]
    statuses: NDArray[np.uint8]
    positions: NDArray[np.int64]


@kernel
def parse_events(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    path_hash: NDArray[np.int64],
    thread_scratch: NDArray[np.int64],
    outcome: Statuses,
    leaves: LeafColumns,
    first_event: int,
    n_texts: int,
    others: int,
) -> tuple[int, int]:
    """Parse the events from `first_event` on, until one might not fit in the arrays or lies outside the data.

    An event of n bytes has at most n / 2 leaves, n bytes of text and n bytes in a path. Paths and scratch come as
    handles (see `kernels/pointers.py`). Strings at unknown paths belong to the attribute `others`, unless that is
    NO_OTHERS.

    Returns
    -------
    tuple[int, int]
        The number of events that were parsed, and the end of the texts.
    """
    paths, scratch = arrays_at(path_hash, PathHash), arrays_at(thread_scratch, Scratch)
    return _parse_events(data, starts, ends, paths, scratch, outcome, leaves, first_event, n_texts, others)


@inline_kernel
def _parse_events(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    paths: PathHash,
    scratch: Scratch,
    outcome: Statuses,
    leaves: LeafColumns,
    first_event: int,
    n_texts: int,
    others: int,
) -> tuple[int, int]:
    """Parse as `parse_events` does, with arrays instead of handles."""
    event_starts, statuses, positions = outcome.event_starts, outcome.statuses, outcome.positions
    for event in range(first_event, starts.size):
        start = starts[event]
        end = ends[event]
        n_leaves = event_starts[event]
        if (
            start < 0
            or end < start
            or end > data.size
            or n_leaves + ((end - start) >> 1) >= leaves.attributes.size
            or n_texts + (end - start) + TEXT_MARGIN > leaves.texts.size
            or ((end - start) >> 3) >= scratch.path.size
            or (others != NO_OTHERS and end - start > scratch.unknown.size)
        ):
            return event, n_texts
        result, event_starts[event + 1], new_texts = _parse_event(
            data, start, end, paths, scratch, leaves, n_leaves, n_texts, others
        )
        if result >= 0:
            statuses[event] = OK
            positions[event] = 0
            n_texts = new_texts
        else:
            statuses[event] = BAD if is_bad(result) else SLOW
            positions[event] = failed_at(result) - start
            event_starts[event + 1] = n_leaves
    return starts.size, n_texts


@inline_kernel
def _parse_event(
    data: NDArray[np.uint8],
    position: int,
    end: int,
    paths: PathHash,
    scratch: Scratch,
    leaves: LeafColumns,
    n_leaves: int,
    n_texts: int,
    others: int,
) -> tuple[int, int, int]:
    """Parse one event; return the end of it or a failure, the number of leaves, and the end of the texts."""
    frames, frame_words, path = scratch.frames, scratch.frame_words, scratch.path
    if others != NO_OTHERS:
        frames[_LENGTH] = _last_slot(end - position)
    position = _open_event(data, position, end, frames, frame_words)
    depth = 1
    if position >= 0 and byte_at(data, position, end) == _CLOSE_OBJECT:
        position, depth = _read_separators(data, position, end, frames, depth)
    while position >= 0 and depth > 0:
        frame = np.uint64(FRAME_FIELDS * depth)
        attribute = frames[frame + _ATTRIBUTE]
        length = frames[frame + _LENGTH]
        state = frame_words[np.uint64(FRAME_WORDS * depth)]
        tail = frame_words[np.uint64(FRAME_WORDS * depth + 1)]
        if frames[frame] == _CLOSE_OBJECT:
            position, state, tail, length = _read_key(
                data, position, end, attribute, path, state, tail, length, leaves.texts, n_texts
            )
            if position < 0:
                break
            if attribute != _UNKNOWN:
                attribute = _look_up(paths, scratch, state, tail, length, frames[frame + _SERIAL], others)
                if attribute == _REPEATED:
                    position = slow(position)
                    break
        byte = byte_at(data, position, end)
        if byte in (_OPEN_OBJECT, _OPEN_ARRAY):
            depth += 1
            if depth * FRAME_FIELDS >= frames.size:
                position = slow(position)
                break
            _open_frame(frames, frame_words, path, depth, byte, attribute, state, tail, length)
            position = skip_space(data, position + 1, end)
            if byte_at(data, position, end) != byte + _OPEN_TO_CLOSE:
                continue
        else:
            if byte == _QUOTE and attribute < 0:
                attribute = others
            position, text_end = _read_scalar(data, position, end, scratch.powers, attribute, leaves, n_leaves, n_texts)
            if position < 0:
                break
            if attribute >= 0:
                n_leaves += 1
                n_texts = text_end
        position, depth = _read_separators(data, position, end, frames, depth)
    return position, n_leaves, n_texts


@inline_kernel
def _open_event(
    data: NDArray[np.uint8], position: int, end: int, frames: NDArray[np.int64], frame_words: NDArray[np.uint64]
) -> int:
    """Open the outermost object; return the position after its bracket, or a failure."""
    if low_bytes(load_word(data, position, end), 3) == _BYTE_ORDER_MARK:
        position += 3
    position = skip_space(data, position, end)
    if byte_at(data, position, end) != _OPEN_OBJECT:
        return bad(position)
    frames[_SERIAL] += 1
    frame = np.uint64(FRAME_FIELDS)
    frames[frame] = _CLOSE_OBJECT
    frames[frame + _LENGTH] = 0
    frames[frame + _ATTRIBUTE] = NO_ATTRIBUTE
    frames[frame + _SERIAL] = frames[_SERIAL]
    frame_words[np.uint64(FRAME_WORDS)] = HASH_SEED
    frame_words[np.uint64(FRAME_WORDS + 1)] = ZERO
    return skip_space(data, position + 1, end)


@inline_kernel
def _open_frame(
    frames: NDArray[np.int64],
    frame_words: NDArray[np.uint64],
    path: NDArray[np.uint64],
    depth: int,
    byte: int,
    attribute: int,
    state: np.uint64,
    tail: np.uint64,
    length: int,
) -> None:
    """Open an object or an array, whose opening bracket is `byte`, at the path of a key or of an array around it."""
    frame = np.uint64(FRAME_FIELDS * depth)
    if byte == _OPEN_OBJECT and attribute != _UNKNOWN:
        state, tail, length = extend_path(path, state, tail, length, DOT, 1)
        frames[_SERIAL] += 1
        frames[frame + _SERIAL] = frames[_SERIAL]
        attribute = NO_ATTRIBUTE
    frames[frame] = byte + _OPEN_TO_CLOSE
    frames[frame + _LENGTH] = length
    frames[frame + _ATTRIBUTE] = attribute
    frame_words[np.uint64(FRAME_WORDS * depth)] = state
    frame_words[np.uint64(FRAME_WORDS * depth + 1)] = tail


@inline_kernel
def _read_key(
    data: NDArray[np.uint8],
    position: int,
    end: int,
    attribute: int,
    path: NDArray[np.uint64],
    state: np.uint64,
    tail: np.uint64,
    length: int,
    texts: NDArray[np.uint8],
    n_texts: int,
) -> tuple[int, Any, Any, int]:
    """Read a key and its colon; return the position of the value, or a failure, and the path with the key."""
    if byte_at(data, position, end) != _QUOTE:
        return bad(position), state, tail, length
    word = load_word(data, position + 1, end)
    n_bytes = first_byte(string_stops(word))
    if n_bytes < 8 and byte_of(word, n_bytes) == _QUOTE:
        position += n_bytes + 2
        state, tail, length = extend_path(path, state, tail, length, low_bytes(word, n_bytes), n_bytes)
    else:
        position, text_end = decode_string(data, position + 1, end, texts, n_texts)
        if position < 0:
            return position, state, tail, length
        if attribute != _UNKNOWN:
            state, tail, length = _extend_by_text(path, state, tail, length, texts, n_texts, text_end)
    position = skip_space(data, position, end)
    if byte_at(data, position, end) != _COLON:
        return bad(position), state, tail, length
    return skip_space(data, position + 1, end), state, tail, length


@inline_kernel
def _extend_by_text(
    path: NDArray[np.uint64],
    state: np.uint64,
    tail: np.uint64,
    length: int,
    texts: NDArray[np.uint8],
    start: int,
    end: int,
) -> tuple[Any, Any, int]:
    for place in range(start, end, 8):
        word = load_word(texts, place, end)
        state, tail, length = extend_path(path, state, tail, length, word, min(8, end - place))
    return state, tail, length


@inline_kernel
def _look_up(
    paths: PathHash, scratch: Scratch, state: np.uint64, tail: np.uint64, length: int, serial: int, others: int
) -> Any:
    """Return the attribute of a path, NO_ATTRIBUTE for a prefix of a known path, _UNKNOWN, or _REPEATED.

    If strings at unknown paths are leaves, every path is as good as a prefix.
    """
    slot = find_path(paths.slots, paths.words, scratch.path, state, tail, length)
    if slot < 0:
        if others == NO_OTHERS:
            return np.int64(_UNKNOWN)
        return _stamp_unknown(scratch, finish_hash(state, tail, length), serial)
    if scratch.stamps[np.uint64(slot)] >= serial:
        return np.int64(_REPEATED)
    scratch.stamps[np.uint64(slot)] = serial
    return np.int64(attribute_of(paths.slots, slot))


@inline_kernel
def _last_slot(n_bytes: int) -> int:
    """Return the last slot of the table of unknown paths for an event."""
    n_slots = 4
    while n_slots * _BYTES_PER_SLOT < n_bytes:
        n_slots *= 2
    return n_slots - 1


@inline_kernel
def _stamp_unknown(scratch: Scratch, hashed: np.uint64, serial: int) -> Any:
    """Take note of an unknown path; return NO_ATTRIBUTE, or _REPEATED if it was read in this object before."""
    unknown, frames = scratch.unknown, scratch.frames
    last, oldest = np.uint64(frames[_LENGTH]), np.uint64(frames[np.uint64(FRAME_FIELDS) + _SERIAL])
    slot = hashed & last
    while unknown[(slot << ONE) + ONE] >= oldest:
        if unknown[slot << ONE] == hashed:
            if unknown[(slot << ONE) + ONE] >= np.uint64(serial):
                return np.int64(_REPEATED)
            break
        slot = (slot + ONE) & last
    unknown[slot << ONE] = hashed
    unknown[(slot << ONE) + ONE] = np.uint64(serial)
    return np.int64(NO_ATTRIBUTE)


@inline_kernel
def _read_scalar(
    data: NDArray[np.uint8],
    position: int,
    end: int,
    powers: NDArray[np.uint64],
    attribute: int,
    leaves: LeafColumns,
    n_leaves: int,
    n_texts: int,
) -> tuple[int, int]:
    """Write a number, string or literal as a leaf; return the position after it, or a failure, and the text's end."""
    kind = NULL
    number = np.float64(0.0)
    residual = np.int64(0)
    text_end = n_texts
    byte = byte_at(data, position, end)
    if _DIGIT_0 <= byte <= _DIGIT_9 or byte == _MINUS:
        if attribute >= 0:
            position, kind, number, residual = parse_number(data, position, end, powers)
        else:
            position = skip_number(data, position, end)
    elif byte == _QUOTE:
        kind = STRING
        position, text_end = decode_string(data, position + 1, end, leaves.texts, n_texts)
    else:
        position, kind = _read_literal(data, position, end)
    leaf = np.uint64(n_leaves)
    leaves.attributes[leaf] = np.int32(attribute)
    leaves.kinds[leaf] = np.uint8(kind)
    leaves.numbers[leaf] = number
    leaves.residuals[leaf] = residual
    leaves.text_starts[leaf] = n_texts
    leaves.text_ends[leaf] = text_end
    return position, text_end


@inline_kernel
def _read_literal(data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Read null, true, false, NaN or Infinity; return the position after it, or a failure, and its kind."""
    word = load_word(data, position, end)
    four = low_bytes(word, 4)
    if four == _NULL_WORD:
        return position + 4, NULL
    if four == _TRUE_WORD:
        return position + 4, TRUE
    if low_bytes(word, 5) == _FALSE_WORD:
        return position + 5, FALSE
    if low_bytes(word, 3) == _NAN_WORD:
        return position + 3, NULL
    return skip_infinity(data, position, end), NULL


@inline_kernel
def _read_separators(
    data: NDArray[np.uint8], position: int, end: int, frames: NDArray[np.int64], depth: int
) -> tuple[int, int]:
    """Read closing brackets and a comma; return the position of the next key or value, or a failure, and the depth.

    At depth 0 the event is complete.
    """
    while True:
        position = skip_space(data, position, end)
        byte = byte_at(data, position, end)
        if byte == _COMMA:
            return skip_space(data, position + 1, end), depth
        if byte != frames[np.uint64(FRAME_FIELDS * depth)]:
            return bad(position), depth
        position += 1
        depth -= 1
        if depth == 0:
            position = skip_space(data, position, end)
            return (position if position == end else bad(position)), depth
