"""The last stage of matching: the conditions with calls that the index has left as candidates.

    candidate owners  →  chains whose guards hold  →  problem  →  schedule: a call, its result, ...  →  joins

A stage has the chains of all conditions with calls of one table of subscriptions. Chains and nodes are only appended,
beyond what a reader sees; a sweep of the table drops those of removed subscriptions.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.encoding.growable import Growable
from siftline.kernels.schedules import DONE, FALSE, TRUE, UNKNOWN
from siftline.model import evaluate_solutions
from siftline.operators.call_statistics import CallStatistics
from siftline.operators.calling import BatchCalls, CallCounts, EventCalls
from siftline.operators.clauses import chains_of
from siftline.operators.learned import Learned, Recorder, key_of
from siftline.operators.problem import Problem, problem_of
from siftline.operators.registry import find
from siftline.operators.schedules import EVERYTHING, make_schedule
from siftline.operators.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from siftline.model import Event, Expression
    from siftline.operators.clauses import Chain
    from siftline.operators.predicates import CallPredicate


class Stage:
    """Conditions with calls, and the schedule of their calls.

    Parameters
    ----------
    schedule : str
        A name from `schedules()`.
    counts : CallCounts, optional
        Where calls are counted; a stage that replaces another continues its counts.
    """

    def __init__(self, schedule: str, counts: CallCounts | None = None) -> None:
        self.schedule_name = schedule
        self.counts = counts or CallCounts()
        self.n_events = 0
        self.takes_batches = False  # whether some operator takes many events at once
        self._statistics = CallStatistics()
        self._schedule = make_schedule(schedule, self._statistics)
        self._nodes: dict[CallPredicate, int] = {}
        self._predicates: list[CallPredicate] = []
        self._known_keys: dict[str, int] = {}
        self._expressions: list[Expression] = []  # by owner
        self._chains: list[Chain] = []
        self._owner_starts = Growable(np.zeros(1, dtype=np.int64))
        self._chain_starts = Growable(np.zeros(1, dtype=np.int64))
        self._literals = Growable.empty(np.int32)
        self._is_guarded = Growable.empty(np.bool_)
        self._last_problem: Problem | None = None
        self._recorder: Recorder | None = None
        self._traces: dict[int, Trace] = {}  # by thread
        self._learning = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in self.__dict__.items() if name != "_learning"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._learning = threading.Lock()

    # conditions

    def add(self, expression: Expression) -> int:
        """Add a condition and return its number."""
        return self._add(expression, chains_of(expression))

    def _add(self, expression: Expression, chains: Sequence[Chain]) -> int:
        for chain in chains:
            literals = [2 * self._node(literal.predicate) + literal.is_denied for literal in chain.literals]
            number = len(self._chains)
            self._chains.append(chain)
            self._literals.extend(literals)
            self._is_guarded.append(bool(chain.guards))
            self._chain_starts.append(len(self._literals))
            self._schedule.add(number, np.array(literals, dtype=np.int32))
        self._expressions.append(expression)
        self._owner_starts.append(len(self._chains))
        return len(self._expressions) - 1

    def _node(self, predicate: CallPredicate) -> int:
        node = self._nodes.get(predicate)
        if node is None:
            with self._learning:
                operator = find(predicate.key.name)  # None if it was removed since the condition was added
                self._statistics.add(predicate.key.name, 1.0 if operator is None else operator.cost)
                self.takes_batches |= operator is not None and operator.is_batch
            node = self._nodes[predicate] = len(self._predicates)
            self._predicates.append(predicate)
        return node

    def remove(self, owner: int) -> None:
        """Remove a condition; a reader that still sees its subscription may still evaluate it."""
        for chain in range(*self._owner_starts.view[owner : owner + 2].tolist()):
            self._schedule.remove(chain)

    def rebuild(self) -> None:
        """Let the schedule compute its order again, from what was learned."""
        self._schedule.rebuild()

    def swept(self, owners: NDArray[np.int32]) -> Stage:
        """Return a stage with only some conditions, renumbered in this order; it keeps what was learned."""
        stage = Stage(self.schedule_name, self.counts)
        stage.n_events = self.n_events
        for owner in owners.tolist():
            # The chains are copied and not made again, because an operator that they call may be gone.
            chains = self._chains[slice(*self._owner_starts.view[owner : owner + 2].tolist())]
            stage._add(self._expressions[owner], chains)
        stage._statistics.take_over(self._statistics, [self._nodes[predicate] for predicate in stage._predicates])
        return stage

    # events

    def matching(
        self,
        owners: NDArray[np.int32],
        event: Event,
        batch: BatchCalls | None = None,
        position: int = 0,
    ) -> NDArray[np.bool_]:
        """Return which of some conditions an event satisfies."""
        calls = EventCalls(event.tree, self.counts, batch, position)
        self.n_events += 1
        if self.schedule_name == EVERYTHING:
            return np.array([self._is_true(self._expressions[owner], event, calls) for owner in owners.tolist()], bool)
        problem = self._problem(owners, event)
        return self._run(problem, len(owners), event, calls)

    def _is_true(self, expression: Expression, event: Event, calls: EventCalls) -> bool:
        return evaluate_solutions(expression, event, calls.solve) is True

    def _problem(self, owners: NDArray[np.int32], event: Event) -> Problem:
        """Return the problem of the chains whose guards hold; the last one, if it is the same."""
        starts = self._owner_starts.view
        counts = starts[owners + 1] - starts[owners]
        local = np.repeat(np.arange(len(owners), dtype=np.int32), counts)
        offsets = np.arange(len(local)) - np.repeat(np.cumsum(counts) - counts, counts)
        chains = (starts[owners][local] + offsets).astype(np.int32)
        is_guarded = self._is_guarded.view[chains]
        if is_guarded.any():
            is_left = ~is_guarded
            for place in np.flatnonzero(is_guarded).tolist():
                is_left[place] = self._chains[chains[place]].is_guarded(event)
            chains, local = chains[is_left], local[is_left]
        last = self._last_problem
        if last is not None and np.array_equal(last.chains, chains) and np.array_equal(last.owners, local):
            return last
        # The number of nodes is read after the literals, so it includes all of their nodes.
        problem = problem_of(chains, local, self._chain_starts.view, self._literals.view, len(self._predicates))
        self._last_problem = problem
        return problem

    def _run(self, problem: Problem, n_owners: int, event: Event, calls: EventCalls) -> NDArray[np.bool_]:
        run = self._schedule.begin(problem)
        found = np.zeros(n_owners, dtype=np.bool_)
        nodes, known, is_settled = problem.nodes.tolist(), run.known, run.is_settled
        times: dict[str, list[int]] = {}
        step = DONE
        while (step := run.next(step)) != DONE:
            if step >= 0:
                known[step] = self._evaluated(nodes[step], calls, times)
                continue
            chain, owner = -2 - step, int(problem.owners[-2 - step])
            if self._chains[problem.chains[chain]].holds(event, calls.solve):
                found[owner] = is_settled[owner] = True
        with self._learning:
            self._statistics.learn(problem.nodes, known)
            for name, (n, nanoseconds) in times.items():
                self._statistics.measured(name, nanoseconds / n / 1e6)
            if self._recorder is not None:
                self._recorder.note(problem.nodes, known, times)
        if self._traces and (trace := self._traces.get(threading.get_ident())) is not None:
            trace.note(problem, known, self._predicates, calls)
        return found

    def _evaluated(self, node: int, calls: EventCalls, times: dict[str, list[int]]) -> int:
        """Make a call and return its outcome."""
        predicate = self._predicates[node]
        if not self._schedule.remembers:
            calls.forget()
        start = time.perf_counter_ns()
        solutions = calls.solutions(predicate)
        total = times.setdefault(predicate.key.name, [0, 0])
        total[0] += 1
        total[1] += time.perf_counter_ns() - start
        if solutions is None:
            return UNKNOWN
        return TRUE if solutions else FALSE

    def batch(self, trees: Mapping[int, Mapping[str, Any]]) -> BatchCalls:
        """Return the results of operators that take many events at once, to be filled on demand."""
        return BatchCalls(trees, self.counts)

    def traced(self, work: Callable[[], object]) -> Trace | None:
        """Run a match in this thread, and return the trace of its calls; None if there is no schedule."""
        if self.schedule_name == EVERYTHING:
            return None
        trace = self._traces[threading.get_ident()] = Trace()
        try:
            work()
        finally:
            del self._traces[threading.get_ident()]
        return trace

    # what was learned

    def learned(self) -> Learned:
        """Return what was learned about predicates and operators."""
        with self._learning:
            return self._statistics.learned(self._keys())

    def take(self, learned: Learned) -> None:
        """Continue from what was learned elsewhere."""
        with self._learning:
            self._statistics.take(learned, self._keys())
        self.rebuild()

    def to_document(self) -> dict[str, Any]:
        """Return what was learned, for a snapshot."""
        return self.learned()._asdict()

    def restore(self, document: Mapping[str, Any]) -> None:
        """Continue from what a snapshot has."""
        self.take(Learned(**document))

    def _keys(self) -> dict[str, int]:
        """Return all nodes by the keys of their predicates; each key is made once."""
        for node in range(len(self._known_keys), len(self._predicates)):
            self._known_keys[key_of(self._predicates[node])] = node
        return self._known_keys

    def record(self) -> None:
        """Start counting what events show."""
        with self._learning:
            self._recorder = Recorder(len(self._predicates), self.counts)

    def recorded(self) -> Learned:
        """Return what events have shown since `record`, and stop counting."""
        with self._learning:
            assert self._recorder is not None
            learned = self._recorder.learned(self._predicates)
            self._recorder = None
            return learned

    def stats(self) -> dict[str, Any]:
        """Return the schedule, counts by operator, and what was learned."""
        calls = self.counts.to_dict()
        return {
            "schedule": self.schedule_name,
            "conditions": len(self._expressions),
            "predicates": len(self._predicates),
            "events": self.n_events,
            "calls": sum(int(counts["calls"]) for counts in calls.values()),
            "operators": calls,
            "learned": self._statistics.to_dict(),
        }
