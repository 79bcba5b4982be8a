"""Growing a BE-Tree from all clauses at once, and matching one event against it.

The nodes are made in breadth-first order. So the children of a node are consecutive, and their start is enough to know
them. `indexes/be_tree/index.py` draws the tree and names the arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from siftline.kernels.codes import ABSENT, RANGE, VETO
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.literals import Literals, literal_holds, spread_event
from siftline.kernels.pointers import arrays_at
from siftline.kernels.verify import clear_event

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The columns of a c-node. The ends of its leaf and its p-directory are read from the next c-node, so the last c-node is
# a sentinel.
LOW, HIGH, SUBTREE_END, LEAF, FIRST_P_NODE = range(5)
N_C_COLUMNS = 5
# The columns of a p-node.
ATTRIBUTE, FIRST_C_NODE = range(2)
N_P_COLUMNS = 2
# A packed predicate: the clauses that use it, one bit each; attribute + 1 << 32 | tag; low << 32 | high.
MASK, TARGET, BOUNDS = range(3)
N_PACKED = 3

# Clauses in a word: one bit each.
WORD = 64

_ALL_CODES = np.int32(2**31 - 1)
_ALL_BITS = np.uint64(2**64 - 1)
_LOWER_HALF = np.uint64(2**32 - 1)
_HALF = np.uint64(32)
_NONE = np.uint64(0)
_ONE = np.uint64(1)

# No code lies in more intervals of one c-directory: each is at most half as wide as the one around it.
_LONGEST_CHAIN = 32
# A p-directory with more p-nodes than this many times the event's attributes is searched, a shorter one is read whole.
_SEARCHED = 8
# Groups up to this size are sorted by insertion.
_INSERTION_SORT_MAX = 24
# A level in the low bits of an interval's key.
_LEVEL_BITS = 6
_TOP_LEVEL = 63


class Layout(NamedTuple):
    """One tree; see `indexes/be_tree/index.py`."""

    roots: NDArray[np.int32]
    c_nodes: Annotated[NDArray[np.int32], N_C_COLUMNS]
    p_nodes: Annotated[NDArray[np.int32], N_P_COLUMNS]
    leaves: NDArray[np.uint64]


class Ranked(NamedTuple):
    """By clause and attribute, the literal that the fewest events satisfy; those of a clause from best to worst."""

    starts: NDArray[np.int64]  # by clause
    attributes: NDArray[np.int32]
    firsts: NDArray[np.int32]  # the first space that it covers, counted from the attribute's own first
    lasts: NDArray[np.int32]
    gains: NDArray[np.float64]  # the share of events for which it does not hold
    literals: NDArray[np.int64]  # where it came from
    is_range: NDArray[np.bool_]  # False: a set, known by its hull
    signatures: NDArray[np.uint64]  # by clause: clauses with other attributes or spaces have another one


@kernel
def rank_literals(
    order: NDArray[np.int64],
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    shares: NDArray[np.float64],
    firsts: NDArray[np.int32],
    lasts: NDArray[np.int32],
    space_starts: NDArray[np.int64],
) -> Any:
    """Return the best literals of clauses, without vetoes."""
    n_clauses, n_literals = len(starts) - 1, len(order)
    new_starts = np.zeros(n_clauses + 1, dtype=np.int64)
    new_attributes = np.empty(n_literals, dtype=np.int32)
    new_firsts = np.empty(n_literals, dtype=np.int32)
    new_lasts = np.empty(n_literals, dtype=np.int32)
    gains = np.empty(n_literals, dtype=np.float64)
    literals = np.empty(n_literals, dtype=np.int64)
    is_range = np.empty(n_literals, dtype=np.bool_)
    signatures = np.zeros(n_clauses, dtype=np.uint64)
    last_users = np.full(len(space_starts), -1, dtype=np.int64)
    n = 0
    for c in range(n_clauses):
        for k in range(starts[c], starts[c + 1]):
            i = order[k]
            a = attributes[i]
            if kinds[i] >= VETO or last_users[a] == c:
                continue
            last_users[a] = c
            new_attributes[n] = a
            new_firsts[n] = firsts[i] - space_starts[a]
            new_lasts[n] = lasts[i] - space_starts[a]
            gains[n] = 1.0 - shares[i]
            literals[n] = i
            is_range[n] = kinds[i] == RANGE
            # + 1, so that a literal on the very first space changes the signature too.
            signatures[c] += _mixed(np.uint64(firsts[i] + 1) << _HALF | np.uint64(lasts[i] + 1))
            n += 1
        new_starts[c + 1] = n
    return Ranked(
        new_starts,
        new_attributes[:n],
        new_firsts[:n],
        new_lasts[:n],
        gains[:n],
        literals[:n],
        is_range[:n],
        signatures,
    )


@inline_kernel
def _mixed(x: Any) -> Any:
    """Spread the bits of a 64-bit number."""
    x *= np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> _HALF
    x *= np.uint64(0xD6E8FEB86659FD93)
    return x ^ (x >> _HALF)


class Tree(NamedTuple):
    """The nodes under construction; there are never more of them than the arrays have room for."""

    c_nodes: NDArray[np.int32]
    p_nodes: NDArray[np.int32]
    begins: NDArray[np.int32]  # by c-node: its members are members[begin : end]
    ends: NDArray[np.int32]
    p_node_above: NDArray[np.int32]  # by c-node; -1 at the root
    c_node_above: NDArray[np.int32]  # by p-node
    members: NDArray[np.int32]  # all clauses, those of a node side by side
    is_proven: NDArray[np.bool_]  # by literal: holds for every event that reaches the clause


class Work(NamedTuple):
    """Scratch of `_partition` for one c-node; it numbers attributes in the order of their first use there."""

    used_at: NDArray[np.int32]  # by attribute: the last c-node with it on its path
    seen_at: NDArray[np.int32]  # by attribute: the last c-node with it among its members
    numbers: NDArray[np.int32]  # by attribute
    attributes: NDArray[np.int32]  # by number, as what follows
    scores: NDArray[np.float64]
    keys: NDArray[np.float64]  # the scores that the heap knows: never too low
    n_users: NDArray[np.int32]
    starts: NDArray[np.int64]
    heap: NDArray[np.int32]
    is_picked: NDArray[np.bool_]
    group_ends: NDArray[np.int32]
    users: NDArray[np.int32]  # the members that have attribute number x are users[starts[x] : starts[x + 1]]
    groups: NDArray[np.int32]  # by member: the number of the attribute that it is filed under, or -1
    copies: NDArray[np.int32]
    sort_keys: NDArray[np.int64]


@kernel
def grow_tree(capacity: int, tree: Tree, work: Work, ranked: Ranked, space_starts: Any, cuts: Any) -> Any:
    """Fill the nodes of a tree over its members; return how many c-nodes and p-nodes there are."""
    n_c = 1
    n_p = 0
    c = 0
    tree.c_nodes[0, LOW] = 0
    tree.c_nodes[0, HIGH] = _ALL_CODES
    tree.c_nodes[0, SUBTREE_END] = 1
    tree.begins[0] = 0
    tree.ends[0] = len(tree.members)
    tree.p_node_above[0] = -1
    while c < n_c:
        tree.c_nodes[c, FIRST_P_NODE] = n_p
        begin, end = tree.begins[c], tree.ends[c]
        if end - begin > capacity and not _are_alike(begin, end, tree.members, ranked.signatures):
            _mark_path(c, tree, work.used_at)
            n_groups, n_left = _partition(c, capacity, tree, work, ranked)
            tree.ends[c] = begin = begin + n_left
            for g in range(n_groups):
                tree.p_nodes[n_p, ATTRIBUTE] = work.attributes[work.heap[g]]
                tree.p_nodes[n_p, FIRST_C_NODE] = n_c
                tree.c_node_above[n_p] = c
                n_c = _cluster(n_p, n_c, begin, work.group_ends[g], tree, work, ranked, space_starts, cuts)
                begin = work.group_ends[g]
                n_p += 1
        c += 1
    tree.c_nodes[n_c, FIRST_P_NODE] = n_p
    tree.p_nodes[n_p, FIRST_C_NODE] = n_c
    return n_c, n_p


@inline_kernel
def _are_alike(begin: int, end: int, members: NDArray[np.int32], signatures: NDArray[np.uint64]) -> Any:
    """Return whether no attribute and no interval separates these clauses."""
    m = begin + 1
    while m < end and signatures[members[m]] == signatures[members[begin]]:
        m += 1
    return m >= end


@inline_kernel
def _mark_path(c: int, tree: Tree, used_at: NDArray[np.int32]) -> None:
    """Mark the attributes on the path to a c-node: each cuts a path only once."""
    p = tree.p_node_above[c]
    while p >= 0:
        used_at[tree.p_nodes[p, ATTRIBUTE]] = c
        p = tree.p_node_above[tree.c_node_above[p]]


@kernel
def _partition(c: int, capacity: int, tree: Tree, work: Work, ranked: Ranked) -> Any:
    """Space partitioning: assign the members of a c-node to attributes, until the rest fits into its leaf.

    The members are reordered: those of the leaf come first, then one group for each attribute, by ascending attribute.
    work.heap and work.group_ends then tell the groups' attributes and ends. Return the number of groups, and of
    members that stay.
    """
    begin, end = tree.begins[c], tree.ends[c]
    n_numbers = _score_attributes(c, begin, end, tree.members, work, ranked)
    n_left = _pick_attributes(c, begin, end, n_numbers, capacity, tree.members, work, ranked)
    # As on insertion, a clause goes to the p-node where it gains most.
    sizes = work.n_users
    sizes[:n_numbers] = 0
    for m in range(begin, end):
        work.copies[m] = tree.members[m]
        if work.groups[m] < 0:
            continue
        for i in range(ranked.starts[tree.members[m]], ranked.starts[tree.members[m] + 1]):
            a = ranked.attributes[i]
            if work.used_at[a] != c and work.is_picked[work.numbers[a]]:
                work.groups[m] = work.numbers[a]
                sizes[work.numbers[a]] += 1
                break
    n_groups = 0
    for x in range(n_numbers):
        if sizes[x] > 0:
            work.heap[n_groups] = x
            n_groups += 1
    _sort_by(work.heap, work.attributes, n_groups)
    place = begin + n_left
    for g in range(n_groups):
        work.starts[work.heap[g]] = place
        place += sizes[work.heap[g]]
        work.group_ends[g] = place
    place = begin
    for m in range(begin, end):
        x = work.groups[m]
        if x < 0:
            tree.members[place] = work.copies[m]
            place += 1
        else:
            tree.members[work.starts[x]] = work.copies[m]
            work.starts[x] += 1
    return n_groups, n_left


@kernel
def _score_attributes(c: int, begin: int, end: int, members: NDArray[np.int32], work: Work, ranked: Ranked) -> Any:
    """Score the attributes that the members have and the path has not, and list their users; return how many."""
    n_numbers = 0
    for m in range(begin, end):
        for i in range(ranked.starts[members[m]], ranked.starts[members[m] + 1]):
            a = ranked.attributes[i]
            if work.used_at[a] == c:
                continue
            if work.seen_at[a] != c:
                work.seen_at[a] = c
                work.numbers[a] = n_numbers
                work.attributes[n_numbers] = a
                work.scores[n_numbers] = 0.0
                work.n_users[n_numbers] = 0
                n_numbers += 1
            work.scores[work.numbers[a]] += ranked.gains[i]
            work.n_users[work.numbers[a]] += 1
    start = 0
    for x in range(n_numbers):
        work.starts[x] = start
        start += work.n_users[x]
    for m in range(begin, end):
        for i in range(ranked.starts[members[m]], ranked.starts[members[m] + 1]):
            a = ranked.attributes[i]
            if work.used_at[a] != c:
                x = work.numbers[a]
                work.users[work.starts[x]] = m
                work.starts[x] += 1
    for x in range(n_numbers, 0, -1):
        work.starts[x] = work.starts[x - 1]
    work.starts[0] = 0
    return n_numbers


@kernel
def _pick_attributes(
    c: int, begin: int, end: int, n_numbers: int, capacity: int, members: NDArray[np.int32], work: Work, ranked: Ranked
) -> Any:
    """Pick the attribute with the highest score again and again, until its leaf can take the clauses without any.

    Return how many these are. A member's group tells if it has a picked attribute.
    """
    n_left = end - begin
    work.groups[begin:end] = -1
    for x in range(n_numbers):
        work.heap[x] = x
        work.keys[x] = work.scores[x]
        work.is_picked[x] = False
    for place in range(n_numbers // 2 - 1, -1, -1):
        _sift_down(place, n_numbers, work)
    n_heap = n_numbers
    while n_left > capacity and n_heap > 0:
        x = work.heap[0]
        if work.n_users[x] > 0 and work.keys[x] != work.scores[x]:
            work.keys[x] = work.scores[x]  # clauses of picked attributes no longer count
            _sift_down(0, n_heap, work)
            continue
        n_heap -= 1
        work.heap[0] = work.heap[n_heap]
        _sift_down(0, n_heap, work)
        if work.n_users[x] == 0:
            continue
        work.is_picked[x] = True
        for u in range(work.starts[x], work.starts[x + 1]):
            m = work.users[u]
            if work.groups[m] >= 0:
                continue
            work.groups[m] = x
            n_left -= 1
            for i in range(ranked.starts[members[m]], ranked.starts[members[m] + 1]):
                if work.used_at[ranked.attributes[i]] != c:
                    other = work.numbers[ranked.attributes[i]]
                    work.scores[other] -= ranked.gains[i]
                    work.n_users[other] -= 1
    return n_left


@inline_kernel
def _sift_down(place: int, n: int, work: Work) -> None:
    """Let an attribute sink in the heap below all that score higher; of equals, the lower attribute comes first."""
    heap, keys, attributes = work.heap, work.keys, work.attributes
    while True:
        best = place
        for child in (2 * place + 1, 2 * place + 2):
            if child < n:
                one, other = heap[child], heap[best]
                is_tie = keys[one] == keys[other] and attributes[one] < attributes[other]
                if keys[one] > keys[other] or is_tie:
                    best = child
        if best == place:
            return
        heap[place], heap[best] = heap[best], heap[place]
        place = best


@kernel
def _sort_by(numbers: NDArray[np.int32], values: NDArray[np.int32], n: int) -> None:
    """Sort the first n numbers by their values."""
    if n > _INSERTION_SORT_MAX:
        numbers[:n] = numbers[:n][np.argsort(values[numbers[:n]])]
        return
    for i in range(1, n):
        number = numbers[i]
        j = i
        while j > 0 and values[numbers[j - 1]] > values[number]:
            numbers[j] = numbers[j - 1]
            j -= 1
        numbers[j] = number


@kernel
def _cluster(
    p: int,
    n_c: int,
    begin: int,
    end: int,
    tree: Tree,
    work: Work,
    ranked: Ranked,
    space_starts: NDArray[np.int64],
    cuts: NDArray[np.int32],
) -> Any:
    """Space clustering: hang the members of a p-node on intervals, each the smallest that covers its literal.

    The intervals become c-nodes from n_c on, each before those inside it; return where they end.
    """
    a = tree.p_nodes[p, ATTRIBUTE]
    keys = work.sort_keys[begin:end]
    members = tree.members[begin:end]
    for m in range(len(members)):
        i = ranked.starts[members[m]]
        while ranked.attributes[i] != a:
            i += 1
        first, last = ranked.firsts[i], ranked.lasts[i]
        keys[m] = _interval_key(first, last)
        level = _TOP_LEVEL - (keys[m] & _TOP_LEVEL)
        if ranked.is_range[i] and last - first + 1 == 1 << level:
            tree.is_proven[ranked.literals[i]] = True
    _sort_members(keys, members)
    intervals = _hierarchy(keys)
    n_spaces = space_starts[a + 1] - space_starts[a]
    open_nodes = np.empty(_LONGEST_CHAIN + 1, dtype=np.int64)
    n_open = 0
    m = 0
    for k in range(len(intervals)):
        level = _TOP_LEVEL - (intervals[k] & _TOP_LEVEL)
        first = intervals[k] >> _LEVEL_BITS
        after = first + (1 << level)
        node = n_c + k
        low = cuts[space_starts[a] + first]
        while n_open > 0 and tree.c_nodes[open_nodes[n_open - 1], HIGH] < low:
            n_open -= 1
            tree.c_nodes[open_nodes[n_open], SUBTREE_END] = node
        open_nodes[n_open] = node
        n_open += 1
        tree.c_nodes[node, LOW] = low
        tree.c_nodes[node, HIGH] = cuts[space_starts[a] + after] - 1 if after < n_spaces else _ALL_CODES
        tree.p_node_above[node] = p
        tree.begins[node] = begin + m
        while m < len(keys) and keys[m] == intervals[k]:
            m += 1
        tree.ends[node] = begin + m
    for k in range(n_open):
        tree.c_nodes[open_nodes[k], SUBTREE_END] = n_c + len(intervals)
    return n_c + len(intervals)


@inline_kernel
def _interval_key(first: int, last: int) -> Any:
    """Return the smallest interval over the spaces first .. last, out of those that come from halving.

    The intervals of level l are 2**l spaces long. The key is the interval's first space and then its level, so that
    in the order of keys an interval comes right before those inside it.
    """
    level = 0
    while first >> level != last >> level:
        level += 1
    return (np.int64(first >> level) << np.int64(level + _LEVEL_BITS)) | np.int64(_TOP_LEVEL - level)


@kernel
def _sort_members(keys: NDArray[np.int64], members: NDArray[np.int32]) -> None:
    """Sort members by their keys, in place."""
    if len(keys) > _INSERTION_SORT_MAX:
        order = np.argsort(keys, kind="mergesort")
        members[:] = members[order]
        keys[:] = keys[order]
        return
    for i in range(1, len(keys)):
        key, member = keys[i], members[i]
        j = i
        while j > 0 and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            members[j] = members[j - 1]
            j -= 1
        keys[j] = key
        members[j] = member


@kernel
def _hierarchy(keys: NDArray[np.int64]) -> Any:
    """Return the keys of the intervals that ascending keys name, and of those where they branch; each once."""
    found = np.empty(2 * len(keys), dtype=np.int64)
    n = 0
    for k in range(len(keys)):
        if k > 0 and keys[k] == keys[k - 1]:
            continue
        if k > 0:
            last = max(_last_space(keys[k - 1]), _last_space(keys[k]))
            around = _interval_key(keys[k - 1] >> _LEVEL_BITS, last)
            if around != keys[k - 1]:
                found[n] = around
                n += 1
        found[n] = keys[k]
        n += 1
    found = found[:n]
    if n <= 2:  # a branching interval would be a third one
        return found
    found.sort()
    n_distinct = 1
    for k in range(1, n):
        if found[k] != found[n_distinct - 1]:
            found[n_distinct] = found[k]
            n_distinct += 1
    return found[:n_distinct]


@inline_kernel
def _last_space(key: int) -> Any:
    """Return the last space of an interval."""
    return (key >> _LEVEL_BITS) + (np.int64(1) << (_TOP_LEVEL - (key & _TOP_LEVEL))) - 1


@kernel
def fill_leaves(
    leaf_starts: NDArray[np.int64],
    clauses: NDArray[np.int32],
    c_nodes: NDArray[np.int32],
    is_proven: NDArray[np.bool_],
    order: NDArray[np.int64],
    literals: Literals,
) -> Any:
    """Return the leaves as one stream, and tell the c-nodes where theirs is.

    The clauses of c-node c are leaf_starts[c] : leaf_starts[c + 1]. In a word, they take turns to name a predicate,
    each from its best to its worst: as soon as all have failed, the rest need not be read.
    """
    starts = literals.starts
    leaves = np.empty(2 * len(clauses) + N_PACKED * len(order) + 1, dtype=np.uint64)
    places = np.full(_n_places(starts), -1, dtype=np.int64)
    turns = np.empty(WORD, dtype=np.int64)
    n = 0
    for c in range(len(leaf_starts) - 1):
        c_nodes[c, LEAF] = n
        for begin in range(leaf_starts[c], leaf_starts[c + 1], WORD):
            size = min(WORD, leaf_starts[c + 1] - begin)
            first = n + 1
            n = first
            for k in range(size):
                turns[k] = starts[clauses[begin + k]]
            n_busy = size
            while n_busy > 0:
                n_busy = 0
                for k in range(size):
                    end = starts[clauses[begin + k] + 1]
                    while turns[k] < end and is_proven[order[turns[k]]]:
                        turns[k] += 1
                    if turns[k] == end:
                        continue
                    n_busy += 1
                    i = order[turns[k]]
                    turns[k] += 1
                    n = _name_literal(i, literals, np.uint64(k), first, n, leaves, places)
            leaves[first - 1] = np.uint64(n - first) << _HALF | np.uint64(size)
            for k in range(size):
                leaves[n + k] = np.uint64(clauses[begin + k])
            n += size
    c_nodes[len(leaf_starts) - 1, LEAF] = n
    leaves[n] = _NONE  # an empty leaf at the end may be read
    return leaves[: n + 1].copy()


@inline_kernel
def _name_literal(
    i: int, literals: Literals, k: Any, first: int, n: int, leaves: NDArray[np.uint64], places: NDArray[np.int64]
) -> Any:
    """Name the predicate of literal i, for clause k of a word; return the end of the predicates."""
    tag = np.uint64(literals.sets[i] + 1) << _ONE | np.uint64(literals.kinds[i] >= VETO)
    target = np.uint64(literals.attributes[i] + 1) << _HALF | tag
    bounds = np.uint64(literals.lows[i]) << _HALF | np.uint64(literals.highs[i])
    return _name(target, bounds, k, first, n, leaves, places)


@kernel
def _n_places(starts: NDArray[np.int64]) -> Any:
    """Return a power of two, at least twice the number of literals in any word."""
    longest = 1
    for c in range(len(starts) - 1):
        longest = max(longest, starts[c + 1] - starts[c])
    n_places = 1
    while n_places < 2 * min(WORD * longest, starts[-1]):
        n_places *= 2
    return n_places


@inline_kernel
def _name(
    target: Any, bounds: Any, bit: Any, first: int, n: int, leaves: NDArray[np.uint64], places: NDArray[np.int64]
) -> Any:
    """Set a clause's bit at a predicate of the word that starts at `first`; return where the word now ends."""
    at = np.int64(_mixed(target ^ _mixed(bounds)) & np.uint64(len(places) - 1))
    while True:
        i = places[at]
        if i < first or i >= n:  # nothing, or of an earlier word
            break
        if leaves[i + TARGET] == target and leaves[i + BOUNDS] == bounds:
            leaves[i + MASK] |= _ONE << bit
            return n
        at = (at + 1) & (len(places) - 1)
    places[at] = n
    leaves[n + MASK] = _ONE << bit
    leaves[n + TARGET] = target
    leaves[n + BOUNDS] = bounds
    return n + N_PACKED


@kernel
def match_tree(
    event_attributes: NDArray[np.int32],
    event_codes: NDArray[np.int32],
    dense: NDArray[np.int32],
    part_literals: NDArray[np.int64],
    part: NDArray[np.int64],
) -> Any:
    """Return (clauses that hold, clauses in visited leaves, predicates tested, visited c-directories and leaves).

    The part and its literals come as handles (see `kernels/pointers.py`).
    """
    literals, layout = arrays_at(part_literals, Literals), arrays_at(part, Layout)
    c_nodes, p_nodes, leaves = layout.c_nodes, layout.p_nodes, layout.leaves
    n_event = len(event_codes)
    following = np.empty(n_event, dtype=np.int32)
    spread_event(event_attributes, event_codes, dense, following)
    pending = np.empty(_LONGEST_CHAIN * (n_event + 8), dtype=np.int64)
    found = np.empty(4 * WORD, dtype=np.int32)
    n_found: Any = 0
    n_candidates: Any = 0
    n_tested = 0
    n_lists = 0
    pending[0] = 0
    n_pending = 1
    while n_pending > 0:
        n_pending -= 1
        c = pending[n_pending]
        place, end = np.uint64(c_nodes[c, LEAF]), np.uint64(c_nodes[c + 1, LEAF])
        while place < end:
            size = leaves[place] & _LOWER_HALF
            after = place + _ONE + (leaves[place] >> _HALF)
            alive, n = _survivors(place + _ONE, after, size, dense, event_codes, following, leaves, literals)
            n_lists += 1
            n_candidates += np.int64(size)
            n_tested += n
            if alive != _NONE:
                if len(found) < n_found + WORD:
                    found = _grown(found)
                for k in range(size):
                    found[n_found] = np.int32(leaves[after + np.uint64(k)])
                    n_found += np.int64((alive >> np.uint64(k)) & _ONE)
            place = after + size
        first, last = c_nodes[c, FIRST_P_NODE], c_nodes[c + 1, FIRST_P_NODE]
        is_searched = c == 0 or last - first > _SEARCHED * n_event
        for k in range(n_event if is_searched else last - first):
            p: Any = np.int64(first + k)
            if is_searched:
                p = _found_p_node(k, c == 0, first, last, event_attributes, dense, layout.roots, p_nodes)
                if p < 0:
                    continue
            entry = dense[p_nodes[p, ATTRIBUTE] + 1]
            if entry == ABSENT:
                continue
            n_lists += 1
            if len(pending) < n_pending + _LONGEST_CHAIN * n_event:
                pending = _grown(pending)
            n_pending = _stab(entry, p, event_codes, following, c_nodes, p_nodes, pending, n_pending)
    clear_event(event_attributes, dense)
    return found[:n_found].copy(), n_candidates, n_tested, n_lists


@kernel
def _grown(array: Any) -> Any:
    """Return an array of twice the size that starts the same."""
    longer = np.empty(2 * len(array), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


@inline_kernel
def _found_p_node(
    k: int,
    is_root: bool,
    first: int,
    end: int,
    attributes: NDArray[np.int32],
    dense: NDArray[np.int32],
    roots: NDArray[np.int32],
    p_nodes: NDArray[np.int32],
) -> Any:
    """Return the p-node first .. end - 1 for the attribute at place k of the event; -1 if there is none.

    Of the places of an attribute with several values, only the one that `dense` names counts.
    """
    a = attributes[k]
    if a >= len(roots):
        return np.int64(-1)
    entry = dense[a + 1]
    if entry < ABSENT and -(entry + 2) != k:
        return np.int64(-1)
    if is_root:
        return np.int64(roots[a])
    after = end
    while first < after:
        middle = (first + after) >> 1
        if p_nodes[middle, ATTRIBUTE] < a:
            first = middle + 1
        else:
            after = middle
    return np.int64(first) if first < end and p_nodes[first, ATTRIBUTE] == a else np.int64(-1)


@inline_kernel
def _stab(
    entry: int,
    p: int,
    codes: NDArray[np.int32],
    following: NDArray[np.int32],
    c_nodes: NDArray[np.int32],
    p_nodes: NDArray[np.int32],
    pending: NDArray[np.int64],
    n_pending: int,
) -> Any:
    """Append the c-nodes of a p-node whose interval has a value of the event, each once; return how many wait."""
    c, end = np.int64(p_nodes[p, FIRST_C_NODE]), p_nodes[p + 1, FIRST_C_NODE]
    while c < end:
        low, high = c_nodes[c, LOW], c_nodes[c, HIGH]
        is_stabbed = low <= entry and entry <= high
        if entry < ABSENT:
            place = -(entry + 2)
            while place >= 0 and not is_stabbed:
                is_stabbed = low <= codes[place] and codes[place] <= high
                place = following[place]
        if not is_stabbed:
            c = np.int64(c_nodes[c, SUBTREE_END])
            continue
        pending[n_pending] = c
        has_leaf = c_nodes[c, LEAF] < c_nodes[c + 1, LEAF]
        n_pending += has_leaf or c_nodes[c, FIRST_P_NODE] < c_nodes[c + 1, FIRST_P_NODE]
        c += 1
    return n_pending


@inline_kernel
def _survivors(
    place: Any,
    end: Any,
    size: Any,
    dense: NDArray[np.int32],
    codes: NDArray[np.int32],
    following: NDArray[np.int32],
    leaves: NDArray[np.uint64],
    literals: Literals,
) -> Any:
    """Return which of a word's clauses have no predicate that fails, one bit each, and how many were tested."""
    alive = _ALL_BITS >> (np.uint64(WORD) - size)
    n_tested = 0
    while place < end and alive != _NONE:
        mask = leaves[place]
        if mask & alive != _NONE:
            n_tested += 1
            target, bounds = leaves[place + np.uint64(TARGET)], leaves[place + np.uint64(BOUNDS)]
            tag: Any = np.int64(target & _LOWER_HALF)
            low: Any = np.int64(bounds >> _HALF)
            high: Any = np.int64(bounds & _LOWER_HALF)
            holds = literal_holds(
                dense[target >> _HALF],
                low,
                high,
                VETO if tag & 1 else RANGE,
                (tag >> 1) - 1,
                codes,
                following,
                literals,
            )
            if not holds:
                alive &= ~mask
        place += np.uint64(N_PACKED)
    return alive, n_tested


@kernel
def levels_of(c_nodes: NDArray[np.int32], p_nodes: NDArray[np.int32]) -> Any:
    """Return for each c-node how many p-nodes are above it."""
    levels = np.zeros(len(c_nodes) - 1, dtype=np.int32)
    for c in range(len(levels)):
        for p in range(c_nodes[c, FIRST_P_NODE], c_nodes[c + 1, FIRST_P_NODE]):
            levels[p_nodes[p, FIRST_C_NODE] : p_nodes[p + 1, FIRST_C_NODE]] = levels[c] + 1
    return levels


@kernel
def leaf_sizes(c_nodes: NDArray[np.int32], leaves: NDArray[np.uint64]) -> Any:
    """Return how many clauses the leaf of each c-node has."""
    sizes = np.zeros(len(c_nodes) - 1, dtype=np.int32)
    for c in range(len(sizes)):
        place = np.int64(c_nodes[c, LEAF])
        while place < c_nodes[c + 1, LEAF]:
            size = np.int64(leaves[place] & _LOWER_HALF)
            sizes[c] += size
            place += 1 + np.int64(leaves[place] >> _HALF) + size
    return sizes
