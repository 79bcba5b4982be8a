"""Parts: how an index that is built in bulk takes additions and removals while other threads match.

The papers' structures are sorted lists, tables and trees: quick to build from many subscriptions at once, slow or
unsafe to change under a running match. So an index is a list of a few immutable *parts*, old and large ones first. Each
part is a whole structure of the paper over its own subscriptions:

    bulk load of 1,000,000     [1,000,000]
    add 1, add 1, add 1        [1,000,000] [3]                 a small last part is rebuilt by each addition
    62 more, and another       [1,000,000] [65] [1]
    ...                        [1,000,000] [520] [17]          a part is merged with the next one, unless it is
                                                               at least eight times as large

An event is matched against every part, and each part costs some microseconds, so there should be few. A subscription is
rebuilt a few times while the index grows by a factor of eight. Removing clears a live flag. A part drops its dead
subscriptions when it is merged, or rebuilt because a quarter of them are dead; a part whose subscriptions are all dead
is dropped.

A merge has three steps, so that a long merge blocks no other thread: `merge` chooses the parts, `Merge.run` lays out
the new part, and `Merge.finish` replaces the old parts by it. No thread may change the index during the first and the
last step.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from siftline.encoding.clauses import Clauses, concatenate, select
from siftline.encoding.growable import Growable
from siftline.errors import TooLargeError
from siftline.indexes.protocol import Candidates, OneByOne
from siftline.kernels.codes import ABSENT
from siftline.kernels.literals import Literals
from siftline.kernels.pointers import handle_of
from siftline.kernels.verify import can_be_found, slots_of_clauses, verify_clauses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

    from siftline.encoding.domains import Domains
    from siftline.encoding.events import EncodedEvents
    from siftline.encoding.statistics import Statistics
    from siftline.indexes.protocol import Batch
    from siftline.model import Leaf

# An addition rebuilds the last part if that has at most this many clauses; otherwise it starts another part.
_REBUILT_CLAUSES_MAX: Final = 64
# A part is merged with the parts behind it, unless it is at least this many times as large as they are together.
_RATIO: Final = 8
# A part is rebuilt without its dead subscriptions when at least one of this many is dead.
_DEAD_RATIO: Final = 4
# With fewer dead subscriptions than this, a part is not rebuilt.
_DEAD_MIN: Final = 64

# Attributes that a copy of a part does not take over.
_NOT_COPIED: Final = frozenset({"batching", "handles", "workspaces"})

_ANY_SIZE: Final = 2**63


class Found(NamedTuple):
    """What one part found for one event, and how much work that was."""

    clauses: NDArray[np.int32]  # clauses of the part that hold; they may repeat
    n_candidates: int
    n_predicates: int
    n_lists: int


class OneEvent(NamedTuple):
    """One event as an index sees it: an attribute occurs once for each of its values."""

    attributes: NDArray[np.int32]
    codes: NDArray[np.int32]
    events: EncodedEvents
    position: int

    @property
    def leaves(self) -> Mapping[str, Sequence[Leaf]]:
        """The values themselves, by path, for conditions that codes cannot decide."""
        return self.events.event(self.position).leaves


def one_event(events: EncodedEvents, position: int) -> OneEvent:
    """Return the event at a position."""
    start, end = events.starts[position], events.starts[position + 1]
    return OneEvent(events.attributes[start:end], events.codes[start:end], events, position)


class Part:
    """Some subscriptions, laid out for the index. Only the count of dead subscriptions ever changes."""

    __slots__ = (
        "arrays",
        "batching",
        "clauses",
        "first_slot",
        "handles",
        "has_repeated_slots",
        "literals",
        "n_dead",
        "n_slots",
        "others",
        "workspaces",
    )

    def __init__(self, clauses: Clauses, others: NDArray[np.int32], arrays: Any) -> None:
        self.clauses = clauses
        self.literals = clauses.literals
        self.others = others  # clauses that have only vetoes: every event may match them
        self.arrays = arrays
        self.n_slots = int(np.count_nonzero(np.diff(clauses.slots, prepend=-1)))
        self.has_repeated_slots = self.n_slots < clauses.n_clauses
        self.first_slot = int(clauses.slots[0]) if clauses.n_clauses else 0
        self.n_dead = 0
        self.batching: Any = None  # what the index keeps for batches against this part; made on first use
        self.workspaces: dict[int, Any] = {}  # by thread: what it keeps for matching against this part
        self.handles: dict[type, Any] = {}  # see `handle`

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name not in _NOT_COPIED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self.batching = None
        self.workspaces = {}
        self.handles = {}

    def handle(self, kind: type, prefix: str = "") -> Any:
        """Return the handle of the part's arrays (or literals) that the fields of `kind` name, after a prefix.

        Calling a kernel with one handle is faster than with ten arrays, or with a tuple of them.
        """
        handle = self.handles.get(kind)
        if handle is None:  # two threads may both make one, which does no harm
            names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
            arrays = self.literals if kind is Literals else self.arrays
            handle = handle_of(kind(*(getattr(arrays, prefix + name) for name in names)))
            self.handles[kind] = handle
        return handle

    @property
    def n_clauses(self) -> int:
        """The number of clauses, including those of dead subscriptions."""
        return self.clauses.n_clauses


class Scratch(threading.local):
    """Arrays that a kernel uses and leaves as it found them; each thread has its own."""

    def __init__(self) -> None:
        self.arrays: dict[str, tuple[NDArray[Any], int]] = {}

    def array(self, name: str, n: int, dtype: DTypeLike, fill: int = 0) -> NDArray[Any]:
        """Return an array of at least n elements, which all equal `fill`."""
        found = self.arrays.get(name)
        if found is None or len(found[0]) < n:
            found = np.full(n + n // 4, fill, dtype=dtype), fill
            self.arrays[name] = found
        return found[0]

    def check(self) -> None:
        """Assert that every array was left as it was."""
        assert all((array == fill).all() for array, fill in self.arrays.values())


class Context(NamedTuple):
    """What the layout of a part may depend on besides its clauses."""

    domains: Domains
    statistics: Statistics | None


class Prepared(NamedTuple):
    """New subscriptions, laid out: the parts that are replaced, the new part, and which slots can match."""

    replaced: list[Part]
    made: list[Part]
    is_live: NDArray[np.bool_]
    statistics: Statistics | None


class PartedIndex(OneByOne, ABC):
    """An index of parts. This class handles changes; a subclass lays out one part and matches one event against it."""

    name: ClassVar[str]
    # The NamedTuple of arrays that `_lay_out` returns.
    arrays_type: ClassVar[type]

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._is_live = Growable.empty(np.bool_)
        self._context: Context | None = None
        self._counters = dict.fromkeys(("events", "candidates_examined", "predicates_evaluated", "lists_scanned"), 0)
        self._scratch = Scratch()
        self._refused_size = _ANY_SIZE
        self._merges: list[Merge] = []
        self._publish()

    # what a subclass defines

    @abstractmethod
    def _lay_out(self, clauses: Clauses, chosen: NDArray[np.int32], context: Context) -> Any:
        """Return the arrays, an `arrays_type`, for the chosen clauses: those with a literal that is no veto."""

    @abstractmethod
    def _match_part(self, part: Part, event: OneEvent) -> Found:
        """Return the chosen clauses of a part whose literals hold for the event's codes."""

    @abstractmethod
    def _check_part(self, part: Part) -> None:
        """Assert the invariants of a part's arrays."""

    @abstractmethod
    def _describe_part(self, part: Part) -> list[str]:
        """Return lines that show the structure of a part."""

    def _is_exact(self, part: Part, event: OneEvent) -> NDArray[np.bool_]:
        """Return which clauses of a part need no further check once `_match_part` found them."""
        return part.clauses.is_exact

    def _stats_of_part(self, part: Part) -> dict[str, int]:
        """Return numbers that `stats` adds up over the parts."""
        return {}

    # the protocol

    def build(self, batch: Batch) -> None:
        """Lay out all subscriptions as one part."""
        self._context = Context(batch.domains, batch.statistics)
        self._is_live = Growable(_with_clauses(batch))
        self._parts = [self._made(batch.clauses)] if batch.clauses.n_clauses else []
        self._publish()

    def build_in_parts(self, batch: Batch) -> None:
        """Lay out all subscriptions in as few parts as fit, because one would be too large."""
        self.build(batch._replace(clauses=_between(batch.clauses, 0, 0)))
        self._is_live = Growable(_with_clauses(batch))
        self._parts = self._fitting(batch.clauses)
        self._publish()

    def _fitting(self, clauses: Clauses) -> list[Part]:
        """Return the clauses as one part, or as the parts of two halves."""
        slots = np.unique(clauses.slots)
        try:
            return [self._made(clauses)] if len(slots) else []
        except TooLargeError:
            if len(slots) == 1:
                raise
        middle = int(np.searchsorted(clauses.slots, slots[len(slots) // 2]))
        halves = _between(clauses, 0, middle), _between(clauses, middle, clauses.n_clauses)
        return [*self._fitting(halves[0]), *self._fitting(halves[1])]

    def prepare(self, batch: Batch) -> Prepared:
        """Lay out new subscriptions, together with the last part if that is small."""
        context, clauses, replaced = Context(batch.domains, batch.statistics), batch.clauses, self._parts[-1:]
        if not clauses.n_clauses:
            return Prepared([], [], _with_clauses(batch), batch.statistics)
        if self._is_rebuilt(replaced):
            clauses = concatenate([*self._live_clauses(replaced, self._is_live.view), clauses])
        else:
            replaced = []
        return Prepared(replaced, [self._made(clauses, context)], _with_clauses(batch), batch.statistics)

    def _is_rebuilt(self, last: list[Part]) -> bool:
        """Return whether new subscriptions join the last part.

        With a write buffer they never do: another thread may merge the part while they are laid out.
        """
        if not last or self.has_write_buffer or last[0].n_clauses > _REBUILT_CLAUSES_MAX:
            return False
        return not self._is_being_merged(last[0])

    def add(self, prepared: Prepared, domains: Domains) -> None:
        """Make the new part visible."""
        self._context = Context(domains, prepared.statistics)
        self._parts = [*(part for part in self._parts if part not in prepared.replaced), *prepared.made]
        self._is_live.extend(prepared.is_live)
        self._publish()

    def remove(self, slots: NDArray[np.int32]) -> None:
        """Clear live flags, and count the dead subscriptions of each part."""
        if len(slots) == 1:
            self._remove_one(slots.item())
            return
        is_live = self._is_live.view
        slots = slots[is_live[slots]]
        is_live[slots] = False
        self._is_tidy = False
        if len(slots):
            places = np.searchsorted(self._first_slots, slots, side="right") - 1
            for place, n_dead in enumerate(np.bincount(places, minlength=len(self._parts)).tolist()):
                self._parts[place].n_dead += n_dead

    def _remove_one(self, slot: int) -> None:
        if not self._is_live.item(slot):
            return
        self._is_live.set(slot, False)
        part = self._parts[bisect_right(self._first_slots, slot) - 1]
        part.n_dead += 1
        self._is_tidy &= not (part.n_dead == part.n_slots or _has_many_dead(part))

    # merging

    def merge(self) -> Merge | None:
        """Drop parts whose subscriptions are all dead, and choose the parts to rebuild, if any.

        While one merge runs, only parts behind it are chosen.
        """
        if self._is_tidy:  # every removal calls this
            return None
        busy = {part for merge in self._merges for part in merge.parts}
        dead = {part for part in self._parts if part.n_dead == part.n_slots} - busy
        if dead:
            self._replace_parts([part for part in self._parts if part not in dead])
        first = 1 + max((place for place, part in enumerate(self._parts) if part in busy), default=-1)
        chosen = self._chosen(self._parts[first:])
        if not chosen:
            self._is_tidy = True
            return None
        merge = Merge(self, chosen)
        self._merges.append(merge)
        return merge

    def _chosen(self, parts: list[Part]) -> list[Part]:
        """Return consecutive parts that should become one."""
        for part in parts:
            if _has_many_dead(part):
                return [part]
        n_merged = 1
        size = parts[-1].n_clauses if parts else 0
        while n_merged < len(parts) and parts[-1 - n_merged].n_clauses < _RATIO * size:
            size += parts[-1 - n_merged].n_clauses
            n_merged += 1
        # If additions rebuild the last part, it may grow before it is merged.
        may_grow = not self.has_write_buffer and parts and parts[-1].n_clauses <= _REBUILT_CLAUSES_MAX
        if n_merged == 1 or may_grow or size >= self._refused_size:
            return []
        return parts[-n_merged:]

    def _is_being_merged(self, part: Part) -> bool:
        return any(part in merge.parts for merge in self._merges)

    def _replace_parts(self, parts: list[Part]) -> None:
        self._parts = parts
        self._publish()

    def match(self, events: EncodedEvents, position: int) -> Candidates:
        """Match one event against every part."""
        event = one_event(events, position)
        parts, is_live = self._published
        self._counters["events"] += 1
        results = [self._slots(part, event, is_live) for part in parts]
        return results[0] if len(results) == 1 else Candidates.of(results)

    def _slots(self, part: Part, event: OneEvent, is_live: NDArray[np.bool_]) -> Candidates:
        """Return the slots of one part that match, and those that need the exact check."""
        found, n_candidates, n_predicates, n_lists = self._match_part(part, event)
        clauses, attributes = part.clauses, event.attributes
        if len(part.others):
            others, n_tested = self._verified(part, part.others, event)
            found = np.concatenate([found, others])
            n_candidates += len(part.others)
            n_predicates += n_tested
        counters = self._counters
        counters["candidates_examined"] += n_candidates
        counters["predicates_evaluated"] += n_predicates
        counters["lists_scanned"] += n_lists
        seen = self._scratch.array("seen", len(is_live), np.bool_)
        sure, possible = slots_of_clauses(
            found, clauses.slots, self._is_exact(part, event), is_live, attributes, part.has_repeated_slots, seen
        )
        return Candidates(sure, possible)

    def _verified(self, part: Part, clauses: NDArray[np.int32], event: OneEvent) -> tuple[NDArray[np.int32], int]:
        """Return which of the given clauses hold, and how many literals were tested."""
        held, n_tested = verify_clauses(clauses, event.attributes, event.codes, self._dense(), part.handle(Literals))
        return held, n_tested

    def _dense(self) -> NDArray[np.int32]:
        """Return the scratch array for `spread_event`; the kernel must undo its changes (`clear_event`)."""
        assert self._context is not None
        return self._scratch.array("dense", len(self._context.domains) + 1, np.int32, int(ABSENT))

    def stats(self) -> dict[str, Any]:
        """Return bytes by structure, and the work that matching has done so far."""
        parts = self._parts
        sizes = {"is_live": int(self._is_live.view.nbytes)}
        numbers: dict[str, int] = {}
        for part in parts:
            for name, array in {"others": part.others, **part.arrays._asdict()}.items():
                sizes[name] = sizes.get(name, 0) + int(array.nbytes)
            for name, number in self._stats_of_part(part).items():
                numbers[name] = numbers.get(name, 0) + number
        return {"bytes": sizes, "parts": len(parts), **numbers, **self._counters}

    def describe(self) -> str:
        """Return a few lines that show the structure."""
        lines = [f"{self.name}: {int(self._is_live.view.sum()):,} subscriptions in {len(self._parts)} parts"]
        for number, part in enumerate(self._parts, 1):
            lines.append(f"  part {number}: {part.n_clauses:,} clauses, {part.n_dead:,} of them dead")
            lines += [f"    {line}" for line in self._describe_part(part)]
        return "\n".join(lines)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of all parts; the engine saves their clauses."""
        arrays = {
            "is_live": self._is_live.view,
            "part_sizes": np.array([part.n_clauses for part in self._parts], dtype=np.int64),
        }
        for number, part in enumerate(self._parts):
            arrays[f"{number}-others"] = part.others
            arrays |= {f"{number}-{name}": array for name, array in part.arrays._asdict().items()}
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]], batch: Batch) -> None:
        """Use the arrays without copying them."""
        self._context = Context(batch.domains, batch.statistics)
        self._is_live = Growable(arrays["is_live"])
        self._parts = []
        end = 0
        for number, size in enumerate(arrays["part_sizes"].tolist()):
            fields = {name: arrays[f"{number}-{name}"] for name in self.arrays_type._fields}  # type: ignore[attr-defined]
            clauses = batch.clauses if size == batch.clauses.n_clauses else _between(batch.clauses, end, end + size)
            self._parts.append(Part(clauses, arrays[f"{number}-others"], self.arrays_type(**fields)))
            end += size
        self._publish()

    def _check(self) -> None:
        self._scratch.check()
        last = -1
        for part in self._parts:
            part.clauses.check()
            assert part.n_clauses > 0
            assert part.first_slot > last
            last = int(part.clauses.slots[-1])
            assert part.n_dead == np.count_nonzero(~self._is_live.view[np.unique(part.clauses.slots)])
            assert part.others.tolist() == np.flatnonzero(~_can_be_found(part.clauses)).tolist()
            self._check_part(part)
        assert last < len(self._is_live)
        assert self._published[0] == tuple(self._parts)

    # how parts are made

    def _made(self, clauses: Clauses, context: Context | None = None) -> Part:
        context = context or self._context
        assert context is not None
        can_be_found = _can_be_found(clauses)
        chosen = np.flatnonzero(can_be_found).astype(np.int32)
        others = np.flatnonzero(~can_be_found).astype(np.int32)
        return Part(clauses, others, self._lay_out(clauses, chosen, context))

    def _live_clauses(self, parts: Sequence[Part], is_live: NDArray[np.bool_]) -> list[Clauses]:
        """Return the clauses of live subscriptions, part by part."""
        if not any(part.n_dead for part in parts):
            return [part.clauses for part in parts]
        new_slots = np.where(is_live, np.arange(len(is_live)), -1).astype(np.int32)
        return [select(part.clauses, new_slots) if part.n_dead else part.clauses for part in parts]

    def _publish(self) -> None:
        """Make the current parts visible to the next match, all at once."""
        self._is_tidy = False  # there may be something to merge
        self._first_slots = [part.first_slot for part in self._parts]
        self._published = tuple(self._parts), self._is_live.view

    def __getstate__(self) -> dict[str, Any]:
        # `__setstate__` makes views and scratch arrays again. A running merge belongs to the original only.
        return {
            name: value for name, value in self.__dict__.items() if name not in ("_published", "_scratch", "_merges")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._scratch = Scratch()
        self._merges = []
        self._publish()


class Merge:
    """Replaces consecutive parts of an index by one."""

    def __init__(self, index: PartedIndex, parts: list[Part]) -> None:
        self.parts = parts
        self.n_clauses = sum(part.n_clauses for part in parts)
        self._index = index
        self._is_live = index._is_live.view.copy()
        assert index._context is not None
        self._context = index._context._replace(domains=index._context.domains.frozen())
        self._made: list[Part] | None = None

    def run(self) -> None:
        """Lay out the new part; other threads may match, add and remove meanwhile."""
        index = self._index
        try:
            clauses = concatenate(index._live_clauses(self.parts, self._is_live))
            self._made = [index._made(clauses, self._context)] if clauses.n_clauses else []
        except TooLargeError:  # the parts stay separate, and no merge of this size is tried again
            index._refused_size = self.n_clauses

    def finish(self) -> None:
        """Replace the old parts by the new one, and count the subscriptions that were removed meanwhile."""
        index, parts = self._index, self.parts
        self.give_up()
        if self._made is None:
            return
        for part in self._made:
            part.n_dead = part.n_slots - int(np.count_nonzero(index._is_live.view[_distinct(part.clauses.slots)]))
        places = [place for place, part in enumerate(index._parts) if part in parts]
        first, end = places[0], places[-1] + 1
        index._replace_parts([*index._parts[:first], *self._made, *index._parts[end:]])

    def give_up(self) -> None:
        """Leave the parts as they are."""
        self._index._merges.remove(self)
        self._index._is_tidy = False


def _has_many_dead(part: Part) -> bool:
    return part.n_dead >= _DEAD_MIN and _DEAD_RATIO * part.n_dead >= part.n_slots


def checked_limit(limit_mb: Any) -> int:
    """Return the option `memory_limit_mb`, or raise ValueError."""
    if isinstance(limit_mb, bool) or not isinstance(limit_mb, int) or limit_mb < 1:
        raise ValueError(f"memory_limit_mb must be a whole number of at least 1, not {limit_mb!r}")
    return limit_mb


def check_memory(index: str, n_bytes: int, limit_mb: int, why: str) -> None:
    """Raise TooLargeError if a structure would be too large, before any of it is allocated."""
    if n_bytes > limit_mb << 20:
        limit = f"the limit is {_size(limit_mb << 20)} (option memory_limit_mb)"
        raise TooLargeError(f"{index} would take {_size(n_bytes)} for {why}; {limit}")


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:,.2f} GB" if n_bytes >= 1 << 29 else f"{n_bytes / 2**20:,.2f} MB"


def _can_be_found(clauses: Clauses) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = can_be_found(clauses.starts, clauses.kinds, clauses.is_alternative)
    return found


def _between(clauses: Clauses, first: int, end: int) -> Clauses:
    """Return the clauses first .. end - 1."""
    new_slots = np.full(int(clauses.slots.max(initial=-1)) + 1, -1, dtype=np.int32)
    kept = clauses.slots[first:end]
    new_slots[kept] = kept
    return select(clauses, new_slots)


def _with_clauses(batch: Batch) -> NDArray[np.bool_]:
    """Return which of the new slots have clauses; slots without clauses never match, and count as dead."""
    flags = np.zeros(batch.n_slots, dtype=np.bool_)
    flags[batch.clauses.slots - batch.first_slot] = True
    return flags


def _distinct(slots: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return ascending slots, each once."""
    return slots[np.diff(slots, prepend=-1) > 0]
