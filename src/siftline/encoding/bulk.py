"""Constants of whole tables on their way into the domains, without an object for each of them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siftline.encoding.flat_domains import binary_buffers, fresh_numbers, fresh_texts, read_only, taken_texts
from siftline.kernels.columns import distinct_by_attribute, without_repeats
from siftline.kernels.lines import known_numbers, known_texts
from siftline.kernels.locate import NUMBERS, STRINGS, text_heads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from siftline.encoding.domains import Domains, Move
    from siftline.encoding.flat_domains import Base


class Numbers(NamedTuple):
    """Different numbers by attribute, ascending, those of attribute a at starts[a] : starts[a + 1]."""

    starts: NDArray[np.int64]
    values: NDArray[np.float64]

    def known(self, base: Base) -> NDArray[np.bool_]:
        """Return which of them are constants already."""
        flat = base.flat
        return known_numbers(self.starts, self.values, flat.lines, flat.numbers, flat.residuals)

    def chosen(self, is_chosen: NDArray[np.bool_]) -> Numbers:
        """Return some of them."""
        return Numbers(_chosen_starts(self.starts, is_chosen), self.values[is_chosen])

    def listed(self) -> list[float]:
        """Return them as Python objects."""
        values: list[float] = self.values.tolist()
        return values


class Texts(NamedTuple):
    """Different strings by attribute, ascending; string i is texts[text_starts[i] : text_starts[i + 1]]."""

    starts: NDArray[np.int64]
    text_starts: NDArray[np.int64]
    texts: NDArray[np.uint8]

    def known(self, base: Base) -> NDArray[np.bool_]:
        """Return which of them are constants already."""
        flat, starts, texts = base.flat, read_only(self.text_starts), read_only(self.texts)
        heads = text_heads(texts, starts)
        return known_texts(self.starts, heads, starts, texts, flat.lines, flat.heads, flat.text_starts, flat.texts)

    def chosen(self, is_chosen: NDArray[np.bool_]) -> Texts:
        """Return some of them."""
        text_starts, texts = taken_texts(self.text_starts, self.texts, np.flatnonzero(is_chosen))
        return Texts(_chosen_starts(self.starts, is_chosen), text_starts, texts)

    def listed(self) -> list[str]:
        """Return them as Python objects."""
        data, bounds = self.texts.tobytes(), self.text_starts.tolist()
        return [data[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(bounds)]


def _chosen_starts(starts: NDArray[np.int64], is_chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(is_chosen)])[starts]


def distinct_numbers(parts: Sequence[tuple[NDArray[np.int32], NDArray[np.float64]]], n_attributes: int) -> Numbers:
    """Return all different numbers of some columns, each with the attributes that its numbers belong to."""
    owners = np.concatenate([np.zeros(0, np.int32), *(owners for owners, _ in parts)])
    values = np.concatenate([np.zeros(0, np.float64), *(values for _, values in parts)])
    owners, values = without_repeats(owners, values)
    starts, found = distinct_by_attribute(owners, values, n_attributes)
    return Numbers(starts, found)


def distinct_texts(parts: Sequence[tuple[NDArray[np.int32], Any]], n_attributes: int) -> Texts:
    """Return all different strings of some Arrow columns, each with the attributes that its strings belong to."""
    owners = np.concatenate([np.zeros(0, np.int32), *(owners for owners, _ in parts)])
    coded = pa.concat_arrays([pa.array([], pa.large_binary()), *(_binaries(values) for _, values in parts)])
    coded = coded.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order), dtype=np.float64)
    ranks[order] = np.arange(len(order))
    places = coded.indices.to_numpy(zero_copy_only=False)
    owners, found_ranks = without_repeats(owners, ranks[places])
    starts, found = distinct_by_attribute(owners, found_ranks, n_attributes)
    all_starts, all_texts = binary_buffers(coded.dictionary)
    text_starts, texts = taken_texts(all_starts, all_texts, order[found.astype(np.int64)])
    return Texts(starts, text_starts, texts)


def _binaries(values: Any) -> Any:
    return values.cast(pa.large_binary())


def add_in_bulk(domains: Domains, numbers: Numbers, texts: Texts, others: Mapping[int, Sequence[Any]]) -> list[Move]:
    """Take constants into the domains, `others` by attribute; return the labels that had to move.

    Attributes that had no constants of a kind get theirs as arrays. The rest goes the way of single additions.
    """
    n_attributes = len(domains)
    lines = np.zeros((n_attributes, 2), dtype=np.bool_)
    base = domains.merged_base()
    lines[:, 0] = base.flat.lines[:, NUMBERS + 1] > base.flat.lines[:, NUMBERS]
    lines[:, 1] = base.flat.lines[:, STRINGS + 1] > base.flat.lines[:, STRINGS]
    for attribute, values in others.items():
        for value in values:
            lines[attribute, int(type(value) is str)] = True
    constants: dict[int, list[Any]] = {attribute: list(values) for attribute, values in others.items()}
    chosen: list[Any] = []
    parts: list[Numbers | Texts] = [numbers, texts]
    for kind, part in enumerate(parts):
        is_fresh = np.repeat(~lines[:, kind], np.diff(part.starts))
        _collect(part.chosen(~is_fresh & ~part.known(base)), constants)
        chosen.append(part.chosen(is_fresh))
    moves = domains.add_to(constants)
    new_numbers, new_texts = chosen
    domains.take_fresh(
        fresh_numbers(new_numbers.starts, new_numbers.values),
        fresh_texts(new_texts.starts, new_texts.text_starts, new_texts.texts),
    )
    return moves


def _collect(part: Numbers | Texts, constants: dict[int, list[Any]]) -> None:
    """Add the constants of a part to those of their attributes."""
    values = part.listed()
    for attribute in np.flatnonzero(np.diff(part.starts)).tolist():
        start, end = int(part.starts[attribute]), int(part.starts[attribute + 1])
        constants.setdefault(attribute, []).extend(values[start:end])
