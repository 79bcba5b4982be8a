"""The values of events as programs read them: parsed from JSON again, or taken from the model of the event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.flat_domains import split_numbers
from siftline.encoding.json_leaves import FALSE, NULL, NUMBER, OK, SLOW, STRING, TRUE
from siftline.kernels.leaves import LeafColumns
from siftline.model.predicate import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from siftline.encoding.events import EncodedEvents
    from siftline.encoding.programs import ProgramView
    from siftline.model.event import Leaf

_KINDS: Final[dict[type, int]] = {type(None): NULL, int: NUMBER, float: NUMBER, str: STRING}


class Values(NamedTuple):
    """The values of some events, as far as programs ask about their attributes.

    Attributes
    ----------
    columns, starts
        The leaves; those of event i are from starts[i] to starts[i + 1].
    odd : int64[n]
        The events whose values do not fit into columns.
    """

    columns: LeafColumns
    starts: NDArray[np.int64]
    odd: NDArray[np.int64]


def values_of(events: EncodedEvents, positions: NDArray[np.int64], view: ProgramView) -> Values:
    """Return the values of some events, which ascend and are at least one."""
    parsed = getattr(events.source, "parsed", None)
    leaves = None if parsed is None else parsed(positions, view.paths, keeps_strings=view.asks_strings)
    if leaves is None:
        models = (events.event(position).leaves for position in positions.tolist())
        return values_of_leaves(models, view.names, keeps_strings=view.asks_strings)
    return Values(leaves.columns, leaves.event_starts, np.flatnonzero(leaves.statuses != OK))


def values_of_leaves(
    events: Iterable[Mapping[str, Sequence[Leaf]]], names: Mapping[str, int], *, keeps_strings: bool = False
) -> Values:
    """Return the values of events whose leaves are known by path; strings of other paths as of one more attribute.

    >>> values = values_of_leaves([{"a": [1, None], "b": ["x"]}, {"a": [2**70]}], {"a": 0, "b": 1})
    >>> sorted(values.columns.kinds.tolist()), values.starts.tolist(), values.odd.tolist()
    ([0, 3, 4], [0, 3, 3], [1])
    """
    attributes: list[int] = []
    leaves: list[Leaf] = []
    ends, statuses = [0], []
    for by_path in events:
        n_before = len(leaves)
        for path in by_path.keys() & names.keys():
            values = by_path[path]
            attributes += [names[path]] * len(values)
            leaves += values
        if keeps_strings:
            others = by_path.keys() - names.keys()
            strings = [leaf for path in others for leaf in by_path[path] if type(leaf) is str]
            attributes += [len(names)] * len(strings)
            leaves += strings
        is_odd = any(type(leaf) is int and not INT64_MIN <= leaf <= INT64_MAX for leaf in leaves[n_before:])
        if is_odd:
            del attributes[n_before:], leaves[n_before:]
        statuses.append(SLOW if is_odd else OK)
        ends.append(len(leaves))
    return Values(columns_of(attributes, leaves), np.array(ends), np.flatnonzero(statuses))


def columns_of(attributes: Sequence[int], leaves: Sequence[Leaf]) -> LeafColumns:
    """Return leaves as parsed JSON would have them."""
    texts = [leaf.encode("utf-8", "surrogatepass") if type(leaf) is str else b"" for leaf in leaves]
    ends = np.cumsum([0, *map(len, texts)])
    plain: list[Any] = [leaf if type(leaf) is int or type(leaf) is float else 0 for leaf in leaves]
    numbers, residuals = split_numbers(plain)
    return LeafColumns(
        attributes=np.array(attributes, dtype=np.int32),
        kinds=np.frombuffer(bytearray(map(_kind, leaves)), dtype=np.uint8),
        numbers=numbers,
        residuals=residuals,
        text_starts=ends[:-1],
        text_ends=ends[1:],
        texts=np.frombuffer(bytearray(b"".join(texts)), dtype=np.uint8),
    )


def _kind(leaf: Leaf) -> int:
    if type(leaf) is bool:
        return TRUE if leaf else FALSE
    return _KINDS[type(leaf)]
