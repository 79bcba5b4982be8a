"""All strings of JSON objects, whatever their paths, for texts that the parser has found to be in order.

Only the last of several values under one key counts, so a key that is there twice makes an event SLOW. Keys are known
by hashes of 64 bits of their bytes and of the number of their object; two keys with the same hash count as one, which
costs time and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.json_leaves import OK, SLOW, STRING
from siftline.kernels.json_string import decode_string
from siftline.kernels.json_words import byte_at, load_word, skip_space
from siftline.kernels.pointers import arrays_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.json_leaves import Statuses
    from siftline.kernels.leaves import LeafColumns

_QUOTE: Final = 0x22
_COLON: Final = 0x3A
_OPEN_ARRAY: Final = 0x5B
_OPEN_OBJECT: Final = 0x7B
_CLOSE_ARRAY: Final = 0x5D
_CLOSE_OBJECT: Final = 0x7D
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)


class KeyScratch(NamedTuple):
    """The scratch of one thread for finding keys that are there twice."""

    events: NDArray[np.int64]  # by slot of a hash table: the number of the event that took it last
    hashes: NDArray[np.uint64]
    objects: NDArray[np.int64]  # by depth: the number of the object in its event
    serials: NDArray[np.int64]  # the number of the event


@kernel
def read_strings(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    outcome: Statuses,
    strings: LeafColumns,
    thread_scratch: NDArray[np.int64],
) -> int:
    """Write the strings of events, whose statuses become OK or SLOW; return the end of the texts.

    There must be room for all bytes of the events, a third as many strings, and in the hash table for the bytes of the
    longest event.
    """
    scratch = arrays_at(thread_scratch, KeyScratch)
    n_texts = 0
    for event in range(len(starts)):
        first = outcome.event_starts[event]
        n_strings, n_new = _read_event(data, starts[event], ends[event], strings, scratch, first, n_texts)
        outcome.statuses[event] = OK if n_strings >= 0 else SLOW
        outcome.event_starts[event + 1] = first + max(n_strings, 0)
        if n_strings >= 0:
            n_texts = n_new
    return n_texts


@inline_kernel
def _read_event(
    data: NDArray[np.uint8],
    position: Any,
    end: Any,
    strings: LeafColumns,
    scratch: KeyScratch,
    first: Any,
    n_texts: Any,
) -> tuple[Any, Any]:
    """Write the strings of one event; return how many there are, -1 if it is SLOW, and the end of the texts."""
    scratch.serials[0] += 1
    depth, n_objects, n = 0, 0, 0
    while position < end:
        byte = byte_at(data, position, end)
        if byte == _QUOTE:
            position, text_end = decode_string(data, position + 1, end, strings.texts, n_texts)
            if position < 0:
                return -1, n_texts
            position = skip_space(data, position, end)
            if byte_at(data, position, end) == _COLON:
                if _is_repeated(strings.texts, n_texts, text_end, scratch.objects[depth], scratch):
                    return -1, n_texts
                continue
            strings.kinds[first + n] = STRING
            strings.text_starts[first + n], strings.text_ends[first + n] = n_texts, text_end
            n_texts = text_end
            n += 1
            continue
        if byte in (_OPEN_OBJECT, _OPEN_ARRAY):
            depth += 1
            n_objects += 1
            if depth >= len(scratch.objects):
                return -1, n_texts
            scratch.objects[depth] = n_objects
        elif byte in (_CLOSE_OBJECT, _CLOSE_ARRAY):
            depth -= 1
        position += 1
    return n, n_texts


@inline_kernel
def _is_repeated(texts: NDArray[np.uint8], start: Any, end: Any, number: Any, scratch: KeyScratch) -> bool:
    """Enter a key of an object; return whether it was there already."""
    mixed = (np.uint64(number) + np.uint64(end - start) * _MIX) * _MIX
    for position in range(start, end, 8):
        mixed = (mixed ^ (mixed >> _HALF) ^ load_word(texts, position, end)) * _MIX
    mixed ^= mixed >> _HALF
    mask = len(scratch.events) - 1
    place = np.int64(mixed & np.uint64(mask))
    while scratch.events[place] == scratch.serials[0]:
        if scratch.hashes[place] == mixed:
            return True
        place = (place + 1) & mask
    scratch.events[place] = scratch.serials[0]
    scratch.hashes[place] = mixed
    return False
