"""Calling operators: each call once per event, with a time limit; a failure does not affect other calls.

EventCalls    the results of one event, by call: a call with the same constants is made once
BatchCalls    the results of a batch for operators that take many events at once
CallCounts    calls, failures and time by operator, of one engine
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

from siftline.errors import OperatorError, SubscriptionError
from siftline.operators.operator import checked_value
from siftline.operators.predicates import predicate_of, typed, unified
from siftline.operators.registry import get

if TYPE_CHECKING:
    from siftline.model import Call, Constant, Solution
    from siftline.operators.operator import Operator
    from siftline.operators.predicates import CallKey, CallPredicate

Result = TypeVar("Result")

_log: Final = logging.getLogger("siftline.operators")

# The rows of values that a call found: an empty list means false, None means unknown.
Rows = list[tuple["Constant", ...]] | None


class Failure(Enum):
    """Why a call failed; its result is unknown then, as if the operator had returned None."""

    ERROR = "failed"
    TIMEOUT = "took too long"


_FALSE: Final[list[Any]] = []
_TRUE: Final[list[Any]] = [()]
# How many failures of each operator are logged with a traceback.
_MOST_TRACES: Final = 3
# While this many calls of an operator hang, further calls time out at once.
_MOST_HANGING: Final = 8


@dataclass(slots=True)
class Counts:
    """Counts and time of the calls of one operator."""

    calls: int = 0
    failures: int = 0
    timeouts: int = 0
    nanoseconds: int = 0


@dataclass(slots=True)
class CallCounts:
    """Counts and times of all calls of an engine, by operator; thread-safe."""

    by_operator: dict[str, Counts] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, name: str, nanoseconds: int, failure: str = "") -> int:
        """Count one call and return how many of the operator's calls have failed; `failure` is one of its fields."""
        with self._lock:
            counts = self.by_operator.setdefault(name, Counts())
            counts.calls += 1
            counts.nanoseconds += nanoseconds
            if failure:
                setattr(counts, failure, getattr(counts, failure) + 1)
            return counts.failures + counts.timeouts

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return all counts, times in milliseconds."""
        with self._lock:
            return {
                name: {
                    "calls": counts.calls,
                    "failures": counts.failures,
                    "timeouts": counts.timeouts,
                    "milliseconds": counts.nanoseconds / 1e6,
                }
                for name, counts in sorted(self.by_operator.items())
            }

    def __getstate__(self) -> dict[str, Counts]:
        with self._lock:
            return dict(self.by_operator)

    def __setstate__(self, state: dict[str, Counts]) -> None:
        self.by_operator, self._lock = state, threading.Lock()


class BatchCalls:
    """The results of operators that take a whole table of events; the first event that needs one makes the call."""

    def __init__(self, trees: Mapping[int, Mapping[str, Any]], counts: CallCounts) -> None:
        self._trees = trees
        self._counts = counts
        self._table: Any = None
        self._rows: dict[CallKey, dict[int, Rows | Failure]] = {}

    def rows(self, operator: Operator, key: CallKey, position: int) -> Rows | Failure:
        """Return what a call found for one of the events."""
        if key not in self._rows:
            self._rows[key] = self._called(operator, key)
        return self._rows[key][position]

    def _called(self, operator: Operator, key: CallKey) -> dict[int, Rows | Failure]:
        from siftline.operators.arrow_batches import batch_of

        if self._table is None:
            self._table = batch_of(list(self._trees.values()))
        n_values = _n_values(operator)

        def results() -> list[Rows]:
            found = list(operator.function(self._table, *key.values()))
            if len(found) != len(self._trees):
                raise OperatorError(f"there are {len(self._trees)} events and {len(found)} results")
            return [_rows_of(_python(result), n_values) for result in found]

        made = _limited(operator, results, self._counts)
        if isinstance(made, Failure):
            return dict.fromkeys(self._trees, made)
        return dict(zip(self._trees, made, strict=True))


def _python(result: Any) -> Any:
    return result.as_py() if hasattr(result, "as_py") else result


class EventCalls:
    """The results of one event's calls."""

    def __init__(
        self, tree: Mapping[str, Any], counts: CallCounts, batch: BatchCalls | None = None, position: int = 0
    ) -> None:
        self._tree = tree
        self._counts = counts
        self._batch = batch
        self._position = position
        self._rows: dict[CallKey, Rows | Failure] = {}
        self._nanoseconds: dict[CallKey, int] = {}

    def solutions(self, predicate: CallPredicate) -> list[Solution] | None:
        """Return the solutions of a predicate: an empty list if it is false, None if it is unknown or failed."""
        key = predicate.key
        if key not in self._rows:
            start = time.perf_counter_ns()
            self._rows[key] = self._called(key)
            self._nanoseconds[key] = time.perf_counter_ns() - start
        rows = self._rows[key]
        return None if rows is None or isinstance(rows, Failure) else unified(rows, predicate)

    def solve(self, call: Call) -> list[Solution] | None:
        """Return the solutions of a call; None also if its operator is gone, or takes other arguments now."""
        predicate = self.predicate(call)
        return None if predicate is None else self.solutions(predicate)

    def predicate(self, call: Call) -> CallPredicate | None:
        """Return the predicate of a call; if no operator takes it any more, count a failure and return None."""
        try:
            return predicate_of(call)
        except SubscriptionError as error:
            self._count_gone(call.name, error)
            return None

    def milliseconds(self, key: CallKey) -> float:
        """Return how long a call took, 0 if it was not made."""
        return self._nanoseconds.get(key, 0) / 1e6

    def failure(self, key: CallKey) -> Failure | None:
        """Return why a call failed; None if it did not."""
        rows = self._rows.get(key)
        return rows if isinstance(rows, Failure) else None

    def forget(self) -> None:
        """Drop all results, so that calls are made again."""
        self._rows.clear()

    def _called(self, key: CallKey) -> Rows | Failure:
        try:
            operator = get(key.name)
        except SubscriptionError as error:  # the operator was removed since the subscription was added
            self._count_gone(key.name, error)
            return Failure.ERROR
        if operator.is_batch:
            batch = self._batch or BatchCalls({self._position: self._tree}, self._counts)
            return batch.rows(operator, key, self._position)
        function, tree, constants, n_values = operator.function, self._tree, key.values(), _n_values(operator)
        # The function may return an iterator, so its solutions are read under the time limit too.
        return _limited(operator, lambda: _rows_of(function(tree, *constants), n_values), self._counts)

    def _count_gone(self, name: str, error: SubscriptionError) -> None:
        if self._counts.note(name, 0, "failures") <= _MOST_TRACES:
            _log.error("%s", error.reason)


def _n_values(operator: Operator) -> int | None:
    return None if operator.binds is None else len(operator.binds)


def _rows_of(result: Any, n_values: int | None) -> Rows:
    """Return the result of an operator as rows; raise TypeError or ValueError if it is invalid."""
    if result is None:
        return None
    if n_values == 0:
        if type(result) is bool or type(result).__name__ == "bool":  # of numpy
            return _TRUE if result else _FALSE
        raise TypeError(f"an operator that binds nothing returns True, False or None, not {result!r}")
    if isinstance(result, (str, bytes, tuple)) or not isinstance(result, Iterable):
        return [_row(result, n_values)]
    rows = (_row(solution, n_values) for solution in result)
    return list({tuple(map(typed, row)): row for row in rows}.values())


def _row(solution: Any, n_values: int | None) -> tuple[Constant, ...]:
    values: Sequence[Any] = solution if isinstance(solution, (tuple, list)) else (solution,)
    if n_values is not None and len(values) != n_values:
        raise ValueError(f"a solution must have {n_values} values, not {len(values)}: {solution!r}")
    return tuple(checked_value(value) for value in values)


# Limits


def _limited(operator: Operator, work: Callable[[], Result], counts: CallCounts) -> Result | Failure:
    """Return the result of a call, or why it failed."""
    start = time.perf_counter_ns()
    try:
        result = work() if operator.timeout is None else _in_time(operator, work)
    except TimeoutError:
        n = counts.note(operator.name, time.perf_counter_ns() - start, "timeouts")
        if n <= _MOST_TRACES:
            _log.warning("the operator %r took longer than %s s", operator.name, operator.timeout)
        return Failure.TIMEOUT
    except Exception as error:
        n = counts.note(operator.name, time.perf_counter_ns() - start, "failures")
        _log.warning("the operator %r failed: %r", operator.name, error, exc_info=n <= _MOST_TRACES)
        return Failure.ERROR
    counts.note(operator.name, time.perf_counter_ns() - start)
    return result


class _Worker:
    """A thread that makes calls with a time limit; a worker whose call hangs is not waited for."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="siftline-operator", daemon=True).start()

    def start(self, work: Callable[[], Any]) -> queue.SimpleQueue[Any]:
        """Start a call; return the queue that will get (result, error)."""
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tasks.put((work, answer))
        return answer

    def _run(self) -> None:
        while True:
            work, answer = self._tasks.get()
            try:
                answer.put((work(), None))
            except BaseException as error:
                answer.put((None, error))


_idle: Final[list[_Worker]] = []
_hanging: Final[dict[str, int]] = {}
_counting = threading.Lock()


def _idle_worker() -> _Worker:
    try:
        return _idle.pop()  # without a check before, because other threads take workers too
    except IndexError:
        return _Worker()


def _forget_threads() -> None:
    """Reset the state in a forked child, which has none of the threads."""
    global _counting
    _idle.clear()
    _hanging.clear()
    _counting = threading.Lock()


os.register_at_fork(after_in_child=_forget_threads)


def _in_time(operator: Operator, work: Callable[[], Result]) -> Result:
    """Run work in another thread, and raise TimeoutError if it does not end in time."""
    name = operator.name
    if _hanging.get(name, 0) >= _MOST_HANGING:
        raise TimeoutError
    worker = _idle_worker()
    is_late = is_done = False

    def watched() -> Any:
        nonlocal is_done
        try:
            return work()
        finally:
            with _counting:
                is_done = True
                if is_late:  # it timed out, but has ended now
                    _hanging[name] -= 1
                    _idle.append(worker)

    answer = worker.start(watched)
    try:
        result, error = answer.get(timeout=operator.timeout)
    except queue.Empty:
        with _counting:
            is_late = not is_done
            if is_late:
                _hanging[name] = _hanging.get(name, 0) + 1
                raise TimeoutError from None
        result, error = answer.get()  # it ended just after the timeout
    _idle.append(worker)
    if error is not None:
        _raise(error)
    return cast("Result", result)


def _raise(error: BaseException) -> NoReturn:
    if isinstance(error, Exception):
        raise error
    raise OperatorError(f"an operator ended with {error!r}")  # SystemExit, for example, must not end this thread
