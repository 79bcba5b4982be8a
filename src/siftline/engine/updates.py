"""Every change to an engine: additions, replacements, removals, sweeps.

A new subscription of plain comparisons with known constants needs neither the lock of readers nor a new generation: it
is appended to the table and then to the write buffer, beyond everything that a reader reads.

Adding one subscription never changes a label. If there is no label for a constant, the subscription is *unplaced*: its
clauses stay in the write buffer, as far as there is room, until labels are assigned again (`relabelling.py`).
"""

from __future__ import annotations

import builtins
import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.clauses import (
    Clauses,
    always_candidates,
    concatenate,
    constants_of,
    encode_covers,
    of_slots,
    picked,
    relabelled,
)
from siftline.encoding.conjunctions import encode_many
from siftline.encoding.garbage import without_garbage_collection
from siftline.encoding.likelihoods import Likelihoods
from siftline.encoding.patterns import matcher_of, merged_layer, n_new_patterns
from siftline.encoding.plain import PlainRows, known_rows, placed_rows
from siftline.engine.compaction import NoCompactor, run_here
from siftline.engine.flushing import flush, is_to_stay
from siftline.engine.relabelling import renew
from siftline.engine.state import State
from siftline.engine.subscriptions import ParsedExpressions
from siftline.engine.sweeping import sweep
from siftline.engine.write_buffer import WriteBuffer
from siftline.errors import TooLargeError
from siftline.indexes.protocol import Batch, Index
from siftline.indexes.registry import make_index
from siftline.kernels.sharing import first_alike
from siftline.language.normal_form import Cover, cover, cover_with_alternatives
from siftline.model import has_calls, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from siftline.encoding.columns import LoadedColumns
    from siftline.encoding.domains import Domains, Move
    from siftline.engine.compaction import Run
    from siftline.engine.subscriptions import Expressions, Tenants
    from siftline.ids import Id
    from siftline.model import Expression

# A sweep is due when there are this many removed subscriptions, and at least as many as live ones.
SWEEP_MIN_DEAD: Final = 1024
# Clauses of small additions are joined when there are more parts of them than this.
CLAUSE_PARTS_MAX: Final = 256
# Once the joined parts have this many clauses, earlier parts stay apart: joining them would take too long.
JOIN_MAX_CLAUSES: Final = 1 << 16
# Additions of more clauses at once go to the index.
BUFFERED_ADDITION_MAX: Final = 64
# From this many expressions at once on, they are encoded by columns.
COLUMNAR_ENCODING_MIN: Final = 256
# Smaller additions are encoded one by one if labels would have to change, which takes as long as building the index.
MOVE_LABELS_MIN: Final = 4096
# Fewer new patterns than this are left to the next event.
PATTERNS_LEFT_TO_EVENT_MAX: Final = 256
# A renewal is due for this many unplaced subscriptions, and one more for each 1,024 subscriptions.
RELABEL_MIN_UNPLACED: Final = 64
RELABEL_SHARE: Final = 1024


class New(NamedTuple):
    """Subscriptions that were checked and get the next slots, and those that they replace."""

    ids: Sequence[Id]
    weights: Any
    expressions: Expressions
    tenants: Tenants
    replaced: Sequence[Id] = ()
    leaders: Sequence[int] = ()  # the slot with the entry of each; empty if each has its own entry
    with_calls: Sequence[int] = ()  # the positions of those that call operators


_NO_CLAUSES: Final = Cover([], True)


class Updates:
    """Every change to the state of an engine; methods run under `state.writing` unless they say otherwise."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._brings_new = False  # whether the last plain addition had new constants; the next one probably has

    # additions

    def add_one(self, id: Id, weight: float, expression: Expression, tenant: str | None) -> None:
        """Add one expression whose id was checked."""
        table, slot = self.state.table, self.state.table.n_slots
        key = hash(expression) if self.state.index.shares else 0
        leader = self._leader(key, expression)
        if leader is not None:
            with self.state.fast_paths:
                table.append_one(id, weight, table.packed(leader), tenant)
                table.add_duplicates([slot], [leader])
            return
        rows = self._plain_rows(expression)
        if rows is None or not self._has_room(rows.sizes):
            self._add_coded([id], [weight], [expression], tenant)
        else:
            with self.state.fast_paths:
                table.append_one(id, weight, pack(expression), tenant)
                self._add_plain(slot, rows)
        if self.state.index.shares:
            self.state.entries[key] = slot
        if rows is None or rows.wide or self.state.buffer.is_due:
            self.state.compactor.tidy(self)  # last, because a sweep renumbers slots and attributes

    def _leader(self, key: int, expression: Expression) -> int | None:
        """Return the slot whose entry an expression may share, given its hash."""
        leader = self.state.entries.get(key) if self.state.index.shares else None
        if leader is None or not self.state.table.is_entry(leader) or self.state.table.expression(leader) != expression:
            return None
        return leader

    def _plain_rows(self, expression: Expression) -> PlainRows | None:
        """Return an expression's literals for the write buffer, with labels for its constants; None if not plain."""
        if not self.state.index.has_write_buffer or self.state.index.takes_patterns:
            return None
        domains = self.state.domains
        if not self._brings_new:
            known = known_rows(expression, domains)
            if known is None or known:
                return None if known is None else PlainRows(known)
        with self.state.changing():
            version = domains.version
            rows = placed_rows(expression, domains)
            self._brings_new = rows is not None and (domains.version != version or bool(rows.wide))
            return rows

    def _has_room(self, sizes: tuple[int, int, int]) -> bool:
        """Return whether the write buffer has room for an addition, after a flush if it is full."""
        if not self.state.buffer.has_room(*sizes):
            self.flush()  # the flusher was too slow
        return self.state.buffer.has_room(*sizes)

    def _add_plain(self, slot: int, rows: PlainRows) -> None:
        """Add a plain conjunction to the write buffer, which has room for it."""
        self.state.buffer.add_plain(slot, rows)
        if rows.wide:
            self.state.unplaced.add(slot)

    def replace_one(self, id: Id, weight: float, expression: Expression, tenant: str | None) -> None:
        """Give a subscription another expression."""
        rows = self._plain_rows(expression)
        if rows is None or not self._has_room(rows.sizes):
            self._add_coded([id], [weight], [expression], tenant, replaced=[id])
        else:
            slot = self.state.table.n_slots
            with self.state.changing():
                self._take_away([id])
                self.state.table.append_one(id, weight, pack(expression), tenant)
                self._add_plain(slot, rows)
        self.state.compactor.tidy(self)

    def add_parsed(
        self,
        ids: list[Id],
        weights: list[float],
        expressions: list[Expression],
        tenants: Tenants,
    ) -> None:
        """Add expressions whose ids were checked; an expression that the engine has already becomes a duplicate."""
        with without_garbage_collection() if len(ids) >= COLUMNAR_ENCODING_MIN else nullcontext():
            self._add_parsed(ids, weights, expressions, tenants)
        self.state.compactor.tidy(self, is_bulk=len(ids) >= COLUMNAR_ENCODING_MIN)

    def _add_parsed(self, ids: list[Id], weights: list[float], expressions: list[Expression], tenants: Tenants) -> None:
        if self.state.index.shares:
            first = self.state.table.n_slots
            leaders, entries = self._leaders(expressions)
            is_shared = [leader != slot for slot, leader in enumerate(leaders, first)]
            self._add_coded(ids, weights, expressions, tenants, leaders=leaders if any(is_shared) else ())
            self.state.entries |= entries
        else:
            self._add_coded(ids, weights, expressions, tenants)

    def _leaders(self, expressions: list[Expression]) -> tuple[list[int], dict[int, int]]:
        """Return the slot that has the entry of each expression, and the slots of new ones by their hashes."""
        by_object: dict[int, int] = {}  # hashing an expression is slow, and repeated texts are parsed once
        entries: dict[Expression, int] = {}
        leaders: list[int] = []
        for slot, expression in enumerate(expressions, self.state.table.n_slots):
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
        """Encode and add expressions whose ids were checked, and remove `replaced` at the same moment.

        The caller calls `tidy` afterwards, because that may renumber slots.
        """
        covering, first = self.covering, self.state.table.n_slots
        own = [each if not leaders or leaders[i] == first + i else None for i, each in enumerate(expressions)]
        new = New(ids, weights, ParsedExpressions(expressions), tenants, replaced, leaders)
        if len(own) >= COLUMNAR_ENCODING_MIN:
            domains, takes_patterns = self.state.domains.copied(), self.state.index.takes_patterns
            clauses, moves = encode_many(own, first, domains, covering, takes_patterns=takes_patterns)
            if not moves or len(own) >= min(MOVE_LABELS_MIN, self.state.table.n_live):
                self._add_many(clauses, new._replace(with_calls=_with_calls(own, clauses, first)), domains, moves)
                return
        covers = [_NO_CLAUSES if expression is None else covering(expression) for expression in own]
        constants = constants_of(covers, own)
        may_call = (i for i, each in enumerate(covers) if not each.is_exact)
        new = new._replace(with_calls=[i for i in may_call if has_calls(expressions[i])])
        with self.state.changing():
            has_room = self.state.domains.place_all(constants)
            clauses = self._encoded(covers, self.state.domains)
        self._append(clauses, new)
        if not has_room:
            self.state.unplaced.update(clauses.slots[~clauses.is_exact].tolist())

    @property
    def covering(self) -> Callable[[Expression], Cover]:
        """The function that turns an expression into clauses."""
        chosen = cover_with_alternatives if self.state.index.takes_alternatives else cover
        return partial(chosen, likelihood=Likelihoods(self.state.statistics))

    def _encoded(self, covers: Sequence[Cover], domains: Domains) -> Clauses:
        """Return clauses for the next slots."""
        return encode_covers(covers, self.state.table.n_slots, domains, takes_patterns=self.state.index.takes_patterns)

    def add_columns(self, loaded: LoadedColumns, tenants: Tenants, written: Expressions | None = None) -> int:
        """Add subscriptions that were loaded over a copy of the domains; `written` has the same expressions as text."""
        self.state.table.check_ids(loaded.ids)
        ids, weights, rows, clauses, domains, moves = loaded
        expressions: Expressions = rows if written is None else written
        clauses = clauses._replace(slots=clauses.slots + np.int32(self.state.table.n_slots))
        leaders = _alike(clauses, self.state.table.n_slots, len(ids)) if self.state.index.shares else None
        if leaders is not None:
            clauses = picked(
                clauses, np.flatnonzero(leaders[clauses.slots - self.state.table.n_slots] == clauses.slots)
            )
        new = New(ids, weights, expressions, tenants, leaders=() if leaders is None else leaders.tolist())
        self._add_many(clauses, new, domains, moves)
        self.state.compactor.tidy(self, is_bulk=True)
        return len(ids)

    def _add_many(self, clauses: Clauses, new: New, domains: Domains, moves: list[Move]) -> None:
        """Add subscriptions that were encoded over a copy of the domains."""
        if moves or len(new.ids) > self.state.table.n_live:
            self._swap(domains, moves, clauses, new)
        else:
            # Equal domains are not replaced, so that encoded events stay valid.
            self._append(clauses, new, None if domains.equals(self.state.domains) else domains)

    def _append(self, clauses: Clauses, new: New, domains: Domains | None = None) -> None:
        """Add coded subscriptions: few to the write buffer, many to the index, together with the buffer."""
        is_buffered = (
            self.state.index.has_write_buffer
            and domains is None
            and clauses.n_clauses <= BUFFERED_ADDITION_MAX
            and self._has_room((clauses.n_clauses, len(clauses.attributes), len(clauses.set_lows)))
        )
        if is_buffered:
            with self.state.changing():
                self._enter(new)
                self.state.buffer.add(clauses)
            return
        self._append_to_index(clauses, new, domains or self.state.domains)

    def _append_to_index(self, clauses: Clauses, new: New, domains: Domains) -> None:
        """Lay out the write buffer and the new clauses as a part of the index, and make it visible."""
        buffer = WriteBuffer(self.state.buffer_capacity)
        if self.state.buffer.n_clauses:
            waiting = self.state.buffer.clauses()
            stays = is_to_stay(waiting, self.state.unplaced, self.state.n_indexed)
            buffer.add(picked(waiting, np.flatnonzero(stays)))
            clauses = concatenate([picked(waiting, np.flatnonzero(~stays)), clauses])
        if domains is not self.state.domains:
            matcher_of(domains)  # here, and not by the first match under the lock
        prepared = self.state.index.prepare(self._batch(clauses, domains, self.state.n_indexed, new.expressions))
        with self.state.changing():
            self.state.n_added += 1  # before the index shows anything new
            self.state.domains = domains
            self.state.index.add(prepared, domains)
            self.state.buffer, self.state.n_indexed = buffer, self.state.table.n_slots
            self._enter(new)  # this may remove subscriptions that were in the buffer until now
            self.state.n_indexed = self.state.table.n_slots
        self.keep(clauses)

    def keep(self, clauses: Clauses) -> None:
        """Keep the clauses of slots that were added to the index."""
        self.state.clauses.append(clauses)
        if len(self.state.clauses) > CLAUSE_PARTS_MAX:
            self._join_last()

    def flush(self, run: Run = run_here) -> None:
        """Move the write buffer to the index, except unplaced subscriptions."""
        flush(self, run)

    def wants_flush(self) -> bool:
        """Return whether a flush of the write buffer is due."""
        return self.state.buffer.is_due and self.state.n_indexed < self.state.table.n_slots

    def _enter(self, new: New) -> None:
        """Write subscriptions into the table; under both locks."""
        if new.replaced:
            self._take_away(new.replaced)
        first = self.state.table.n_slots
        self.state.table.append(new.ids, new.weights, new.expressions, new.tenants)
        duplicates = [(slot, leader) for slot, leader in enumerate(new.leaders, first) if slot != leader]
        if duplicates:
            self.state.table.add_duplicates(*zip(*duplicates, strict=True))
        if new.with_calls:
            self.state.table.call([first + position for position in new.with_calls], self.state.schedule)

    def _take_away(self, ids: Sequence[Id]) -> None:
        """Remove subscriptions that are replaced; under both locks."""
        self.state.n_replaced += 1
        self.forget(self.state.table.remove(ids, self.slots_of(ids)))

    def _swap(self, domains: Domains, moves: list[Move], clauses: Clauses, new: New) -> None:
        """Build an index beside the old one, which goes on matching, and replace the old one by it."""
        joined = concatenate([relabelled(self.joined_clauses(), moves), clauses])
        matcher_of(domains)  # here, and not by the first match under the lock
        index = self._built_index(joined, domains, new.expressions)
        with self.state.changing():
            self.state.put(self.state.table, domains, [joined], index)
            self._enter(new)
            self.state.n_indexed = self.state.table.n_slots

    # removals

    def slots_of(self, ids: Sequence[Id]) -> NDArray[np.int32]:
        """Return the slots of ids; an unknown one raises UnknownIdError."""
        slot = self.state.table.slot
        return np.array([slot(id) for id in ids], dtype=np.int32)

    def remove_one(self, id: Id) -> None:
        """Remove one subscription."""
        slot = self.state.table.slot(id)
        with self.state.fast_paths:
            self.forget(self.state.table.remove_one(id, slot))
        self.state.compactor.tidy(self)

    def forget(self, slots: NDArray[np.int32]) -> None:
        """Remove slots from the index and the write buffer."""
        self.state.table.uncall(slots)
        if self.state.unplaced:
            self.state.unplaced.difference_update(slots.tolist())
        if self.state.buffer.n_clauses:
            for slot in slots[slots >= self.state.buffer.first_slot].tolist():
                self.state.buffer.remove(slot)
        slots = slots[slots < self.state.n_indexed]
        if len(slots):
            self.state.index.remove(slots)

    def has_many_dead(self) -> bool:
        """Return whether a sweep is due."""
        n_unneeded = self.state.table.n_unneeded
        return n_unneeded >= SWEEP_MIN_DEAD and 2 * n_unneeded >= self.state.table.n_slots

    def sweep(self, run: Run = run_here) -> None:
        """Free the memory of removed subscriptions, with their constants and attributes."""
        sweep(self, run)

    def without_subscriptions(self) -> Updates:
        """Return updates of a state of the same kind without subscriptions, which does no work in the background."""
        state = self.state
        other = State(state.index_name, state.statistics, state.schedule, state.options)
        other.buffer_capacity, other.compactor = state.buffer_capacity, NoCompactor()
        return Updates(other)

    def name_all(self, domains: Domains, expressions: list[Expression]) -> None:
        """Add all attributes, constants and patterns of expressions to domains, because a renewal will need them."""
        covers = [self.covering(expression) for expression in expressions]
        domains.place_all(constants_of(covers, expressions))
        self._encoded(covers, domains)

    def sweep_all(self) -> None:
        """Sweep if anything was removed."""
        if self.state.table.n_unneeded:
            self.sweep()

    # clauses and the index over them

    def _join_last(self) -> None:
        """Join the small parts at the end, and earlier ones as long as they are not larger than what was joined."""
        parts, size = self.state.clauses, 0
        first = len(parts)
        while first > 0 and (
            first > len(parts) - CLAUSE_PARTS_MAX or parts[first - 1].n_clauses <= size < JOIN_MAX_CLAUSES
        ):
            first -= 1
            size += parts[first].n_clauses
        self.state.clauses = [*parts[:first], concatenate(parts[first:])]

    def joined_clauses(self) -> Clauses:
        """Return all clauses as one; until a sweep, this includes clauses of removed subscriptions."""
        if len(self.state.clauses) > 1:
            self.state.clauses = [concatenate(self.state.clauses)]
        if not self.state.buffer.n_clauses:
            return self.state.clauses[0]
        joined = concatenate([self.state.clauses[0], self.state.buffer.clauses()])
        if self.state.buffer.first_slot >= self.state.n_indexed:
            return joined
        return picked(joined, np.argsort(joined.slots, kind="stable"))

    def always_checked(self) -> NDArray[np.int32]:
        """Return the slots of live subscriptions that are candidates for every event."""
        table, slots = self.state.table, always_candidates(self.joined_clauses())
        if table.sharing is not None:
            slots = table.with_duplicates(slots)
        return np.sort(slots[table.is_live.taken(slots)])

    def wants_renewal(self) -> bool:
        """Return whether a renewal of labels is due."""
        return (
            bool(self.state.unplaced)
            and len(self.state.unplaced) >= RELABEL_MIN_UNPLACED + self.state.table.n_live // RELABEL_SHARE
        )

    def renew(self, run: Run = run_here) -> None:
        """Give labels to all constants that have none."""
        renew(self, run)

    def take_in_patterns(self) -> bool:
        """Add new patterns to the matcher, if there are many; return whether some of its layers should be merged.

        Otherwise the next event would have to wait for that.
        """
        if n_new_patterns(self.state.domains) >= PATTERNS_LEFT_TO_EVENT_MAX:
            with self.state.publishing:
                matcher_of(self.state.domains)
        matcher = self.state.domains.matcher
        return matcher is not None and matcher.wants_merge

    def merge_patterns(self) -> None:
        """Merge layers of patterns until none needs it; without the writers' lock."""
        while (matcher := self.state.domains.matcher) is not None and (layers := matcher.mergeable()):
            layer = merged_layer(layers)
            with self.state.publishing:
                domains = self.state.domains
                if domains.matcher is not None:
                    domains.matcher = domains.matcher.merged(layers, layer)

    def clauses_of(self, slots: NDArray[np.int32]) -> Clauses:
        """Return the clauses of some ascending slots."""
        parts = [part for part in self.state.clauses if part.n_clauses] + [self.state.buffer.clauses()]
        return concatenate([of_slots(part, slots) for part in parts])

    def rebuild(self) -> None:
        """Lay out the whole index again, as one part."""
        clauses = self.joined_clauses()
        index = self._built_index(clauses, self.state.domains, ParsedExpressions([]))
        with self.state.changing():
            self.state.put(self.state.table, self.state.domains, [clauses], index)

    def _built_index(self, clauses: Clauses, domains: Domains, new: Expressions) -> Index:
        """Return a new index over the slots of the table and the new expressions after them."""
        batch = self._batch(clauses, domains, 0, new)
        index = self.laid_out(batch, is_new=len(new) > self.state.table.n_live)
        dead = self.state.table.unneeded()
        if len(dead):
            index.remove(dead)
        return index

    def laid_out(self, batch: Batch, *, is_new: bool) -> Index:
        """Return a new index; if most of it is not new, TooLargeError is avoided by laying it out in several parts."""
        index = make_index(self.state.index_name, self.state.options)
        begin = time.perf_counter()
        try:
            index.build(batch)
        except TooLargeError:
            if is_new:
                raise
            index.build_in_parts(batch)
        self.state.laid_out_s = round(time.perf_counter() - begin, 6)
        return index

    def _batch(self, clauses: Clauses, domains: Domains, first: int, new: Expressions) -> Batch:
        """Describe the slots from `first` on: those of the table, and the new ones that are not in it yet."""
        old, n_old = self.state.table.expression, self.state.table.n_slots

        def expression(slot: int) -> Expression:
            return old(slot) if slot < n_old else new.expression(slot - n_old)

        return Batch(first, n_old - first + len(new), clauses, domains, expression, self.state.statistics)

    def check(self) -> None:
        """Assert every invariant of the engine and of its index."""
        with self.state.writing:
            self.state.table.check()
            self.state.domains.check()
            clauses = self.joined_clauses()
            clauses.check()
            assert clauses.n_clauses == self.state.index.stats().get("clauses", clauses.n_clauses)
            self.state.buffer.check()
            waiting = set(self.state.buffer.clauses().slots.tolist())
            assert all(slot >= self.state.n_indexed or slot in self.state.unplaced for slot in waiting)
            assert all(self.state.table.is_entry(slot) for slot in self.state.unplaced)
            assert self.state.index.has_write_buffer or self.state.n_indexed == self.state.table.n_slots
            assert all(hash(self.state.table.expression(slot)) == key for key, slot in self.state.entries.items())
            self.state.index._check()


def _with_calls(expressions: Sequence[Expression | None], clauses: Clauses, first: int) -> list[int]:
    """Return which expressions call operators, except those that their clauses express exactly."""
    is_sure = np.zeros(len(expressions), dtype=np.bool_)
    is_sure[clauses.slots[clauses.is_exact_by_patterns] - first] = True
    found = ((i, expressions[i]) for i in np.flatnonzero(~is_sure).tolist())
    return [i for i, expression in found if expression is not None and has_calls(expression)]


def _alike(clauses: Clauses, first: int, n: int) -> NDArray[np.int32] | None:
    """Return for each of n new slots the first one with the same clauses; None if all are different."""
    starts = np.searchsorted(clauses.slots, np.arange(first, first + n + 1)).astype(np.int64)
    leaders: NDArray[np.int32] = first_alike(starts, clauses.is_exact, clauses.literals)
    if (leaders == np.arange(n)).all():
        return None
    return leaders + np.int32(first)
