"""The parts of an engine, and how they change together.

Writers take turns (`_writing`). What readers need at one moment, the encoding of an event and the index that goes with
it, changes under a second lock (`_publishing`), held only for moments: what takes long is prepared before. The
generation is odd meanwhile, so that who reads without a lock sees afterwards whether that was good enough.

A new subscription of plain comparisons with known constants needs neither the lock nor a new generation: it is written
to the table and then to the tail, behind everything that a reader looks at.

One subscription at a time never moves a label. Where there is no room for a constant, the subscription is *unplaced*:
its clauses stay in the tail, as far as there is room, until the labels are dealt out again (`renewing.py`).
"""

from __future__ import annotations

import builtins
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.clauses import (
    Clauses,
    concatenate,
    constants_of,
    encode_covers,
    of_slots,
    picked,
    relabelled,
)
from siftline.encoding.conjunctions import encode_many
from siftline.encoding.domains import Domains
from siftline.encoding.patterns import matcher_of, merged_layer, n_new_patterns
from siftline.encoding.plain import PlainRows, known_rows, placed_rows
from siftline.errors import TooLargeError
from siftline.indexes.protocol import Batch, Index
from siftline.indexes.registry import make_index
from siftline.kernels.sharing import first_alike
from siftline.language.normal_form import Cover, cover, cover_with_alternatives
from siftline.model import has_calls, pack
from siftline.renewing import renew
from siftline.shortcuts import Shortcuts
from siftline.subscriptions import ParsedExpressions, SubscriptionTable
from siftline.sweeping import sweep
from siftline.tail import Tail
from siftline.tidying import Nobody, Tidier, at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from siftline.encoding.columns import LoadedColumns
    from siftline.encoding.domains import Move
    from siftline.encoding.statistics import Statistics
    from siftline.model import Expression
    from siftline.subscriptions import Expressions, Id, Tenants
    from siftline.subsets import Tenant
    from siftline.tidying import Run

# Removed subscriptions are swept out when they are this many and as many as the live ones.
_SWEEP: Final = 1024
# Clauses of small additions are joined when there are this many parts.
_MANY_PARTS: Final = 256
# Parts that come to this many clauses are not joined any more: that would take too long for one addition.
_MOST_JOINED: Final = 1 << 16
# How many clauses the tail holds: scanning them takes an event one or two microseconds.
_TAIL: Final = 512
# Additions of more subscriptions at once go to the index.
_FEW: Final = 64
# So many expressions at once are encoded by columns.
_MANY: Final = 256
# Up to here, they are rather encoded one by one than let labels move, which takes as long as building the index.
_VERY_MANY: Final = 4096
# So many clauses of unplaced subscriptions stay in the tail.
_MOST_KEPT: Final = 256
# So many new patterns are left to the next event.
_FEW_PATTERNS: Final = 256
# Labels are dealt out again for this many unplaced subscriptions, and one more for so many others.
_UNPLACED: Final = 64
_OTHERS: Final = 1024


class New(NamedTuple):
    """Subscriptions that were checked and get the next slots, and those that they replace."""

    ids: Sequence[Id]
    weights: Any
    expressions: Expressions
    tenants: Tenants
    replaced: Sequence[Id] = ()
    leaders: Sequence[int] = ()  # for each the slot that has its entry; empty: each has its own
    with_calls: Sequence[int] = ()  # the positions of those that call operators


_NO_CLAUSES: Final = Cover([], True)
_NOTHING_NEW: Final = New((), (), ParsedExpressions([]), None)


class Changing:
    """What an engine is made of, and every change to it; methods run under `_writing` unless they say otherwise."""

    def __init__(self, index: str, statistics: Statistics | None, schedule: str, options: dict[str, Any]) -> None:
        self._index_name = index
        self._schedule = schedule
        self._options = options
        self._statistics = statistics
        self._index: Index = make_index(index, options)
        self._table = SubscriptionTable()
        self._domains = Domains()
        self._clauses = [encode_covers([], 0, self._domains)]  # of all slots before the tail
        self._tail_size = _TAIL
        self._tail = Tail(_TAIL)
        self._n_indexed = 0  # slots from here on are in the tail
        self._unplaced: set[int] = set()  # slots whose constants did not all get labels
        # By the hashes of expressions, slots that may be shared; some may be gone. With the expressions themselves as
        # keys, each would be one more object for the garbage collector.
        self._entries: dict[int, int] = {}
        self._brings_new = False  # whether the last plain one had new constants: the next one may have some, too
        self._n_added = 0
        self._n_replaced = 0
        self._n_overtaken = 0  # how many renewals in a row were overtaken by something that exchanged domains or index
        self._generation = 0
        self._laid_out_s = 0.0  # what it took when the whole index was laid out last
        self._tidier = Tidier()
        self._tenants: dict[str, Tenant] = {}  # those that events were matched for
        self._writing = threading.RLock()
        self._publishing = threading.Lock()
        self._shortcuts = Shortcuts()

    def __len__(self) -> int:
        return self._table.n_live

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Let nobody look at the parts for a moment; who looked without a lock sees that the generation moved on."""
        with self._publishing, self._shortcuts:
            self._generation += 1
            try:
                yield
            finally:
                self._generation += 1

    # additions

    def _add_one(self, id: Id, weight: float, expression: Expression, tenant: str | None) -> None:
        """Add one expression whose id was checked."""
        table, slot = self._table, self._table.n_slots
        key = hash(expression) if self._index.shares else 0
        leader = self._leader(key, expression)
        if leader is not None:
            with self._shortcuts:
                table.append_one(id, weight, table.packed(leader), tenant)
                table.follow([slot], [leader])
            return
        rows = self._plain_rows(expression)
        sizes = None if rows is None else rows.sizes
        has_room = sizes is not None and self._tail.has_room(*sizes)
        if rows is None or sizes is None or not (has_room or self._makes_room(sizes)):
            self._add_coded([id], [weight], [expression], tenant)
        else:
            with self._shortcuts:
                table.append_one(id, weight, pack(expression), tenant)
                self._add_plain(slot, rows)
        if self._index.shares:
            self._entries[key] = slot
        if not has_room or (rows is not None and rows.wide):
            self._tidier.tidy(self)  # at the end, because a sweep renumbers slots and attributes

    def _leader(self, key: int, expression: Expression) -> int | None:
        """Return the slot whose entry an expression may share, given its hash."""
        leader = self._entries.get(key) if self._index.shares else None
        if leader is None or not self._table.is_entry(leader) or self._table.expression(leader) != expression:
            return None
        return leader

    def _plain_rows(self, expression: Expression) -> PlainRows | None:
        """Return the literals of an expression for the tail, with labels for its constants; None if it is not plain."""
        if not self._index.has_tail or self._index.takes_patterns:
            return None
        domains = self._domains
        if not self._brings_new:
            known = known_rows(expression, domains)
            if known is None or known:
                return None if known is None else PlainRows(known)
        with self._changing():
            version = domains.version
            rows = placed_rows(expression, domains)
            self._brings_new = rows is not None and (domains.version != version or bool(rows.wide))
            return rows

    def _makes_room(self, sizes: tuple[int, int, int]) -> bool:
        """Empty the tail as far as it may be emptied, and return whether it has room then."""
        self._flush()
        return self._tail.has_room(*sizes)

    def _add_plain(self, slot: int, rows: PlainRows) -> None:
        """Add a plain conjunction to the tail, which has room for it."""
        self._tail.add_plain(slot, rows)
        if rows.wide:
            self._unplaced.add(slot)

    def _replace_one(self, id: Id, weight: float, expression: Expression, tenant: str | None) -> None:
        """Give a subscription another expression."""
        rows = self._plain_rows(expression)
        if rows is None or not (self._tail.has_room(*rows.sizes) or self._makes_room(rows.sizes)):
            self._add_coded([id], [weight], [expression], tenant, replaced=[id])
        else:
            slot = self._table.n_slots
            with self._changing():
                self._take_away([id])
                self._table.append_one(id, weight, pack(expression), tenant)
                self._add_plain(slot, rows)
        self._tidier.tidy(self)

    def _add_parsed(
        self,
        ids: list[Id],
        weights: list[float],
        expressions: list[Expression],
        tenants: Tenants,
    ) -> None:
        """Add expressions whose ids were checked; those that are there already share its entry."""
        if self._index.shares:
            first = self._table.n_slots
            leaders, entries = self._leaders(expressions)
            is_shared = [leader != slot for slot, leader in enumerate(leaders, first)]
            self._add_coded(ids, weights, expressions, tenants, leaders=leaders if any(is_shared) else ())
            self._entries |= entries
        else:
            self._add_coded(ids, weights, expressions, tenants)
        self._tidier.tidy(self, is_bulk=len(ids) >= _MANY)

    def _leaders(self, expressions: list[Expression]) -> tuple[list[int], dict[int, int]]:
        """Return the slot that has the entry of each expression, and the slots of new ones by their hashes."""
        by_object: dict[int, int] = {}  # hashing an expression takes long, and texts that repeat are parsed once
        entries: dict[Expression, int] = {}
        leaders: list[int] = []
        for slot, expression in enumerate(expressions, self._table.n_slots):
            leader = by_object.get(builtins.id(expression))
            if leader is None:
                leader = self._leader(hash(expression), expression)
                if leader is None:
                    leader = entries.setdefault(expression, slot)
                by_object[builtins.id(expression)] = leader
            leaders.append(leader)
        return leaders, {hash(expression): slot for expression, slot in entries.items()}

    def _add_coded(
        self,
        ids: list[Id],
        weights: list[float],
        expressions: list[Expression],
        tenants: Tenants,
        replaced: Sequence[Id] = (),
        leaders: Sequence[int] = (),
    ) -> None:
        """Encode and add expressions whose ids were checked, taking away `replaced` in the same moment.

        Who calls this tidies up afterwards, when nothing is left that speaks of slots.
        """
        covering, first = self._covering, self._table.n_slots
        own = [each if not leaders or leaders[i] == first + i else None for i, each in enumerate(expressions)]
        new = New(ids, weights, ParsedExpressions(expressions), tenants, replaced, leaders)
        if len(own) >= _MANY:
            domains, takes_patterns = self._domains.copied(), self._index.takes_patterns
            clauses, moves = encode_many(own, first, domains, covering, takes_patterns=takes_patterns)
            if not moves or len(own) >= min(_VERY_MANY, len(self)):
                self._add_many(clauses, new._replace(with_calls=_with_calls(own, clauses, first)), domains, moves)
                return
        covers = [_NO_CLAUSES if expression is None else covering(expression) for expression in own]
        constants = constants_of(covers, own)
        may_call = (i for i, each in enumerate(covers) if not each.is_exact)
        new = new._replace(with_calls=[i for i in may_call if has_calls(expressions[i])])
        with self._changing():
            has_room = self._domains.place_all(constants)
            clauses = self._encoded(covers, self._domains)
        self._append(clauses, new)
        if not has_room:
            self._unplaced.update(clauses.slots[~clauses.is_exact].tolist())

    @property
    def _covering(self) -> Callable[[Expression], Cover]:
        """What makes clauses of an expression."""
        return cover_with_alternatives if self._index.takes_alternatives else cover

    def _encoded(self, covers: Sequence[Cover], domains: Domains) -> Clauses:
        """Return clauses for the next slots."""
        return encode_covers(covers, self._table.n_slots, domains, takes_patterns=self._index.takes_patterns)

    def _add_columns(self, loaded: LoadedColumns, tenants: Tenants, written: Expressions | None = None) -> int:
        """Add what was loaded from columns over a copy of the domains; `written` are the same expressions as text."""
        self._table.check_ids(loaded.ids)
        ids, weights, rows, clauses, domains, moves = loaded
        expressions: Expressions = rows if written is None else written
        clauses = clauses._replace(slots=clauses.slots + np.int32(self._table.n_slots))
        leaders = _alike(clauses, self._table.n_slots, len(ids)) if self._index.shares else None
        if leaders is not None:
            clauses = picked(clauses, np.flatnonzero(leaders[clauses.slots - self._table.n_slots] == clauses.slots))
        new = New(ids, weights, expressions, tenants, leaders=() if leaders is None else leaders.tolist())
        self._add_many(clauses, new, domains, moves)
        self._tidier.tidy(self, is_bulk=True)
        return len(ids)

    def _add_many(self, clauses: Clauses, new: New, domains: Domains, moves: list[Move]) -> None:
        """Add what was encoded over a copy of the domains."""
        if moves or len(new.ids) > len(self):
            self._swap(domains, moves, clauses, new)
        else:
            # Events stay encoded as they are if there is nothing new for them to know.
            self._append(clauses, new, None if domains.equals(self._domains) else domains)

    def _append(self, clauses: Clauses, new: New, domains: Domains | None = None) -> None:
        """Add coded subscriptions behind the others: few to the tail, many to the index, with what the tail has."""
        if self._index.has_tail and clauses.n_clauses <= _FEW and domains is None:
            sizes = clauses.n_clauses, len(clauses.attributes), len(clauses.set_lows)
            if not self._tail.has_room(*sizes):
                self._flush()
            if self._tail.has_room(*sizes):
                with self._changing():
                    self._enter(new)
                    self._tail.add(clauses)
                return
        self._append_to_index(clauses, new, domains or self._domains)

    def _append_to_index(self, clauses: Clauses, new: New, domains: Domains) -> None:
        """Lay out the tail and the new clauses, and show them."""
        tail = Tail(self._tail_size)
        if self._tail.n_clauses:
            kept, waiting = self._parted_tail()
            tail.add(kept)
            clauses = concatenate([waiting, clauses])
        prepared = self._index.prepare(self._batch(clauses, domains, self._n_indexed, new.expressions))
        if domains is not self._domains:
            matcher_of(domains)  # made here, not by the first match under the lock
        with self._changing():
            self._n_added += 1  # before the index shows anything new
            self._domains = domains
            self._index.add(prepared)
            self._tail, self._n_indexed = tail, self._table.n_slots
            self._enter(new)  # which may take away what was in the tail until now
            self._n_indexed = self._table.n_slots
        self._clauses.append(clauses)
        if len(self._clauses) > _MANY_PARTS:
            self._join_last()

    def _parted_tail(self) -> tuple[Clauses, Clauses]:
        """Return the clauses of the tail that stay there, and those that go to the index."""
        clauses = self._tail.clauses()
        is_kept = np.array([slot in self._unplaced for slot in clauses.slots.tolist()], dtype=np.bool_)
        if np.count_nonzero(is_kept) > _MOST_KEPT:
            is_kept = clauses.slots < self._n_indexed  # the index takes slots in their order
        return picked(clauses, np.flatnonzero(is_kept)), picked(clauses, np.flatnonzero(~is_kept))

    def _flush(self) -> None:
        """Bring the tail into the index, but for what is unplaced."""
        if self._n_indexed < self._table.n_slots:
            self._append_to_index(encode_covers([], 0, self._domains), _NOTHING_NEW, self._domains)

    def _enter(self, new: New) -> None:
        """Write subscriptions into the table; under both locks."""
        if new.replaced:
            self._take_away(new.replaced)
        first = self._table.n_slots
        self._table.append(new.ids, new.weights, new.expressions, new.tenants)
        followers = [(slot, leader) for slot, leader in enumerate(new.leaders, first) if slot != leader]
        if followers:
            self._table.follow(*zip(*followers, strict=True))
        if new.with_calls:
            self._table.call([first + position for position in new.with_calls], self._schedule)

    def _take_away(self, ids: Sequence[Id]) -> None:
        """Take subscriptions away that are replaced; under both locks."""
        self._n_replaced += 1
        self._forget(self._table.remove(ids, self._slots_of(ids)))

    def _swap(self, domains: Domains, moves: list[Move], clauses: Clauses, new: New) -> None:
        """Build an index beside the old one, which goes on matching, and put it in its place."""
        joined = concatenate([relabelled(self._joined_clauses(), moves), clauses])
        index = self._built_index(joined, domains, new.expressions)
        matcher_of(domains)  # made here, not by the first match under the lock
        with self._changing():
            self._put(self._table, domains, [joined], index)
            self._enter(new)
            self._n_indexed = self._table.n_slots

    def _put(self, table: SubscriptionTable, domains: Domains, clauses: list[Clauses], index: Index) -> None:
        """Use other parts from now on; under both locks."""
        self._table, self._domains, self._clauses, self._index = table, domains, clauses, index
        self._tail, self._n_indexed = Tail(self._tail_size), table.n_slots

    # removals

    def _slots_of(self, ids: Sequence[Id]) -> NDArray[np.int32]:
        slot = self._table.slot
        return np.array([slot(id) for id in ids], dtype=np.int32)

    def _remove_one(self, id: Id) -> None:
        slot = self._table.slot(id)
        with self._shortcuts:
            self._forget(self._table.remove_one(id, slot))
        self._tidier.tidy(self)

    def _forget(self, slots: NDArray[np.int32]) -> None:
        """Take slots out of the index and the tail."""
        self._table.uncall(slots)
        if self._unplaced:
            self._unplaced.difference_update(slots.tolist())
        if self._tail.n_clauses:
            for slot in slots[slots >= self._tail.first_slot].tolist():
                self._tail.remove(slot)
        slots = slots[slots < self._n_indexed]
        if len(slots):
            self._index.remove(slots)

    def _has_many_dead(self) -> bool:
        n_unneeded = self._table.n_unneeded
        return n_unneeded >= _SWEEP and 2 * n_unneeded >= self._table.n_slots

    def _sweep(self, run: Run = at_once) -> None:
        """Give back the memory of removed subscriptions, their constants and attributes included."""
        sweep(self, run)

    def _without_subscriptions(self) -> Changing:
        """Return an engine of the same kind that has none, and leaves it to others to tidy up."""
        other = Changing(self._index_name, self._statistics, self._schedule, self._options)
        other._tail_size, other._tidier = self._tail_size, Nobody()
        return other

    def _name_all(self, domains: Domains, expressions: list[Expression]) -> None:
        """Let domains know all attributes, constants and patterns of expressions, which a renewal will ask for."""
        covers = [self._covering(expression) for expression in expressions]
        domains.place_all(constants_of(covers, expressions))
        self._encoded(covers, domains)

    def _sweep_all(self) -> None:
        """Sweep if anything was removed."""
        if self._table.n_unneeded:
            self._sweep()

    # clauses and the index over them

    def _join_last(self) -> None:
        """Join the small parts at the end, and larger ones before them while that at least doubles them."""
        parts, size = self._clauses, 0
        first = len(parts)
        while first > 0 and (first > len(parts) - _MANY_PARTS or parts[first - 1].n_clauses <= size < _MOST_JOINED):
            first -= 1
            size += parts[first].n_clauses
        self._clauses = [*parts[:first], concatenate(parts[first:])]

    def _joined_clauses(self) -> Clauses:
        """Return all clauses as one; those of removed subscriptions may be among them until they are swept out."""
        if len(self._clauses) > 1:
            self._clauses = [concatenate(self._clauses)]
        if not self._tail.n_clauses:
            return self._clauses[0]
        joined = concatenate([self._clauses[0], self._tail.clauses()])
        if self._tail.first_slot >= self._n_indexed:
            return joined
        return picked(joined, np.argsort(joined.slots, kind="stable"))

    def _wants_renewal(self) -> bool:
        """Return whether so many subscriptions are unplaced that labels should be dealt out again."""
        return bool(self._unplaced) and len(self._unplaced) >= _UNPLACED + len(self) // _OTHERS

    def _renew(self, run: Run = at_once) -> None:
        """Deal out labels for all constants that have none."""
        renew(self, run)

    def _take_in_patterns(self) -> bool:
        """Let the matcher know new patterns, if they are many; return whether some of its layers should be merged.

        The next event would have to wait for as many as there are.
        """
        if n_new_patterns(self._domains) >= _FEW_PATTERNS:
            with self._publishing:
                matcher_of(self._domains)
        matcher = self._domains.matcher
        return matcher is not None and matcher.wants_merge

    def _merge_patterns(self) -> None:
        """Merge layers of patterns, as long as some should be one; without the writers' lock."""
        while (matcher := self._domains.matcher) is not None and (chosen := matcher.mergeable()) is not None:
            path, layers = chosen
            layer = merged_layer(layers)
            with self._publishing:
                domains = self._domains
                if domains.matcher is not None:
                    domains.matcher = domains.matcher.merged(path, layers, layer)

    def _clauses_of(self, slots: NDArray[np.int32]) -> Clauses:
        """Return the clauses of some ascending slots."""
        parts = [part for part in self._clauses if part.n_clauses] + [self._tail.clauses()]
        return concatenate([of_slots(part, slots) for part in parts])

    def _rebuild(self) -> None:
        """Lay out the index anew, as one piece."""
        clauses = self._joined_clauses()
        index = self._built_index(clauses, self._domains, ParsedExpressions([]))
        with self._changing():
            self._put(self._table, self._domains, [clauses], index)

    def _built_index(self, clauses: Clauses, domains: Domains, new: Expressions) -> Index:
        """Return a new index over the slots of the table and the new expressions behind them."""
        batch = self._batch(clauses, domains, 0, new)
        index = self._laid_out(batch, is_new=len(new) > len(self))
        dead = self._table.unneeded()
        if len(dead):
            index.remove(dead)
        return index

    def _laid_out(self, batch: Batch, *, is_new: bool) -> Index:
        """Return a new index; what is mostly old is never refused, but laid out in several parts if need be."""
        index = make_index(self._index_name, self._options)
        begin = time.perf_counter()
        try:
            index.build(batch)
        except TooLargeError:
            if is_new:
                raise
            index.build_in_parts(batch)
        self._laid_out_s = round(time.perf_counter() - begin, 6)
        return index

    def _batch(self, clauses: Clauses, domains: Domains, first: int, new: Expressions) -> Batch:
        """Describe the slots from `first` on: those of the table, and the new ones that are not in it yet."""
        old, n_old = self._table.expression, self._table.n_slots

        def expression(slot: int) -> Expression:
            return old(slot) if slot < n_old else new.expression(slot - n_old)

        return Batch(first, n_old - first + len(new), clauses, domains, expression, self._statistics)

    def _check(self) -> None:
        """Assert every invariant of the engine and of its index."""
        with self._writing:
            self._table.check()
            self._domains.check()
            clauses = self._joined_clauses()
            clauses.check()
            assert clauses.n_clauses == self._index.stats().get("clauses", clauses.n_clauses)
            self._tail.check()
            waiting = set(self._tail.clauses().slots.tolist())
            assert all(slot >= self._n_indexed or slot in self._unplaced for slot in waiting)
            assert all(self._table.is_entry(slot) for slot in self._unplaced)
            assert self._index.has_tail or self._n_indexed == self._table.n_slots
            assert all(hash(self._table.expression(slot)) == key for key, slot in self._entries.items())
            self._index._check()


def _with_calls(expressions: Sequence[Expression | None], clauses: Clauses, first: int) -> list[int]:
    """Return which expressions call operators; not those that the clauses express exactly."""
    is_sure = np.zeros(len(expressions), dtype=np.bool_)
    is_sure[clauses.slots[clauses.is_exact_by_patterns] - first] = True
    found = ((i, expressions[i]) for i in np.flatnonzero(~is_sure).tolist())
    return [i for i, expression in found if expression is not None and has_calls(expression)]


def _alike(clauses: Clauses, first: int, n: int) -> NDArray[np.int32] | None:
    """Return for each of n new slots the first one with the same clauses; None if all are different."""
    starts = np.searchsorted(clauses.slots, np.arange(first, first + n + 1)).astype(np.int64)
    leaders: NDArray[np.int32] = first_alike(starts, clauses.is_exact, *clauses.literals)
    if (leaders == np.arange(n)).all():
        return None
    return leaders + np.int32(first)
