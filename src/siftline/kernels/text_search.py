r"""Searching strings for many literal texts at once: one pass over the bytes, however many texts there are.

Each literal is filed under one *gram* of it: four bytes of it, or all of it if it is shorter. A pass looks at every
place of a string, and asks a small bit set whether any literal of the attribute has the gram that begins there. Few
places pass; there, the literals of the gram are compared byte by byte.

    literals of attribute 7     powershell    \cmd.exe    rundll32
    filed under                 "wers"        "cmd."      "dll3"
    C:\Windows\cmd.exe         at "cmd.": the literal \cmd.exe begins one byte earlier, and is there

A literal is filed under the gram that the fewest other literals have. Where a literal is found, its *targets* are
reported, each once for an event. A target can ask for more than its literal: a wildcard pattern is tested here, a
regular expression is left to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.json_words import HIGH_BITS, ZERO, load_word, low_bytes, store_word
from siftline.kernels.pointers import arrays_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.leaves import LeafColumns

# The longest gram; shorter literals are filed under all of their bytes.
GRAM_MAX: Final = 4
# Where a literal must stand in a string.
AT_START: Final = 1
AT_END: Final = 2
# What a target asks beside its literal: nothing, what the caller finds out, or the wildcard pattern of a number.
NO_TEST: Final = -1
OPEN_TEST: Final = -2
# Bytes of a wildcard pattern that stand for any code point, and for any text; UTF-8 has neither.
ANY_CHARACTER: Final = 0xFF
ANY_TEXT: Final = 0xFE
# Bytes behind a string that the search may read.
MARGIN: Final = 16
# Folding changes the length of a character from two bytes to three at most.
FOLDED_GROWTH: Final = 2

_STRING: Final = 4
# The number of an attribute and a form, its *owner*, is twice the attribute plus two, and one more if folded. Those of
# the attribute -1 are for literals that any string may have.
_ALL_STRINGS: Final = 0
_FIRST_UPPER: Final = np.uint64(0x3F3F3F3F3F3F3F3F)  # 0x80 - "A", for each byte
_BEHIND_UPPER: Final = np.uint64(0x2525252525252525)  # 0x80 - "Z" - 1
_TO_LOWER: Final = np.uint64(2)  # 0x80 shifted by this is 0x20
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_OWNER: Final = np.uint64(34)
_SIZE: Final = np.uint64(32)
_GRAM_BYTES: Final = np.uint64(0xFFFFFFFF)
_WORD_BITS: Final = np.uint64(63)
_FIRST_BIT: Final = np.uint64(26)
_SECOND_BIT: Final = np.uint64(32)
_ONE: Final = np.uint64(1)


class SearchTable(NamedTuple):
    """Literals in the order of their keys, and how they are found."""

    shifts: NDArray[np.uint64]  # of a hash, for `bits` and for `slots`
    bits: NDArray[np.uint64]  # two in a word for each hash that some literal has
    slots: NDArray[np.int32]  # by hash, with open addressing: the first literal of a key; -1: none
    keys: NDArray[np.uint64]  # of each literal, see `gram_key`
    offsets: NDArray[np.int32]  # where in a literal its gram begins
    text_starts: NDArray[np.int64]
    texts: NDArray[np.uint8]
    anchors: NDArray[np.uint8]
    target_starts: NDArray[np.int32]  # one more than literals
    targets: NDArray[np.int32]
    tests: NDArray[np.int32]  # of each target
    pattern_starts: NDArray[np.int32]
    patterns: NDArray[np.uint8]  # wildcards
    sizes: NDArray[np.uint8]  # by attribute and form: bit n - 1 is set if there are grams of n bytes
    always_starts: NDArray[np.int32]  # by attribute and form: targets that need no literal
    always: NDArray[np.int32]
    always_tests: NDArray[np.int32]


class SearchScratch(NamedTuple):
    """What one thread keeps for the search."""

    text: NDArray[np.uint8]  # room for the longest string, folded
    stamps: NDArray[np.int64]  # by target: the event in which it was found last
    open_stamps: NDArray[np.int64]  # by target: the leaf in which it was left open last
    folded: NDArray[np.int32]  # by code point; empty until it is needed
    serials: NDArray[np.int64]  # of the event and of the leaf; they only grow


class Found(NamedTuple):
    """What a search has found: the targets of each event, and those that the caller has to test."""

    starts: NDArray[np.int64]  # one more than events
    targets: NDArray[np.int32]
    open_starts: NDArray[np.int64]  # one more than events
    open_leaves: NDArray[np.int64]
    open_targets: NDArray[np.int32]


@inline_kernel
def gram_key(owner: Any, gram: Any, size: int) -> Any:
    """Return what a literal is filed under: its attribute and form, the bytes of its gram, and how many they are."""
    return (np.uint64(owner) << _OWNER) | (np.uint64(size - 1) << _SIZE) | gram


@inline_kernel
def _gram(texts: NDArray[np.uint8], position: int, size: int) -> Any:
    gram = ZERO
    for k in range(size):
        gram |= np.uint64(texts[np.uint64(position + k)]) << np.uint64(8 * k)
    return gram


@inline_kernel
def _two_bits(mixed: Any) -> Any:
    """Return two bits of a word of the bit set, by bits of a hash that do not choose the word."""
    return (_ONE << ((mixed >> _FIRST_BIT) & _WORD_BITS)) | (_ONE << ((mixed >> _SECOND_BIT) & _WORD_BITS))


@kernel
def file_literals(
    texts: NDArray[np.uint8], starts: NDArray[np.int64], owners: NDArray[np.int64], n_bits: int
) -> tuple[Any, Any]:
    """Return the key of each literal and where its gram begins: the one that the fewest literals have."""
    counts = np.zeros(1 << n_bits, dtype=np.int32)
    shift = np.uint64(64 - n_bits)
    n = len(owners)
    for i in range(n):
        size = min(starts[i + 1] - starts[i], GRAM_MAX)
        for position in range(starts[i], starts[i + 1] - size + 1):
            key = gram_key(owners[i], _gram(texts, position, size), size)
            counts[(key * _MIX) >> shift] += 1
    keys, offsets = np.empty(n, dtype=np.uint64), np.empty(n, dtype=np.int32)
    for i in range(n):
        size = min(starts[i + 1] - starts[i], GRAM_MAX)
        fewest = -1
        for position in range(starts[i], starts[i + 1] - size + 1):
            key = gram_key(owners[i], _gram(texts, position, size), size)
            count = counts[(key * _MIX) >> shift]
            if fewest < 0 or count < fewest:
                fewest = count
                keys[i], offsets[i] = key, position - starts[i]
    return keys, offsets


@kernel
def enter_literals(
    keys: NDArray[np.uint64], shifts: NDArray[np.uint64], bits: NDArray[np.uint64], slots: NDArray[np.int32]
) -> None:
    """Enter literals, which are in the order of their keys, into the bit set and the table."""
    mask = len(slots) - 1
    for i in range(len(keys)):
        if i and keys[i] == keys[i - 1]:
            continue
        mixed = keys[i] * _MIX
        bits[mixed >> shifts[0]] |= _two_bits(mixed)
        place = np.int64(mixed >> shifts[1])
        while slots[place] >= 0:
            place = (place + 1) & mask
        slots[place] = i


# one string


@inline_kernel
def _lower(word: Any) -> Any:
    """Return eight ASCII bytes in lower case."""
    is_upper = ((word + _FIRST_UPPER) ^ (word + _BEHIND_UPPER)) & HIGH_BITS
    return word | (is_upper >> _TO_LOWER)


@inline_kernel
def _copy(texts: NDArray[np.uint8], start: int, end: int, to: NDArray[np.uint8]) -> Any:
    """Copy a string, and zeros behind it; return its length."""
    n = end - start
    for k in range(0, n + 8, 8):
        store_word(to, k, load_word(texts, start + k, end) if k < n else ZERO)
    return n


@inline_kernel
def fold_text(texts: NDArray[np.uint8], start: int, end: int, to: NDArray[np.uint8], folded: NDArray[np.int32]) -> Any:
    """Write a string with simple case folding, and zeros behind it; return its length.

    The table `folded` has the folded form of each code point. If it is empty and needed, the result is -1.
    """
    n = end - start
    for k in range(0, n, 8):
        word = load_word(texts, start + k, end)
        if word & HIGH_BITS:
            return _fold_characters(texts, start + k, end, k, to, folded)
        store_word(to, k, _lower(word))
    store_word(to, n, ZERO)
    return n


@inline_kernel
def _fold_characters(
    texts: NDArray[np.uint8],
    position: int,
    end: int,
    n_written: int,
    to: NDArray[np.uint8],
    folded: NDArray[np.int32],
) -> Any:
    """Write the rest of a string, code point by code point; return the length of all, -1 if there is no table."""
    if not len(folded):
        return -1
    n = n_written
    while position < end:
        lead = np.int64(texts[position])
        size = character_size(lead)
        if size == 1 or position + size > end:
            to[n] = folded[lead] if lead < 128 else lead
            position += 1
            n += 1
            continue
        character = lead & (0x7F >> size)
        for k in range(1, size):
            character = (character << 6) | (np.int64(texts[position + k]) & 0x3F)
        position += size
        if character < len(folded):
            character = np.int64(folded[character])
        n = _write_character(to, n, character)
    store_word(to, n, ZERO)
    return n


@inline_kernel
def character_size(lead: Any) -> Any:
    """Return how many bytes a code point has, given the first."""
    if lead < 0xC0:
        return 1
    if lead < 0xE0:
        return 2
    return 3 if lead < 0xF0 else 4


@inline_kernel
def _write_character(to: NDArray[np.uint8], n: int, character: Any) -> Any:
    if character < 0x80:
        to[n] = character
        return n + 1
    size = 2 if character < 0x800 else 3 if character < 0x10000 else 4
    for k in range(size - 1, 0, -1):
        to[n + k] = 0x80 | (character & 0x3F)
        character >>= 6
    to[n] = ((0xF00 >> size) & 0xFF) | character
    return n + size


@inline_kernel
def _stands_at(table: SearchTable, literal: Any, text: NDArray[np.uint8], n: int, start: Any) -> Any:
    """Return whether a literal stands at a place of a string of n bytes."""
    position, end = table.text_starts[literal], table.text_starts[literal + 1]
    size = end - position
    if start < 0 or start + size > n:
        return False
    anchors = table.anchors[literal]
    if (anchors & AT_START and start != 0) or (anchors & AT_END and start + size != n):
        return False
    while position < end:
        here, there = load_word(table.texts, position, end), load_word(text, start, len(text))
        if end - position < 8:
            there = low_bytes(there, end - position)
        if here != there:
            return False
        position += 8
        start += 8
    return True


@inline_kernel
def is_like(patterns: NDArray[np.uint8], first: Any, last: Any, text: NDArray[np.uint8], n: int) -> Any:
    """Return whether a string fits patterns[first:last] as a whole, trying each ANY_TEXT as short as possible."""
    p, i = first, 0
    retry, retried = -1, 0
    while i < n:
        wanted = patterns[p] if p < last else 0
        if p < last and wanted == ANY_TEXT:
            p += 1
            retry, retried = p, i
        elif p < last and wanted == ANY_CHARACTER:
            p += 1
            i += character_size(np.int64(text[i]))
        elif p < last and wanted == text[i]:
            p += 1
            i += 1
        elif retry >= 0:
            retried += character_size(np.int64(text[retried]))
            p, i = retry, retried
        else:
            return False
    while p < last and patterns[p] == ANY_TEXT:
        p += 1
    return i == n and p == last


# all strings


@inline_kernel
def _report(
    table: SearchTable,
    k: Any,
    targets: NDArray[np.int32],
    tests: NDArray[np.int32],
    n: int,
    leaf: int,
    scratch: SearchScratch,
    found: Found,
    counts: tuple[int, int],
) -> Any:
    """Take one target into what was found, unless it is there already; return how many there are, and how many open."""
    target, test = targets[k], tests[k]
    n_found, n_open = counts
    if scratch.stamps[target] == scratch.serials[0]:
        return n_found, n_open
    if test == OPEN_TEST:
        if scratch.open_stamps[target] != scratch.serials[1]:
            scratch.open_stamps[target] = scratch.serials[1]
            found.open_leaves[n_open], found.open_targets[n_open] = leaf, target
            n_open += 1
        return n_found, n_open
    if test >= 0 and not is_like(
        table.patterns, table.pattern_starts[test], table.pattern_starts[test + 1], scratch.text, n
    ):
        return n_found, n_open
    scratch.stamps[target] = scratch.serials[0]
    found.targets[n_found] = target
    return n_found + 1, n_open


@inline_kernel
def _search(
    table: SearchTable,
    owner: Any,
    n: int,
    leaf: int,
    scratch: SearchScratch,
    found: Found,
    counts: tuple[int, int],
) -> Any:
    """Search the string in the scratch, of n bytes, for the literals of an attribute in one form."""
    text, bits, slots = scratch.text, table.bits, table.slots
    word_shift, slot_shift, mask = table.shifts[0], table.shifts[1], len(table.slots) - 1
    for k in range(table.always_starts[owner], table.always_starts[owner + 1]):
        counts = _report(table, k, table.always, table.always_tests, n, leaf, scratch, found, counts)
    sizes = table.sizes[owner]
    for size in range(1, GRAM_MAX + 1):
        if not (sizes >> (size - 1)) & 1:
            continue
        prefix = gram_key(owner, ZERO, size)
        kept = _GRAM_BYTES >> np.uint64(8 * (GRAM_MAX - size))
        for position in range(n - size + 1):
            key = prefix | (load_word(text, position, len(text)) & kept)
            mixed = key * _MIX
            wanted = _two_bits(mixed)
            if bits[mixed >> word_shift] & wanted != wanted:
                continue
            place = np.int64(mixed >> slot_shift)
            while slots[place] >= 0 and table.keys[slots[place]] != key:
                place = (place + 1) & mask
            literal = np.int64(slots[place])
            while 0 <= literal < len(table.keys) and table.keys[literal] == key:
                if _stands_at(table, literal, text, n, position - table.offsets[literal]):
                    for k in range(table.target_starts[literal], table.target_starts[literal + 1]):
                        counts = _report(table, k, table.targets, table.tests, n, leaf, scratch, found, counts)
                literal += 1
    return counts


@kernel
def search_leaves(
    leaves: LeafColumns,
    event_starts: NDArray[np.int64],
    search_table: NDArray[np.int64],
    thread_scratch: NDArray[np.int64],
    found: Found,
    first_event: int,
) -> int:
    """Search the strings of events from `first_event` on; return the event that might not fit, or needs the table.

    Each is searched for the literals of its attribute, and for those that any string may have.
    The result is the number of events when all are done; -1 - event if the table of folded characters is missing.
    `found` must have room for all targets, for one event.
    """
    table, scratch = arrays_at(search_table, SearchTable), arrays_at(thread_scratch, SearchScratch)
    n_targets, n_owners = len(table.targets) + len(table.always), len(table.sizes)
    for event in range(first_event, len(event_starts) - 1):
        n_found, n_open = found.starts[event], found.open_starts[event]
        if n_found + n_targets > len(found.targets):
            return event
        counts = n_found, n_open
        scratch.serials[0] += 1
        for leaf in range(event_starts[event], event_starts[event + 1]):
            own = 2 * (np.int64(leaves.attributes[leaf]) + 1)
            if leaves.kinds[leaf] != _STRING:
                continue
            if counts[1] + n_targets > len(found.open_targets):
                return event
            scratch.serials[1] += 1
            start, end = leaves.text_starts[leaf], leaves.text_ends[leaf]
            for k in range(2 if own == _ALL_STRINGS else 4):
                form = k & 1
                owner = own if k < 2 else _ALL_STRINGS
                if owner >= n_owners:
                    continue
                has_any = table.always_starts[owner + form] < table.always_starts[owner + form + 1]
                if not (table.sizes[owner + form] or has_any):
                    continue
                if form:
                    n = fold_text(leaves.texts, start, end, scratch.text, scratch.folded)
                else:
                    n = _copy(leaves.texts, start, end, scratch.text)
                if n < 0:
                    return -1 - event
                counts = _search(table, owner + form, n, leaf, scratch, found, counts)
        found.starts[event + 1], found.open_starts[event + 1] = counts
    return len(event_starts) - 1
