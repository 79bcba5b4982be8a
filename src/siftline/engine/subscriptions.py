"""The subscriptions of an engine by slot: ids, weights, tenants, and the expressions in the form they were given."""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from siftline.encoding.growable import Growable, GrowableBits
from siftline.encoding.programs import Programs
from siftline.errors import DuplicateIdError, SubscriptionError, UnknownIdError
from siftline.ids import INT64, check_type
from siftline.ids import Id as Id
from siftline.kernels.sharing import chained, with_duplicates
from siftline.language.printer import to_text
from siftline.language.text import parse_stored
from siftline.model import Expression, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from siftline.operators.stage import Stage

# Up to this many ids are looked up one by one, more with one array operation.
_LOOKUPS_MAX: Final = 8
_NO_TENANT: Final = -1
_NO_OWNER: Final = -1
_LAST: Final = -1
# How many packed expressions one tuple holds.
_CHUNK: Final = 256
# How many unpacked expressions are cached.
_MOST_UNPACKED: Final = 1024
# How many ids of a snapshot one look-up adds to the dict of ids.
_IDS_AT_ONCE: Final = 4096
# Held while ids of a snapshot are added to the dict of ids.
_looking_up: Final = threading.Lock()


class Expressions(Protocol):
    """The expressions of consecutive slots, in the form in which they were given."""

    def __len__(self) -> int:
        """Return the number of expressions."""

    def expression(self, position: int) -> Expression:
        """Return one expression."""

    def select(self, positions: NDArray[np.int64]) -> Expressions:
        """Return only the expressions at these positions."""


class ParsedExpressions:
    """Parsed expressions, packed as plain tuples (see `model/packing.py`), in chunks that are tuples too."""

    __slots__ = ("_chunks", "_last", "_unpacked")

    def __init__(self, expressions: Iterable[Expression]) -> None:
        self._chunks: list[tuple[Any, ...]] = []
        self._last: list[Any] = []
        self._unpacked: dict[int, Expression] = {}  # a cache by position
        known: dict[int, Any] = {}  # by object: repeated texts are parsed once
        for expression in expressions:
            packed = known.get(id(expression))
            if packed is None:
                packed = known[id(expression)] = pack(expression)
            self.append(packed)

    def __len__(self) -> int:
        return len(self._chunks) * _CHUNK + len(self._last)

    def append(self, packed: Any) -> None:
        """Append a packed expression."""
        last = self._last
        last.append(packed)
        if len(last) == _CHUNK:
            self._chunks.append(tuple(last))  # before the list is replaced: see `packed`
            self._last = []

    def extend(self, others: ParsedExpressions) -> None:
        """Append the expressions of another group."""
        for chunk in (*others._chunks, others._last):
            for packed in chunk:
                self.append(packed)

    def packed(self, position: int) -> Any:
        """Return one packed expression; another thread may append meanwhile."""
        last = self._last
        chunk, place = divmod(position, _CHUNK)
        # `last` was read first: if the chunk does not exist yet, that list has the position.
        return self._chunks[chunk][place] if chunk < len(self._chunks) else last[place]

    def expression(self, position: int) -> Expression:
        """Return one expression."""
        expression = self._unpacked.get(position)
        if expression is None:
            if len(self._unpacked) >= _MOST_UNPACKED:
                self._unpacked = {}
            expression = self._unpacked[position] = unpack(self.packed(position))
        return expression

    def select(self, positions: NDArray[np.int64]) -> ParsedExpressions:
        """Return the expressions at these positions."""
        chosen = ParsedExpressions(())
        for position in positions.tolist():
            chosen.append(self.packed(position))
        return chosen

    def texts(self) -> list[str]:
        """Return all expressions as text."""
        return [to_text(unpack(self.packed(position))) for position in range(len(self))]


class TextExpressions:
    """Expressions as texts in an Arrow array (of a snapshot), parsed on demand."""

    def __init__(self, texts: Any) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def expression(self, position: int) -> Expression:
        """Parse one expression."""
        return _parse_cached(self._texts[position].as_py().decode("utf-8", "surrogatepass"))

    def select(self, positions: NDArray[np.int64]) -> TextExpressions:
        """Return the texts at these positions."""
        return TextExpressions(self._texts.take(positions))

    @property
    def array(self) -> Any:
        """The Arrow array."""
        return self._texts


@lru_cache(maxsize=65536)
def _parse_cached(text: str) -> Expression:
    return parse_stored(text)


class SubscriptionTable:
    """Slots with their id, weight and expression. Slots ascend and are not reused; `compacted` renumbers them.

    Subscriptions with the same expression may share one entry of the index: that of the first of them, their *leader*.
    The others are its *duplicates*, in a chain to which new ones are appended. When the leader is removed, its slot
    stays for the duplicates.

        slot              0   1   2   3   4
        leaders           0   1   0   3   0       0, 2 and 4 have the same expression
        next_duplicates   2  -1   4  -1  -1
    """

    def __init__(self) -> None:
        self.weights = Growable.empty(np.float64)
        self.is_live = Growable.empty(np.bool_)
        self._ids: Growable | list[str] | None = None  # numbers in an array, strings in a list
        self.numbers: Growable | None = None  # the ids of all slots, if they are numbers
        self._slots: dict[Id, int] = {}
        self._n_entered = 0  # of the slots of a snapshot, `_slots` has the ids of those below this
        self._n_restored = 0  # how many slots the snapshot had
        self._largest_id: int | None = -1
        self._parts: list[Expressions] = []
        self._part_starts: list[int] = []
        self.n_live = 0
        self.tenants: Growable | None = None  # the number of each slot's tenant, or -1; None before the first tenant
        self.tenant_numbers: dict[str, int] = {}
        self.n_unneeded = 0  # slots of removed subscriptions, except leaders that still have duplicates
        self.leaders: Growable | None = None  # None while there are no duplicates
        self.next_duplicates: Growable | None = None
        self.plain = GrowableBits(
            np.empty(0, dtype=np.bool_)
        )  # live slots without duplicates; used if there are duplicates
        # What kernels need to list duplicates: bits of `plain`, `next_duplicates`, `is_live`.
        self.sharing: tuple[Growable, Growable, Growable] | None = None
        self._n_members: dict[int, int] = {}  # by leader: its live duplicates, and itself while it is live
        self._lasts: dict[int, int] = {}
        self.stage: Stage | None = None  # for conditions with calls; None before the first
        self.owners: Growable | None = None  # the number of each slot's condition in the stage, or -1
        self.programs = Programs()  # of those slots that were candidates for an event
        self.removed: list[Id] | None = None  # the ids removed since a sweep began; None without a sweep

    @property
    def n_slots(self) -> int:
        """The number of slots ever given out, removed ones included."""
        return len(self.is_live)

    @property
    def parts(self) -> list[Expressions]:
        """The expressions, in groups of consecutive slots."""
        return self._parts

    # ids

    def slot(self, id: Id) -> int:
        """Return the slot of an id."""
        # True == 1 == 1.0 in Python, but neither True nor 1.0 is the id 1.
        slot = self._found(id) if type(id) in (int, str) else None
        if slot is None:
            raise UnknownIdError(f"there is no subscription with the id {id!r}")
        return slot

    def has(self, id: Id) -> bool:
        """Return whether a subscription has this id."""
        return type(id) in (int, str) and self._found(id) is not None

    def ids(self, slots: NDArray[np.int32]) -> list[Id]:
        """Return the ids of slots as Python values."""
        if isinstance(self._ids, list):
            ids = self._ids
            return [ids[slot] for slot in slots.tolist()]
        if self._ids is None:
            return []
        if len(slots) > _LOOKUPS_MAX:
            return self._ids.taken(slots).tolist()  # type: ignore[no-any-return]
        item = self._ids.item  # for a few ids, this takes half the time of indexing by an array
        return [item(slot) for slot in slots.tolist()]

    @property
    def are_ids_text(self) -> bool | None:
        """Whether ids are strings; None before the first."""
        return None if self._ids is None else isinstance(self._ids, list)

    def id_array(self) -> NDArray[np.int64]:
        """Return the integer ids of all slots."""
        assert isinstance(self._ids, Growable)
        return self._ids.view

    def id_list(self) -> list[str]:
        """Return the string ids of all slots."""
        assert isinstance(self._ids, list)
        return self._ids

    def next_id(self) -> int:
        """Return a new number for a subscription that was given no id."""
        if self.are_ids_text:
            raise SubscriptionError("this engine's ids are strings: a subscription needs an id")
        if self._largest_id is None:
            self._largest_id = -1 if self._ids is None else int(self.id_array().max(initial=-1))
        return max(self._largest_id + 1, 0)

    def check_ids(self, ids: Sequence[Id]) -> None:
        """Raise unless all ids are new, different, and of this engine's type."""
        is_text = self.are_ids_text
        kinds = set(map(type, ids))
        # For plain integers it is enough to check the extremes.
        for id in (min(ids), max(ids)) if kinds == {int} else ids:
            is_text = check_type(id, is_text)
        new = set(ids)
        if len(new) != len(ids) or not self._slot_of().keys().isdisjoint(new):
            seen = set(self._slot_of())
            duplicate = next(id for id in ids if id in seen or seen.add(id))  # type: ignore[func-returns-value]
            raise DuplicateIdError(f"the id {duplicate!r} is already in use")

    def check_id(self, id: Id) -> None:
        """Raise unless the id is new and of this engine's type."""
        if type(id) is not int or self.are_ids_text is not False or id not in INT64:
            check_type(id, self.are_ids_text)
        if self._found(id) is not None:
            raise DuplicateIdError(f"the id {id!r} is already in use")

    def enter_ids(self) -> None:
        """Add all ids of a snapshot to the dict of ids now."""
        self._slot_of()

    def _slot_of(self) -> dict[Id, int]:
        """Return the dict of all ids."""
        if self._n_entered < self._n_restored:
            with _looking_up:
                self._enter_ids(self._n_restored)
        return self._slots

    def _found(self, id: Id) -> int | None:
        """Return the slot of an id, if there is one.

        Each look-up adds a few thousand ids of a snapshot to the dict, because adding all at once would delay the first
        change. The ids that are not in the dict yet are scanned.
        """
        slot = self._slots.get(id)
        if slot is not None or self._n_entered == self._n_restored:
            return slot
        with _looking_up:
            self._enter_ids(self._n_entered + _IDS_AT_ONCE)
            slot = self._slots.get(id)
            return self._scanned(id) if slot is None else slot

    def _scanned(self, id: Id) -> int | None:
        """Return the slot of an id that is not in the dict yet, if there is one."""
        ids, place, end = self._ids, self._n_entered, self._n_restored
        if isinstance(ids, list):
            with contextlib.suppress(ValueError):  # it is not in the list
                while True:
                    place = ids.index(id, place, end)  # type: ignore[arg-type]
                    if self.is_live.item(place):
                        return place
                    place += 1
        elif ids is not None and isinstance(id, int) and -(2**63) <= id < 2**63:
            for found in np.flatnonzero(ids.view[place:end] == id).tolist():
                if self.is_live.item(place + found):
                    return place + int(found)
        return None

    def _enter_ids(self, end: int) -> None:
        """Add the ids of the live slots below `end` to the dict; under the lock."""
        first, end = self._n_entered, min(end, self._n_restored)
        live = np.flatnonzero(self.is_live.view[first:end]) + first
        self._slots.update(zip(self.ids(live.astype(np.int32)), live.tolist(), strict=True))
        self._n_entered = end

    # changes

    def append(self, ids: Sequence[Id], weights: Any, expressions: Expressions, tenants: Tenants = None) -> None:
        """Give the next slots to subscriptions whose ids were checked."""
        if not len(ids):
            return
        first = self.n_slots
        self._append_tenants(len(ids), tenants)
        self._append_ids(ids)
        self.weights.extend(weights)
        self._slots.update(zip(ids, range(first, first + len(ids)), strict=True))
        self._append_expressions(expressions, first)
        if self.owners is not None:
            self.owners.extend(np.full(len(ids), _NO_OWNER, dtype=np.int32))
        self.is_live.extend(np.ones(len(ids), dtype=np.bool_))
        self.n_live += len(ids)
        if self.leaders is not None and self.next_duplicates is not None:
            self.leaders.extend(np.arange(first, first + len(ids), dtype=np.int32))
            self.next_duplicates.extend(np.full(len(ids), _LAST, dtype=np.int32))
            self.plain.extend(len(ids))

    def append_one(self, id: Id, weight: float, packed: Any, tenant: str | None) -> None:
        """Give the next slot to a subscription whose id was checked; a tenth of the time of `append`."""
        ids, parts, slot = self._ids, self._parts, self.n_slots
        if ids is None or not parts or type(parts[-1]) is not ParsedExpressions:
            self.append([id], [weight], ParsedExpressions([unpack(packed)]), tenant)
            return
        if tenant is not None or self.tenants is not None:
            self._append_tenants(1, tenant)
        ids.append(id)  # type: ignore[arg-type]
        if self._largest_id is not None and type(id) is int and id > self._largest_id:
            self._largest_id = id
        self.weights.append(weight)
        self._slots[id] = slot
        parts[-1].append(packed)
        if self.owners is not None:
            self.owners.append(_NO_OWNER)
        self.is_live.append(True)
        self.n_live += 1
        if self.leaders is not None and self.next_duplicates is not None:
            self.leaders.append(slot)
            self.next_duplicates.append(_LAST)
            self.plain.extend(1)

    def _append_tenants(self, n: int, tenants: Tenants) -> None:
        if tenants is None and self.tenants is None:
            return
        if self.tenants is None:
            self.tenants = Growable(np.full(self.n_slots, _NO_TENANT, dtype=np.int32))
        if tenants is None or isinstance(tenants, str):
            self.tenants.extend(np.full(n, self._tenant_number(tenants), dtype=np.int32))
        else:
            self.tenants.extend(np.array([self._tenant_number(tenant) for tenant in tenants], dtype=np.int32))

    def _tenant_number(self, tenant: str | None) -> int:
        return _NO_TENANT if tenant is None else self.tenant_numbers.setdefault(tenant, len(self.tenant_numbers))

    def tenant(self, slot: int) -> str | None:
        """Return the tenant of a slot."""
        number: int = _NO_TENANT if self.tenants is None else self.tenants.item(slot)
        return None if number == _NO_TENANT else list(self.tenant_numbers)[number]

    def slots_of_tenant(self, tenant: str, first: int) -> NDArray[np.int32]:
        """Return the slots from `first` on that belong to a tenant."""
        number = self.tenant_numbers.get(tenant)
        if self.tenants is None or number is None:
            return np.empty(0, dtype=np.int32)
        return (np.flatnonzero(self.tenants.view[first:] == number) + first).astype(np.int32)

    def _take_ids(self, ids: Growable | list[str] | None) -> None:
        """Use this list or array for the ids of all slots."""
        self._ids = ids
        self.numbers = ids if isinstance(ids, Growable) else None

    def _append_ids(self, ids: Sequence[Id]) -> None:
        if self._ids is None:
            self._take_ids([] if isinstance(ids[0], str) else Growable.empty(np.int64))
        assert self._ids is not None
        self._ids.extend(ids)  # type: ignore[arg-type]
        if isinstance(self._ids, Growable) and self._largest_id is not None:
            self._largest_id = max(self._largest_id, int(max(ids)))

    def _append_expressions(self, expressions: Expressions, first: int) -> None:
        last = self._parts[-1] if self._parts else None
        if isinstance(last, ParsedExpressions) and isinstance(expressions, ParsedExpressions):
            last.extend(expressions)
        else:
            self._parts.append(expressions)
            self._part_starts.append(first)

    def remove(self, ids: Sequence[Id], slots: NDArray[np.int32]) -> NDArray[np.int32]:
        """Remove subscriptions; return the slots that the index may remove."""
        known = self._slot_of()
        for id in ids:
            del known[id]
        if self.removed is not None:
            self.removed += ids
        self.is_live.view[slots] = False
        self.n_live -= len(slots)
        if self.leaders is None:
            self.n_unneeded += len(slots)
            return slots
        self.plain.clear(slots.tolist())
        return np.array([entry for slot in slots.tolist() for entry in self._released(slot)], dtype=np.int32)

    def remove_one(self, id: Id, slot: int) -> NDArray[np.int32]:
        """Remove one subscription; return the slots that the index may remove."""
        with _looking_up:  # so that `_enter_ids` does not add the id of a slot that is no longer live
            self._slots.pop(id, None)
            self.is_live.set(slot, False)
        if self.removed is not None:
            self.removed.append(id)
        self.n_live -= 1
        if self.leaders is None:
            self.n_unneeded += 1
            return np.array([slot], dtype=np.int32)
        self.plain.clear([slot])
        return np.array(self._released(slot), dtype=np.int32)

    # conditions with calls

    def call(self, slots: Sequence[int], schedule: str) -> None:
        """Add the conditions of some slots to the stage that calls operators."""
        if self.stage is None or self.owners is None:
            from siftline.operators.stage import Stage

            self.owners = Growable(np.full(self.n_slots, _NO_OWNER, dtype=np.int32))
            self.stage = Stage(schedule)
        for slot in slots:
            self.owners.set(slot, self.stage.add(self.expression(slot)))

    def uncall(self, slots: NDArray[np.int32]) -> None:
        """Remove the conditions of slots that are no longer needed from the stage."""
        if self.stage is None or self.owners is None:
            return
        for owner in self.owners.view[slots].tolist():
            if owner != _NO_OWNER:
                self.stage.remove(owner)

    # sharing

    def with_duplicates(self, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the live ones among some slots and their duplicates."""
        assert self.sharing is not None
        starts = np.array([0, len(slots)])
        found: NDArray[np.int32]
        _, found = with_duplicates(starts, slots, *(each.view for each in self.sharing))
        return found

    def add_duplicates(self, slots: Sequence[int], leaders: Sequence[int]) -> None:
        """Make the newest slots duplicates of leaders with the same expression."""
        if self.leaders is None:
            self.leaders = Growable(np.arange(self.n_slots, dtype=np.int32))
            self.next_duplicates = Growable(np.full(self.n_slots, _LAST, dtype=np.int32))
            self.plain = GrowableBits(self.is_live.view)
            self.sharing = self.plain.words, self.next_duplicates, self.is_live
        assert self.next_duplicates is not None
        for slot, leader in zip(slots, leaders, strict=True):
            self.leaders.set(slot, leader)
            self._n_members[leader] = self._n_members.get(leader, int(self.is_live.item(leader))) + 1
            # A concurrent reader of the chain sees this slot or does not; both are right.
            last = self._lasts.get(leader, leader)
            self.next_duplicates.set(last, slot)
            self.plain.clear([last])
            self._lasts[leader] = slot

    def is_entry(self, slot: int) -> bool:
        """Return whether the index still has the entry of a slot that was a leader."""
        return bool(self.is_live.item(slot)) or self._n_members.get(slot, 0) > 0

    def entries(self, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the ascending slots under which the index has some subscriptions."""
        return slots if self.leaders is None else np.unique(self.leaders.view[slots])

    @property
    def n_duplicates(self) -> int:
        """The number of live duplicates."""
        return sum(n - int(self.is_live.item(leader)) for leader, n in self._n_members.items() if n)

    def unneeded(self) -> NDArray[np.int32]:
        """Return the slots of removed subscriptions, except leaders that still have duplicates."""
        is_needed = self.is_live.view.copy()
        is_needed[self._leaders_of_duplicates()] = True
        return np.flatnonzero(~is_needed).astype(np.int32)

    def _leaders_of_duplicates(self) -> NDArray[np.int32]:
        """Return all leaders that have live members, removed or not."""
        return np.array([leader for leader, n in self._n_members.items() if n], dtype=np.int32)

    def _released(self, slot: int) -> list[int]:
        """Return the entry of a removed slot if no live subscription shares it any more."""
        assert self.leaders is not None
        leader = self.leaders.item(slot)
        self.n_unneeded += 1
        if leader not in self._n_members:
            return [slot]
        self._n_members[leader] -= 1
        if self._n_members[leader] == 0:
            self.n_unneeded += leader != slot  # a leader that was removed before becomes unneeded only now
            return [leader]
        self.n_unneeded -= leader == slot
        return []

    def expression(self, slot: int) -> Expression:
        """Return the expression in a slot."""
        part = bisect_right(self._part_starts, slot) - 1
        return self._parts[part].expression(slot - self._part_starts[part])

    def packed(self, slot: int) -> Any:
        """Return the packed expression of a slot; slots with the same expression share the object."""
        place = bisect_right(self._part_starts, slot) - 1
        part, position = self._parts[place], slot - self._part_starts[place]
        return part.packed(position) if type(part) is ParsedExpressions else pack(part.expression(position))

    def frozen(self) -> SubscriptionTable:
        """Return the table as it is now, for reading it while other threads change it."""
        other = SubscriptionTable()
        other.__dict__.update(self.__dict__)
        other.is_live = Growable(self.is_live.view.copy())
        other._parts, other._part_starts = self._parts.copy(), self._part_starts.copy()
        other._n_members, other.tenant_numbers = self._n_members.copy(), self.tenant_numbers.copy()
        for name in ("tenants", "leaders", "owners"):
            growable = getattr(self, name)
            setattr(other, name, None if growable is None else Growable(growable.view.copy()))
        return other

    def compacted(self) -> tuple[SubscriptionTable, NDArray[np.int32]]:
        """Return a table of the needed slots only, and the new slot of each old one (-1 for none)."""
        is_kept = self.is_live.view.copy()
        is_kept[self._leaders_of_duplicates()] = True
        new_slots = np.where(is_kept, np.cumsum(is_kept) - 1, -1).astype(np.int32)
        table = SubscriptionTable()
        table.programs.regex_calls = self.programs.regex_calls
        for part, start in zip(self._parts, self._part_starts, strict=True):
            kept = np.flatnonzero(is_kept[start : start + len(part)])
            slots = (kept + start).astype(np.int32)
            table.append(self.ids(slots), self.weights.view[slots], part.select(kept))
        if self.tenants is not None:
            table.tenants, table.tenant_numbers = Growable(self.tenants.view[is_kept]), self.tenant_numbers.copy()
        if table._ids is None and self._ids is not None:
            table._take_ids([] if self.are_ids_text else Growable.empty(np.int64))
        if self.leaders is not None:
            table._restore_sharing(new_slots[self.leaders.view[is_kept]], self.is_live.view[is_kept])
        if self.stage is not None and self.owners is not None:
            owners = self.owners.view[is_kept].copy()
            has_calls = owners != _NO_OWNER
            table.stage = self.stage.swept(owners[has_calls])
            owners[has_calls] = np.arange(np.count_nonzero(has_calls))
            table.owners = Growable(owners)
        return table, new_slots

    def _restore_sharing(self, leaders: NDArray[np.int32], is_live: NDArray[np.bool_]) -> None:
        """Set leaders and live flags; a slot that is not live is kept for its duplicates."""
        self._slots, self._n_entered, self._n_restored = {}, 0, len(leaders)
        self.is_live, self.n_live = Growable(is_live), int(np.count_nonzero(is_live))
        duplicates = np.flatnonzero(leaders != np.arange(len(leaders)))
        if not len(duplicates):
            return
        self.leaders, self.next_duplicates = Growable(leaders), Growable(chained(leaders))
        self.plain = GrowableBits(is_live & (self.next_duplicates.view == _LAST))
        self.sharing = self.plain.words, self.next_duplicates, self.is_live
        shared, counts = np.unique(leaders[duplicates], return_counts=True)
        self._n_members = dict(zip(shared.tolist(), (counts + is_live[shared]).tolist(), strict=True))
        self._lasts = dict(zip(leaders[duplicates].tolist(), duplicates.tolist(), strict=True))

    @classmethod
    def restored(
        cls,
        ids: Any,
        weights: NDArray[np.float64],
        parts: Sequence[Expressions],
        tenants: tuple[NDArray[np.int32], list[str]] | None,
        sharing: tuple[NDArray[np.int32], NDArray[np.bool_]] | None,
    ) -> SubscriptionTable:
        """Return a table over the arrays of a snapshot; the dict of ids is filled later."""
        table = cls()
        table._take_ids(ids if isinstance(ids, list) or ids is None else Growable(ids))
        table._n_restored = len(weights)
        table._largest_id = None
        table.weights = Growable(weights)
        table.is_live = Growable(np.ones(len(weights), dtype=np.bool_))
        table.n_live = len(weights)
        if tenants is not None:
            table.tenants = Growable(tenants[0])
            table.tenant_numbers = {name: number for number, name in enumerate(tenants[1])}
        if sharing is not None:
            table._restore_sharing(*sharing)
        for part in parts:
            table._part_starts.append(table._part_starts[-1] + len(table._parts[-1]) if table._parts else 0)
            table._parts.append(part)
        return table

    def check(self) -> None:
        """Assert that ids, slots and flags agree."""
        assert self.n_live == np.count_nonzero(self.is_live.view) == len(self._slot_of())
        live = np.flatnonzero(self.is_live.view).astype(np.int32)
        assert [self.slot(id) for id in self.ids(live)] == live.tolist()
        assert sum(len(part) for part in self._parts) == self.n_slots == len(self.weights)
        assert self.tenants is None or len(self.tenants) == self.n_slots
        if self.leaders is None or self.next_duplicates is None:
            assert self.n_unneeded == self.n_slots - self.n_live
            return
        leaders = self.leaders.view
        assert len(leaders) == self.n_slots
        assert (leaders[leaders] == leaders).all()
        assert np.array_equal(self.next_duplicates.view, chained(leaders))
        assert np.array_equal(self.plain.flags, self.is_live.view & (self.next_duplicates.view == _LAST))
        entries = np.unique(leaders[live])
        needed = np.union1d(live, entries)
        assert self.n_unneeded == self.n_slots - len(needed)
        assert all(self.is_entry(slot) for slot in entries.tolist())


# The tenants of many subscriptions: one for all, or one for each.
Tenants: TypeAlias = "str | Sequence[str | None] | None"
