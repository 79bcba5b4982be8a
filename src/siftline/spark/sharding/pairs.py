"""Pairs: the filter of a shard, a set of pairs of attributes. An event without any of them matches nothing there.

A pair is the pivot of a clause, its rarest attribute, with the next rarest one that it needs. An event that has a pivot
by chance seldom has the second attribute too, so the filter avoids most visits that pivots alone would cause: with
`products` in 8 shards, 1.2 visits per event instead of 3.7. A filter is a file beside the snapshot, of 2.5 to 5 bytes
per subscription. Routers read the filters of all shards; if these are too large together, pivots alone decide.
"""

from __future__ import annotations

import zlib
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np

from siftline.errors import SnapshotError
from siftline.kernels.routing import BITS_PER_PAIR, PairFilters, no_filters, pair_filter

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from siftline.spark.directory.versions import IndexDirectory
    from siftline.spark.sharding.pivots import Pivots, Ranks

FILE: Final = "pairs.npy"
# If all filters together are larger than this, they are not read, because every router would hold them in memory.
_FILTERS_BYTES_MAX: Final = 1 << 28


def name_hashes(names: Iterable[str]) -> NDArray[np.uint64]:
    """Return a hash of each name, which is the same on all machines."""
    digests = [blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in names]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def save_pairs(snapshot: Path, pivots: Pivots, ranks: Ranks) -> int:
    """Write the filter of a shard beside its snapshot; return a checksum."""
    pairs = np.unique(np.stack([pivots.clauses, pivots.partners]), axis=1)
    pairs = pairs[:, pairs[0] < len(ranks.names)]  # every event visits the shard of a clause without a pivot
    hashes = ranks.hashes
    n_words = 1
    while 64 * n_words < BITS_PER_PAIR * pairs.shape[1]:
        n_words *= 2
    words = pair_filter(hashes[pairs[0]], hashes[pairs[1]], n_words)
    np.save(snapshot / FILE, words)
    return zlib.crc32(words)


def filters_of(directory: IndexDirectory, names: list[str], n_shards: int) -> PairFilters:
    """Return the filters of all shards, and an empty one for the changes after them; none if they are too large."""
    loaded = [_loaded(directory, number) for number in range(len(directory.shards))]
    loaded += [np.zeros(0, dtype=np.uint64)] * (n_shards - len(loaded))
    if sum(words.nbytes for words in loaded) > _FILTERS_BYTES_MAX:
        return no_filters(len(names), n_shards)
    sizes = np.array([len(words) for words in loaded], dtype=np.int64)
    masks = np.where(sizes > 0, sizes * 64 - 1, 0).astype(np.uint64)
    words = np.concatenate(loaded)
    return PairFilters(name_hashes(names), words, np.cumsum(sizes) - sizes, masks)


def _loaded(directory: IndexDirectory, number: int) -> NDArray[np.uint64]:
    """Return the words of the filter of a shard; there are none if it has no filter."""
    checksum = directory.shards[number].pairs
    if checksum is None:
        return np.zeros(0, dtype=np.uint64)
    file = directory.shard_path(number) / FILE
    try:
        words: NDArray[np.uint64] = np.load(file, mmap_mode="r")
        is_good = zlib.crc32(words.data) == checksum
    except (OSError, ValueError):
        is_good = False
    if not is_good:
        raise SnapshotError(f"{file} is damaged or missing")
    return words
