"""Subsets of an engine's subscriptions, for matching only among them.

A small subset is scanned without the index: a thousand subscriptions take some microseconds. A large subset has a flag
for each slot, and slots that the index finds are looked up there. Both are prepared on first use and kept up to date:
new slots are examined once, a removed subscription never matches anyway, and after a sweep all is prepared again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from siftline.engine.write_buffer import WriteBuffer
from siftline.ids import plain_id_set

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from siftline.encoding.domains import Domains
    from siftline.engine.state import State
    from siftline.engine.subscriptions import SubscriptionTable
    from siftline.engine.updates import Updates
    from siftline.ids import AnyId, Id

# Up to this many subscriptions are scanned instead of looked up in the index.
SCANNED_SUBSET_MAX: Final = 1024


# The type of the argument `within`.
Within: TypeAlias = "Subset | Iterable[AnyId] | None"


class Chosen(Protocol):
    """A subset, prepared for one state of the engine."""

    @property
    def scan(self) -> WriteBuffer | None:
        """The clauses to scan instead of using the index, if the subset is small."""

    def has(self, slots: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which of some slots belong to the subset."""


class Prepared(NamedTuple):
    """A subset that was prepared for one state of the engine."""

    table: SubscriptionTable
    domains: Domains
    n_seen: int  # how many slots were examined
    slots: NDArray[np.int32]  # ascending
    flags: NDArray[np.bool_] | None  # by slot, if the subset is large
    scan: WriteBuffer | None  # if the subset is small

    def fits(self, table: SubscriptionTable, domains: Domains) -> bool:
        """Return whether this is still up to date."""
        return self.table is table and self.domains is domains and self.n_seen == table.n_slots

    def has(self, slots: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which of some slots belong to the subset."""
        if self.flags is not None:
            # A slot that was added since may be found as a duplicate of an older one.
            return (slots < self.n_seen) & self.flags[np.minimum(slots, self.n_seen - 1)]
        if not len(self.slots):
            return np.zeros(len(slots), dtype=np.bool_)
        places = np.minimum(np.searchsorted(self.slots, slots), len(self.slots) - 1)
        return self.slots[places] == slots  # type: ignore[no-any-return]


class Subset:
    """The subscriptions with some ids, ignoring ids that an engine lacks; `Engine.subset` makes one.

    >>> from siftline import Engine
    >>> engine = Engine()
    >>> _ = engine.add_many([(1, "a = 1"), (2, "a > 0"), (3, "a = 1")])
    >>> chosen = engine.subset([1, 2, 99])
    >>> sorted(engine.match({"a": 1}, within=chosen)), engine.match({"a": 5}, within=chosen)
    ([1, 2], [2])
    """

    def __init__(self, ids: Iterable[AnyId]) -> None:
        self.ids = plain_id_set(ids)
        self._prepared: Prepared | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepared": None}

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"<siftline.Subset of {len(self.ids):,} ids>"

    def _slots(self, table: SubscriptionTable, first: int) -> NDArray[np.int32]:
        """Return the slots from `first` on that belong to the subset."""
        if first == 0 and len(self.ids) < table.n_slots:
            known = sorted(table.slot(id) for id in self.ids if table.has(id))
        else:
            new = table.ids(np.arange(first, table.n_slots, dtype=np.int32))
            known = [slot for slot, id in enumerate(new, first) if id in self.ids]
        return np.array(known, dtype=np.int32)

    def ready(self, state: State) -> Chosen | None:
        """Return the subset for the current state of the engine, None if it must be prepared first."""
        prepared = self._prepared
        fits = prepared is not None and prepared.fits(state.table, state.domains)
        return prepared if fits else None

    def prepare(self, updates: Updates) -> None:
        """Prepare the subset for the current state; under `writing`."""
        table, domains, before = updates.state.table, updates.state.domains, self._prepared
        if before is None or before.table is not table:
            self._prepared = _prepared(updates, self._slots(table, 0))
            return
        new = self._slots(table, before.n_seen)
        if len(new) or before.domains is not domains:
            self._prepared = _prepared(updates, np.concatenate([before.slots, new]))
            return
        flags = before.flags
        if flags is not None:
            flags = np.append(flags, np.zeros(table.n_slots - before.n_seen, dtype=np.bool_))
        self._prepared = before._replace(n_seen=table.n_slots, flags=flags)


def _prepared(updates: Updates, slots: NDArray[np.int32]) -> Prepared:
    table = updates.state.table
    slots = slots[table.is_live.view[slots]]
    if len(slots) <= SCANNED_SUBSET_MAX:
        scan = WriteBuffer.of(updates.clauses_of(table.entries(slots)))
        return Prepared(table, updates.state.domains, table.n_slots, slots, None, scan)
    flags = np.zeros(table.n_slots, dtype=np.bool_)
    flags[slots] = True
    return Prepared(table, updates.state.domains, table.n_slots, slots, flags, None)


class Tenant(Subset):
    """The subscriptions of one tenant."""

    def __init__(self, name: str) -> None:
        super().__init__(())
        self.name = name

    def _slots(self, table: SubscriptionTable, first: int) -> NDArray[np.int32]:
        return table.slots_of_tenant(self.name, first)


class Listed(Subset):
    """Ids for one match only: matches are looked up among them, because preparing would take longer."""

    def __init__(self, ids: AbstractSet[Id]) -> None:
        super().__init__(())
        self._ids = ids

    def ready(self, state: State) -> Chosen:
        """Return the ids with the current table."""
        return _Listed(self._ids, state.table)


class _Listed(NamedTuple):
    ids: AbstractSet[Id]
    table: SubscriptionTable
    scan: WriteBuffer | None = None

    def has(self, slots: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which of some slots belong to the subset."""
        return np.array([id in self.ids for id in self.table.ids(slots)], dtype=np.bool_)


def subset_of(within: Subset | Iterable[AnyId]) -> Subset:
    """Return the subset for an argument `within`."""
    if isinstance(within, Subset):
        return within
    if isinstance(within, (str, bytes)):
        raise TypeError("within must be ids or a subset, not one string")
    return Listed(plain_id_set(within))
