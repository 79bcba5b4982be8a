r"""Searching strings for many literal texts at once: one pass over the bytes, however many texts there are.

Each literal is filed under one *gram* of it: a few bytes of it, or all of it if it is shorter. A pass looks at the
places of a string, and asks a small bit set whether any literal of the attribute has the gram that begins there. Few
places pass; there, the literals of the gram are compared byte by byte.

    literals of attribute 7     powershell    \cmd.exe    rundll32
    filed under                 "wers"        "cmd."      "dll3"
    C:\Windows\cmd.exe         at "cmd.": the literal \cmd.exe begins one byte earlier, and is there

Literals that are long enough let a pass take longer steps: filed under three grams that follow each other, a literal is
found at every third place, wherever it stands. `encoding/patterns.py` chooses the passes of each attribute and form. A
literal is filed under those grams that the fewest other literals have.

Where a literal is found, its *targets* are reported, each once for an event. A target can ask for more than its
literal: a wildcard pattern is tested here, a regular expression is left to the caller. Networks are targets of another
kind (`networks.py`), of strings that are addresses.

The events of a batch have many strings in common. Each different string of an attribute is searched once, as long as
there is room to remember what was found in it; nothing is remembered from one call to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import numpy as np

from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.json_words import HIGH_BITS, LOW_BITS, ZERO, first_byte, load_word, low_bytes, store_word
from siftline.kernels.networks import END, FIRST, HOST_BITS, MAYBE_IPV6, NO_ADDRESS, Networks, first_key, read_ipv4
from siftline.kernels.pointers import arrays_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.kernels.leaves import LeafColumns

# The longest gram; shorter literals are filed under all of their bytes.
GRAM_MAX: Final = 4
# Where a literal must stand in a string.
AT_START: Final = 1
AT_END: Final = 2
# What a target asks beside its literal: nothing, what the caller finds out, or the wildcard pattern of a number. What
# is below OPEN_TEST by some number is left to the caller as well, if the string has at least as many bytes.
NO_TEST: Final = -1
OPEN_TEST: Final = -2
# Bytes of a wildcard pattern that stand for any code point, and for any text; UTF-8 has neither.
ANY_CHARACTER: Final = 0xFF
ANY_TEXT: Final = 0xFE
# Bytes behind a string that the search may read.
MARGIN: Final = 16
# Folding changes the length of a character from two bytes to three at most.
FOLDED_GROWTH: Final = 2

# Tests from this one on are automata of regular expressions, by their numbers.
FIRST_AUTOMATON: Final = 1 << 24
# Symbols of automata: ASCII, anything else, and a few other characters that each of them names.
OTHER: Final = 128
N_NAMED: Final = 6
N_SYMBOLS: Final = OTHER + 1 + N_NAMED

# Columns of a pass: how many bytes a gram has, from which place to the next it goes, where its bit set begins and by
# how much a hash is shifted to choose a word of it, and the same of its table of slots.
GRAM_SIZE: Final = 0
STEP: Final = 1
FIRST_WORD: Final = 2
WORD_SHIFT: Final = 3
FIRST_SLOT: Final = 4
SLOT_SHIFT: Final = 5
PASS_COLUMNS: Final = 6

# Words of `serials`: of the event, of the string, of the block of strings that are remembered; where their targets end
# in `hits`, and how many strings are remembered; how many strings there were, how many of them were searched, and how
# many tests the caller made.
EVENT: Final = 0
STRING: Final = 1
BLOCK: Final = 2
N_HITS: Final = 3
N_REMEMBERED: Final = 4
N_STRINGS: Final = 5
N_SEARCHED: Final = 6
N_TESTS: Final = 7
N_SERIALS: Final = 8

# Slots of the table of strings that are remembered, a power of two, and the words of each: block, hash, leaf, and where
# the targets of the string begin and end in `hits`. Half of the slots are used.
REMEMBERED_SLOTS: Final = 2048
REMEMBERED_WORDS: Final = 8
# For `remembered_min`: no string is so long.
NEVER_REMEMBERED: Final = 1 << 62

_STRING: Final = 4
# The number of an attribute and a form, its *owner*, is twice the attribute plus two, and one more if folded. Those of
# the attribute -1 are for literals that any string may have. The attribute plus one is its *place*.
_ALL_STRINGS: Final = 0
_FIRST_UPPER: Final = np.uint64(0x3F3F3F3F3F3F3F3F)  # 0x80 - "A", for each byte
_BEHIND_UPPER: Final = np.uint64(0x2525252525252525)  # 0x80 - "Z" - 1
_TO_LOWER: Final = np.uint64(2)  # 0x80 shifted by this is 0x20
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_GRAM_BYTES: Final = np.uint64(0xFFFFFFFF)
_WORD_BITS: Final = np.uint64(63)
_FIRST_BIT: Final = np.uint64(26)
_SECOND_BIT: Final = np.uint64(32)
_ONE: Final = np.uint64(1)
_HALF: Final = np.uint64(32)
# Longer strings are not remembered: few of them repeat, and to hash them takes time.
_REMEMBERED_MAX_BYTES: Final = 512
# So many single bytes are looked for one by one, eight places at a time; more of them in a pass.
_FEW_BYTES: Final = 16


class Automata(NamedTuple):
    """Deterministic automata of regular expressions, see `encoding/regex_automata.py`."""

    classes: NDArray[np.uint8]  # N_SYMBOLS of each
    named: NDArray[np.int32]  # N_NAMED characters beyond ASCII of each, or -1
    widths: NDArray[np.int64]  # how many classes each has
    step_starts: NDArray[np.int64]
    steps: NDArray[np.int16]  # by state and class; negative: there is a match
    end_starts: NDArray[np.int64]
    matches_at_end: NDArray[np.bool_]  # by state


class SearchTable(NamedTuple):
    """Literals, and how they are found: entries in the order of their passes and grams."""

    pass_starts: NDArray[np.int32]  # one more than owners
    passes: Annotated[NDArray[np.int64], PASS_COLUMNS]
    pass_entries: NDArray[np.int64]  # one more than passes
    bits: NDArray[np.uint64]  # of each pass: two in a word for each hash that some entry has
    slots: NDArray[np.int32]  # of each pass: by hash, with open addressing: the first entry of a gram; -1: none
    grams: NDArray[np.uint32]  # of each entry
    entry_literals: NDArray[np.int32]
    offsets: NDArray[np.int32]  # where in its literal the gram of an entry begins
    text_starts: NDArray[np.int64]  # of literals
    texts: NDArray[np.uint8]
    anchors: NDArray[np.uint8]
    target_starts: NDArray[np.int32]  # one more than literals
    targets: NDArray[np.int32]
    tests: NDArray[np.int32]  # of each target
    pattern_starts: NDArray[np.int32]
    patterns: NDArray[np.uint8]  # wildcards
    always_starts: NDArray[np.int32]  # by owner: targets that need no literal
    always: NDArray[np.int32]
    always_tests: NDArray[np.int32]
    is_searched: NDArray[np.bool_]  # by owner: whether there is anything to look for
    networks: Networks
    automata: Automata


class SearchScratch(NamedTuple):
    """What one thread keeps for the search."""

    text: NDArray[np.uint8]  # room for the longest string, folded
    stamps: NDArray[np.int64]  # by target: the event in which it was found last
    string_stamps: NDArray[np.int64]  # by target: the string in which it was found, or left open, last
    folded: NDArray[np.int32]  # by code point; empty until it is needed
    serials: NDArray[np.int64]  # see above
    hits: NDArray[np.int32]  # the targets of the strings that are remembered; -1 - target if it is open
    remembered: NDArray[np.int64]


class Found(NamedTuple):
    """What a search has found: the targets of each event, and those that the caller has to test."""

    starts: NDArray[np.int64]  # one more than events
    targets: NDArray[np.int32]
    open_starts: NDArray[np.int64]  # one more than events
    open_leaves: NDArray[np.int64]  # of several leaves with the same string, any
    open_targets: NDArray[np.int32]


@inline_kernel
def _gram(texts: NDArray[np.uint8], position: Any, size: Any) -> Any:
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
    texts: NDArray[np.uint8],
    starts: NDArray[np.int64],
    pass_numbers: NDArray[np.int64],
    sizes: NDArray[np.int64],
    steps: NDArray[np.int64],
    n_bits: int,
) -> Any:
    """Return where in each literal the grams begin under which it is filed: those that the fewest literals have.

    A literal of pass p has grams of sizes[p] bytes, and of these steps[p] that follow each other.
    """
    counts = np.zeros(1 << n_bits, dtype=np.int32)
    shift = np.uint64(64 - n_bits)
    n = len(pass_numbers)
    for i in range(n):
        size, salt = sizes[pass_numbers[i]], np.uint64(pass_numbers[i]) << _HALF
        for position in range(starts[i], starts[i + 1] - size + 1):
            counts[((_gram(texts, position, size) | salt) * _MIX) >> shift] += 1
    offsets = np.empty(n, dtype=np.int32)
    for i in range(n):
        size, step, salt = sizes[pass_numbers[i]], steps[pass_numbers[i]], np.uint64(pass_numbers[i]) << _HALF
        fewest = np.int64(-1)
        for position in range(starts[i], starts[i + 1] - size - step + 2):
            count = np.int64(0)
            for k in range(step):
                count += counts[((_gram(texts, position + k, size) | salt) * _MIX) >> shift]
            if fewest < 0 or count < fewest:
                fewest = count
                offsets[i] = position - starts[i]
    return offsets


@kernel
def list_entries(
    texts: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    steps: NDArray[np.int64],
    offsets: NDArray[np.int32],
    entries: tuple[NDArray[np.uint32], NDArray[np.int32], NDArray[np.int32]],
) -> None:
    """Write the grams of all entries, their literals, and where the grams begin; sizes and steps are of literals."""
    grams, literals, places = entries
    n = 0
    for i in range(len(offsets)):
        for k in range(steps[i]):
            grams[n] = np.uint32(_gram(texts, starts[i] + offsets[i] + k, sizes[i]))
            literals[n], places[n] = i, offsets[i] + k
            n += 1


@kernel
def enter_grams(
    grams: NDArray[np.uint32],
    pass_entries: NDArray[np.int64],
    passes: NDArray[np.int64],
    bits: NDArray[np.uint64],
    slots: NDArray[np.int32],
) -> None:
    """Enter the entries of each pass, which are in the order of their grams, into its bit set and its table."""
    for p in range(len(passes)):
        word_shift, slot_shift = np.uint64(passes[p, WORD_SHIFT]), np.uint64(passes[p, SLOT_SHIFT])
        mask = (np.int64(1) << (64 - passes[p, SLOT_SHIFT])) - 1
        for i in range(pass_entries[p], pass_entries[p + 1]):
            if i > pass_entries[p] and grams[i] == grams[i - 1]:
                continue
            mixed = np.uint64(grams[i]) * _MIX
            bits[passes[p, FIRST_WORD] + np.int64(mixed >> word_shift)] |= _two_bits(mixed)
            place = np.int64(mixed >> slot_shift)
            while slots[passes[p, FIRST_SLOT] + place] >= 0:
                place = (place + 1) & mask
            slots[passes[p, FIRST_SLOT] + place] = i


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
def _stands_at(table: SearchTable, literal: Any, text: NDArray[np.uint8], n: Any, start: Any) -> Any:
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
def is_like(patterns: NDArray[np.uint8], first: Any, last: Any, text: NDArray[np.uint8], n: Any) -> Any:
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


class Raw(NamedTuple):
    """A string as it is."""

    texts: NDArray[np.uint8]
    start: Any
    end: Any


@inline_kernel
def is_matched(automata: Automata, number: Any, raw: Raw) -> Any:
    """Return whether an automaton finds a match in a string."""
    texts, position = raw.texts, raw.start
    width, classes = automata.widths[number], number * N_SYMBOLS
    row = automata.step_starts[number]
    state = np.int64(0)
    while position < raw.end:
        symbol = np.int64(texts[np.uint64(position)])
        position += 1
        if symbol >= OTHER:
            symbol, position = _beyond_ascii(automata, number, raw, position - 1)
        state = np.int64(automata.steps[np.uint64(row + state * width + automata.classes[np.uint64(classes + symbol)])])
        if state < 0:
            return True
    return automata.matches_at_end[automata.end_starts[number] + state]


@inline_kernel
def _beyond_ascii(automata: Automata, number: Any, raw: Raw, position: Any) -> Any:
    """Return the symbol of a character that is not ASCII, and the position behind it."""
    lead = np.int64(raw.texts[np.uint64(position)])
    size = character_size(lead)
    end = min(raw.end, position + size)
    character = lead & (0x7F >> size)
    for place in range(position + 1, end):
        character = (character << 6) | (np.int64(raw.texts[np.uint64(place)]) & 0x3F)
    for k in range(N_NAMED):
        if automata.named[number * N_NAMED + k] == character:
            return np.int64(OTHER + 1 + k), end
    return np.int64(OTHER), end


@inline_kernel
def _report(table: SearchTable, target: Any, test: Any, n: Any, raw: Raw, scratch: SearchScratch) -> None:
    """Take one target of a string, in the scratch of n bytes, into `hits`, unless it is there already."""
    serials, stamps = scratch.serials, scratch.string_stamps
    if stamps[target] == serials[STRING]:
        return
    if test < OPEN_TEST and n < OPEN_TEST - test:
        return
    if test >= FIRST_AUTOMATON:
        if not is_matched(table.automata, test - FIRST_AUTOMATON, raw):
            stamps[target] = serials[STRING]  # it asks for nothing else
            return
    elif test >= 0 and not is_like(
        table.patterns, table.pattern_starts[test], table.pattern_starts[test + 1], scratch.text, n
    ):
        return
    stamps[target] = serials[STRING]
    scratch.hits[serials[N_HITS]] = -1 - target if test <= OPEN_TEST else target
    serials[N_HITS] += 1


@inline_kernel
def _report_all(table: SearchTable, literal: Any, n: Any, raw: Raw, scratch: SearchScratch) -> None:
    for k in range(table.target_starts[literal], table.target_starts[literal + 1]):
        _report(table, table.targets[k], table.tests[k], n, raw, scratch)


@inline_kernel
def _search(table: SearchTable, owner: Any, n: Any, raw: Raw, scratch: SearchScratch) -> None:
    """Search the string in the scratch, of n bytes, for the literals of an attribute in one form."""
    for k in range(table.always_starts[owner], table.always_starts[owner + 1]):
        _report(table, table.always[k], table.always_tests[k], n, raw, scratch)
    for p in range(table.pass_starts[owner], table.pass_starts[owner + 1]):
        if table.passes[p, GRAM_SIZE] == 1 and table.pass_entries[p + 1] - table.pass_entries[p] <= _FEW_BYTES:
            _take_bytes(table, p, n, raw, scratch)
        else:
            _take_pass(table, p, n, raw, scratch)


@inline_kernel
def _take_bytes(table: SearchTable, p: Any, n: Any, raw: Raw, scratch: SearchScratch) -> None:
    """Look for the entries of a pass that are single bytes, each by itself: most are found soon, if at all."""
    text = scratch.text
    for entry in range(table.pass_entries[p], table.pass_entries[p + 1]):
        literal = np.int64(table.entry_literals[entry])
        anchors = table.anchors[literal]
        at = np.int64(0)
        if anchors & AT_END and not anchors & AT_START:
            at = n - 1
        elif anchors == 0:
            at = _place_of_byte(text, n, np.uint64(table.grams[entry]))
        if _stands_at(table, literal, text, n, at):
            _report_all(table, literal, n, raw, scratch)


@inline_kernel
def _place_of_byte(text: NDArray[np.uint8], n: Any, byte: Any) -> Any:
    """Return where a byte stands first among the first n of a text with a margin, -1 if it does not."""
    eight = byte * LOW_BITS
    for position in range(0, n, 8):
        differs = load_word(text, position, len(text)) ^ eight
        zeros = (differs - LOW_BITS) & ~differs & HIGH_BITS
        if zeros != ZERO:
            place = position + first_byte(zeros)
            return place if place < n else np.int64(-1)
    return np.int64(-1)


@inline_kernel
def _take_pass(table: SearchTable, p: Any, n: Any, raw: Raw, scratch: SearchScratch) -> None:
    """Look at the places of the string in the scratch for the entries of one pass."""
    text, bits, passes = scratch.text, table.bits, table.passes
    size, step = passes[p, GRAM_SIZE], passes[p, STEP]
    first_word, word_shift = np.uint64(passes[p, FIRST_WORD]), np.uint64(passes[p, WORD_SHIFT])
    kept = _GRAM_BYTES >> np.uint64(8 * (GRAM_MAX - size))
    position = np.int64(0)
    while position <= n - size:
        gram = _four_bytes(text, position) & kept
        mixed = gram * _MIX
        wanted = _two_bits(mixed)
        if bits[first_word + (mixed >> word_shift)] & wanted == wanted:
            _look_up(table, p, gram, mixed, position, n, raw, scratch)
        position += step


@inline_kernel
def _four_bytes(text: NDArray[np.uint8], position: Any) -> Any:
    """Return four bytes of a text with a margin behind it."""
    return (
        np.uint64(text[np.uint64(position)])
        | np.uint64(text[np.uint64(position + 1)]) << np.uint64(8)
        | np.uint64(text[np.uint64(position + 2)]) << np.uint64(16)
        | np.uint64(text[np.uint64(position + 3)]) << np.uint64(24)
    )


@inline_kernel
def _look_up(
    table: SearchTable, p: Any, gram: Any, mixed: Any, position: Any, n: Any, raw: Raw, scratch: SearchScratch
) -> None:
    """Compare the literals that have a gram with the text around a place."""
    slots, grams = table.slots, table.grams
    first, shift = table.passes[p, FIRST_SLOT], np.uint64(table.passes[p, SLOT_SHIFT])
    mask = (np.int64(1) << (np.int64(64) - np.int64(shift))) - 1
    place = np.int64(mixed >> shift)
    entry = np.int64(slots[first + place])
    while entry >= 0 and np.uint64(grams[entry]) != gram:
        place = (place + 1) & mask
        entry = np.int64(slots[first + place])
    if entry < 0:
        return
    end = table.pass_entries[p + 1]
    while entry < end and np.uint64(grams[entry]) == gram:
        literal = table.entry_literals[entry]
        if _stands_at(table, literal, scratch.text, n, position - table.offsets[entry]):
            _report_all(table, literal, n, raw, scratch)
        entry += 1


@inline_kernel
def _find_networks(table: SearchTable, place: Any, raw: Raw, scratch: SearchScratch) -> None:
    """Report the networks of an attribute that an address is in; those of IPv6 are left open."""
    networks = table.networks
    if place >= len(networks.has_ipv6):
        return
    first_group, end_group = networks.starts[place], networks.starts[place + 1]
    if first_group == end_group and not networks.has_ipv6[place]:
        return
    address = read_ipv4(raw.texts, raw.start, raw.end)
    if address == NO_ADDRESS:
        return
    if address == MAYBE_IPV6:
        if networks.has_ipv6[place]:
            _report(table, networks.ipv6_targets[place], OPEN_TEST, 0, raw, scratch)
        return
    for group in range(first_group, end_group):
        wanted = address >> networks.groups[group, HOST_BITS]
        last = networks.groups[group, END]
        key = first_key(networks.keys, networks.groups[group, FIRST], last, wanted)
        while key < last and networks.keys[key] == wanted:
            _report(table, networks.targets[key], NO_TEST, 0, raw, scratch)
            key += 1


@inline_kernel
def _search_string(table: SearchTable, own: Any, leaves: LeafColumns, leaf: Any, scratch: SearchScratch) -> Any:
    """Search one string for all that its attribute asks for, and all strings; return whether folding was possible."""
    scratch.serials[STRING] += 1
    start, end = leaves.text_starts[leaf], leaves.text_ends[leaf]
    raw = Raw(leaves.texts, start, end)
    for form in range(2):
        n = np.int64(-1)
        for k in range(1 if own == _ALL_STRINGS else 2):
            owner = (own if k == 0 else _ALL_STRINGS) + form
            if owner >= len(table.is_searched) or not table.is_searched[owner]:
                continue
            if n < 0:
                if form:
                    n = fold_text(leaves.texts, start, end, scratch.text, scratch.folded)
                else:
                    n = _copy(leaves.texts, start, end, scratch.text)
                if n < 0:
                    return False
            _search(table, owner, n, raw, scratch)
    _find_networks(table, own >> 1, raw, scratch)
    if own != _ALL_STRINGS:
        _find_networks(table, _ALL_STRINGS, raw, scratch)
    return True


# strings that were searched before


@inline_kernel
def _hash(texts: NDArray[np.uint8], start: Any, end: Any, own: Any) -> Any:
    """Return a hash of a string and its attribute."""
    mixed = (np.uint64(own) << _HALF) ^ np.uint64(end - start)
    for position in range(start, end, 8):
        mixed = (mixed ^ load_word(texts, position, end)) * _MIX
        mixed ^= mixed >> _HALF
    return mixed


@inline_kernel
def _are_same(leaves: LeafColumns, leaf: Any, other: Any) -> Any:
    """Return whether two leaves have the same attribute and string."""
    start, end, place = leaves.text_starts[leaf], leaves.text_ends[leaf], leaves.text_starts[other]
    if leaves.attributes[leaf] != leaves.attributes[other] or end - start != leaves.text_ends[other] - place:
        return False
    while start < end:
        if load_word(leaves.texts, start, end) != load_word(leaves.texts, place, leaves.text_ends[other]):
            return False
        start += 8
        place += 8
    return True


@inline_kernel
def _remembered(leaves: LeafColumns, leaf: Any, mixed: Any, scratch: SearchScratch) -> Any:
    """Return the place of a string among those that are remembered, or that of a free slot, as -1 - place."""
    remembered, block = scratch.remembered, scratch.serials[BLOCK]
    slot = np.int64(mixed >> np.uint64(16)) & (REMEMBERED_SLOTS - 1)
    while remembered[slot * REMEMBERED_WORDS] == block:
        place = slot * REMEMBERED_WORDS
        if remembered[place + 1] == np.int64(mixed) and _are_same(leaves, leaf, remembered[place + 2]):
            return place
        slot = (slot + 1) & (REMEMBERED_SLOTS - 1)
    return -1 - slot * REMEMBERED_WORDS


@inline_kernel
def _forget(scratch: SearchScratch) -> None:
    """Begin a new block of strings that are remembered."""
    scratch.serials[BLOCK] += 1
    scratch.serials[N_HITS] = 0
    scratch.serials[N_REMEMBERED] = 0


# all strings


@inline_kernel
def _take(scratch: SearchScratch, first: Any, end: Any, leaf: Any, found: Found, counts: tuple[int, int]) -> Any:
    """Take the targets hits[first:end] of a string into those of an event; return how many there are, and open ones."""
    n_found, n_open = counts
    for k in range(first, end):
        hit = scratch.hits[k]
        target = hit if hit >= 0 else -1 - hit
        if scratch.stamps[target] == scratch.serials[EVENT]:
            continue
        if hit < 0:
            found.open_leaves[n_open], found.open_targets[n_open] = leaf, target
            n_open += 1
        else:
            scratch.stamps[target] = scratch.serials[EVENT]
            found.targets[n_found] = target
            n_found += 1
    return n_found, n_open


@inline_kernel
def _is_searched(table: SearchTable, own: Any) -> Any:
    """Return whether there is anything to look for in the strings of an attribute, networks included."""
    n_owners, n_places = len(table.is_searched), len(table.networks.has_ipv6)
    if own < n_owners and (table.is_searched[own] or table.is_searched[own + 1]):
        return True
    if n_owners > 0 and (table.is_searched[_ALL_STRINGS] or table.is_searched[_ALL_STRINGS + 1]):
        return True
    place, starts = own >> 1, table.networks.starts
    if place < n_places and (starts[place] < starts[place + 1] or table.networks.has_ipv6[place]):
        return True
    return n_places > 0 and (starts[0] < starts[1] or table.networks.has_ipv6[0])


@kernel
def search_leaves(
    leaves: LeafColumns,
    event_starts: NDArray[np.int64],
    search_table: NDArray[np.int64],
    thread_scratch: NDArray[np.int64],
    found: Found,
    first_event: int,
    remembered_min: int,
) -> int:
    """Search the strings of events from `first_event` on; return the event that might not fit, or needs the table.

    Each is searched for the literals of its attribute, and for those that any string may have. The result is the number
    of events when all are done; -1 - event if the table of folded characters is missing. `found` and `hits` must have
    room for all targets. Strings of at least `remembered_min` bytes, and not very many, are searched once each.
    """
    table, scratch = arrays_at(search_table, SearchTable), arrays_at(thread_scratch, SearchScratch)
    serials = scratch.serials
    n_targets = len(table.targets) + len(table.always) + len(table.networks.targets) + len(table.networks.has_ipv6)
    if first_event == 0:
        _forget(scratch)
    for event in range(first_event, len(event_starts) - 1):
        counts, n_strings = (found.starts[event], found.open_starts[event]), serials[N_STRINGS]
        serials[EVENT] += 1
        for leaf in range(event_starts[event], event_starts[event + 1]):
            own = 2 * (np.int64(leaves.attributes[leaf]) + 1)
            if leaves.kinds[leaf] != _STRING or not _is_searched(table, own):
                continue
            if counts[0] + n_targets > len(found.targets) or counts[1] + n_targets > len(found.open_targets):
                serials[N_STRINGS] = n_strings
                return event
            if serials[N_HITS] + n_targets > len(scratch.hits) or 2 * serials[N_REMEMBERED] >= REMEMBERED_SLOTS:
                _forget(scratch)
            serials[N_STRINGS] += 1
            start, end = leaves.text_starts[leaf], leaves.text_ends[leaf]
            place, mixed = np.int64(-1), ZERO
            is_remembered = remembered_min <= end - start <= _REMEMBERED_MAX_BYTES
            if is_remembered:
                mixed = _hash(leaves.texts, start, end, own)
                place = _remembered(leaves, leaf, mixed, scratch)
                if place >= 0:
                    first, last = scratch.remembered[place + 3], scratch.remembered[place + 4]
                    counts = _take(scratch, first, last, scratch.remembered[place + 2], found, counts)
                    continue
            first_hit = serials[N_HITS]
            if not _search_string(table, own, leaves, leaf, scratch):
                serials[N_HITS], serials[N_STRINGS] = first_hit, n_strings
                return -1 - event
            serials[N_SEARCHED] += 1
            counts = _take(scratch, first_hit, serials[N_HITS], leaf, found, counts)
            if is_remembered:
                place = -1 - place
                scratch.remembered[place] = serials[BLOCK]
                scratch.remembered[place + 1] = np.int64(mixed)
                scratch.remembered[place + 2] = leaf
                scratch.remembered[place + 3], scratch.remembered[place + 4] = first_hit, serials[N_HITS]
                serials[N_REMEMBERED] += 1
            else:
                serials[N_HITS] = first_hit
        found.starts[event + 1], found.open_starts[event + 1] = counts
    return len(event_starts) - 1
