"""The memory of a PS-Tree: pools of nodes, boundaries and leaves, and rows of changing length, one after the other.

A pool is a set of arrays with a row for each id, and a stack of the ids that are free. All functions return the tree
with other arrays in it; `counts` is changed in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.indexes.ps_tree import kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.indexes.ps_tree.kernels import Tree


class Pool(NamedTuple):
    """The arrays of a pool, its stack of free ids, where their number is counted, and the tag of its ids in slots."""

    arrays: tuple[str, ...]
    free: str
    n_free_at: int
    kind: int


class Rows(NamedTuple):
    """Rows of changing length: the array of all, where its length in use is counted, and the starts and sizes."""

    items: str
    used_at: int
    starts: str
    sizes: str


NODES: Final = Pool(("slots",), "free_nodes", kernels.FREE_NODES, kernels.INNER)
BOUNDARIES: Final = Pool(
    ("images", "equals", "users", "key_starts", "key_lengths"),
    "free_boundaries",
    kernels.FREE_BOUNDARIES,
    kernels.BOUNDARY,
)
LEAVES: Final = Pool(
    (
        "neighbours",
        "n_predicates",
        "n_events",
        "space_ids",
        "list_starts",
        "list_lengths",
        "list_capacities",
        "signatures",
    ),
    "free_leaves",
    kernels.FREE_LEAVES,
    kernels.LEAF,
)
POOLS: Final = {"nodes": NODES, "boundaries": BOUNDARIES, "leaves": LEAVES}

KEYS: Final = Rows("keys", kernels.USED_KEYS, "key_starts", "key_lengths")
ITEMS: Final = Rows("items", kernels.USED_ITEMS, "list_starts", "list_capacities")


def size_of(tree: Tree, pool: Pool) -> int:
    """Return how many ids a pool has, free ones included."""
    return len(getattr(tree, pool.free))


def n_live(tree: Tree, pool: Pool) -> int:
    """Return how many ids of a pool are in use."""
    return size_of(tree, pool) - int(tree.counts[pool.n_free_at])


def grown(tree: Tree, pool: Pool, n_needed: int, fanout: int) -> Tree:
    """Let a pool have `n_needed` free ids: enlarge its arrays by half or more, and put the new ids on its stack."""
    n_free = int(tree.counts[pool.n_free_at])
    if n_free >= n_needed:
        return tree
    n_old = size_of(tree, pool)
    n_new = n_old + max(n_needed - n_free, n_old // 2, 8)
    factor = fanout if pool is NODES else 1
    arrays = {name: resized(getattr(tree, name), n_new * factor) for name in pool.arrays}
    free = resized(getattr(tree, pool.free), n_new)
    free[n_free : n_free + n_new - n_old] = np.arange(n_new - 1, n_old - 1, -1)
    tree.counts[pool.n_free_at] += n_new - n_old
    return tree._replace(**arrays, **{pool.free: free})


def repacked(tree: Tree, rows: Rows, n_new: int) -> Tree:
    """Move rows together, into an array of a new length."""
    starts, items = packed(getattr(tree, rows.starts), getattr(tree, rows.sizes), getattr(tree, rows.items))
    tree.counts[rows.used_at] = len(items)
    return tree._replace(**{rows.items: resized(items, n_new), rows.starts: starts})


def renumbered(tree: Tree, pool: Pool, fanout: int) -> tuple[Tree, NDArray[np.int32]]:
    """Keep only the rows of a pool that are in use; return the tree and the new ids. Node 0 and leaf 0 stay."""
    is_live = np.ones(size_of(tree, pool), dtype=np.bool_)
    is_live[getattr(tree, pool.free)[: tree.counts[pool.n_free_at]]] = False
    # Free rows may still hold old ids; these need only stay within the bounds.
    new_ids = np.maximum(np.cumsum(is_live) - 1, 0).astype(np.int32)
    is_kept = np.repeat(is_live, fanout) if pool is NODES else is_live
    arrays: dict[str, Any] = {name: getattr(tree, name)[is_kept] for name in pool.arrays}
    arrays[pool.free] = np.zeros(int(is_live.sum()), dtype=np.int32)
    tree.counts[pool.n_free_at] = 0
    tree = tree._replace(**arrays)
    chosen = (tree.slots & 3) == pool.kind
    tree.slots[chosen] = new_ids[tree.slots[chosen] >> 2].astype(np.uint32) << 2 | pool.kind
    if pool is LEAVES:
        tree.equals[:] = new_ids[tree.equals]
        tree.neighbours[:] = np.where(tree.neighbours < 0, -1, new_ids[tree.neighbours])
        tree.counts[kernels.LAST_LEAF] = new_ids[tree.counts[kernels.LAST_LEAF]]
    return tree, new_ids


def resized(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Return a copy of an array with more rows, or fewer."""
    resized = np.zeros((n, *array.shape[1:]), dtype=array.dtype)
    n_kept = min(n, len(array))
    resized[:n_kept] = array[:n_kept]
    return resized


def packed(
    starts: NDArray[np.int64], sizes: NDArray[Any], items: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return (starts, items) with the rows one after the other."""
    ends = np.cumsum(sizes, dtype=np.int64)
    new_starts = ends - sizes
    n = int(ends[-1]) if len(ends) else 0
    return new_starts, items[np.repeat(starts - new_starts, sizes) + np.arange(n)]
