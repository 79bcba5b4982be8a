"""Running programs on the values of events, in as many rounds as it takes to decide what kernels cannot.

round    the kernel runs each program until it ends or waits for an undecided test
between  each undecided test is decided once for its event: regular expressions and networks on the strings of their
         attribute, everything else by the model
"""

from __future__ import annotations

import functools
import re
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.encoding.patterns import folded_characters
from siftline.kernels.compiler import direct
from siftline.kernels.json_leaves import STRING
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.pointers import handle_of, no_arrays
from siftline.kernels.program_table import (
    GRAM_SETS,
    HOLDS,
    IS_FALSE,
    IS_TRUE,
    IS_UNKNOWN,
    N_COUNTS,
    NEEDS_FOLDING,
    Decided,
    Pairs,
    ProgramScratch,
)
from siftline.kernels.programs import run_programs
from siftline.kernels.text_search import FOLDED_GROWTH, MARGIN
from siftline.kernels.text_tests import GRAM_SET_BITS, LARGE_SET_BITS
from siftline.model import AnyString, Predicate, evaluate
from siftline.model.predicate import POSITIVE_OF, compile_regex
from siftline.model.semantics import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from siftline.encoding.program_values import Values
    from siftline.encoding.programs import Programs, ProgramView
    from siftline.model import Event
    from siftline.model.predicate import Operand

PER_SECOND: Final = 1_000_000_000
# A thread keeps at most this much room for folded strings from one run to the next.
_KEPT_TEXT_BYTES: Final = 1 << 18
# A lone surrogate as Python writes it; RE2 reads UTF-8, in which U+FFFD must stand in for it.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACEMENT: Final = "\ufffd".encode()
_TRUTHS: Final = {True: IS_TRUE, False: IS_FALSE, None: IS_UNKNOWN}
NOTHING_DECIDED: Final = no_arrays(Decided)


class Run:
    """One run of programs on events.

    Parameters
    ----------
    programs, view
        The programs, and the view in which the places are.
    values : Values
        The values of the events.
    event : callable
        Gives the model of an event by its number.
    now : int
        The instant at which the events are matched.
    """

    __slots__ = ("_event", "_now", "_programs", "_values", "_view")

    def __init__(
        self, programs: Programs, view: ProgramView, values: Values, event: Callable[[int], Event], now: int
    ) -> None:
        self._programs = programs
        self._view = view
        self._values = values
        self._event = event
        self._now = now

    def holds(self, events: NDArray[np.int64], places: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which programs hold, by pairs of an event and the place of a program; events ascend.

        The places are written to.
        """
        workspace = _workspace()
        workspace.make_room_for(self._view, self._values)
        pairs = Pairs(events, places, np.empty(len(places), dtype=np.int32))
        known: dict[tuple[int, int], int] = {}
        decided, run = NOTHING_DECIDED, _runner()
        values, handle, scratch = self._values, self._view.handle, workspace.handle
        leaves = values.columns, values.starts
        seconds, nanoseconds = divmod(self._now, PER_SECOND)
        while True:
            n_waiting = run(pairs, *leaves, decided, handle, scratch, seconds, nanoseconds)
            if n_waiting == 0:
                holds: NDArray[np.bool_] = places == HOLDS
                return holds
            if n_waiting == NEEDS_FOLDING:
                workspace.replace(folded=folded_characters())
                scratch = workspace.handle
                continue
            waiting = np.flatnonzero(places >= 0)
            wanted = sorted(set(zip(events[waiting].tolist(), pairs.waits[waiting].tolist(), strict=True)))
            for key in wanted:
                if key not in known:
                    known[key] = _TRUTHS[self._decide(*key)]
            decided = _as_arrays(wanted, [known[key] for key in wanted], len(values.starts) - 1)

    def _decide(self, event: int, test: int) -> bool | None:
        """Return the truth of an undecided test."""
        leaf = self._view.leaves[test]
        if not isinstance(leaf, (Predicate, AnyString)) or POSITIVE_OF.get(leaf.op, leaf.op) not in ("matches", "cidr"):
            return evaluate(leaf, self._event(event))
        texts = self._strings(event) if isinstance(leaf, AnyString) else self._texts(event, leaf.attribute)
        truths = (self._holds_of(text, leaf.op, leaf.operand, test) for text in texts)
        is_false = False
        for truth in truths:
            if truth:
                return True
            is_false |= truth is False
        return False if is_false else None

    def _texts(self, event: int, path: str | None) -> list[bytes]:
        """Return the strings of an attribute."""
        columns, starts = self._values.columns, self._values.starts
        if path is None:
            return []
        attribute = self._view.names[path]
        first, end = int(starts[event]), int(starts[event + 1])
        is_text = (columns.attributes[first:end] == attribute) & (columns.kinds[first:end] == STRING)
        return _texts_of(columns, (np.flatnonzero(is_text) + first).tolist())

    def _strings(self, event: int) -> list[bytes]:
        """Return all strings of an event."""
        columns, starts = self._values.columns, self._values.starts
        first, end = int(starts[event]), int(starts[event + 1])
        return _texts_of(columns, (np.flatnonzero(columns.kinds[first:end] == STRING) + first).tolist())

    def _holds_of(self, text: bytes, op: str, operand: Operand, test: int) -> bool | None:
        """Return the truth of a test of one string."""
        positive = POSITIVE_OF.get(op, op)
        if positive != "matches":
            return compare(text.decode("utf-8", "surrogatepass"), op, operand, self._now)
        return self._is_match(text, str(operand), test) == (positive == op)

    def _is_match(self, text: bytes, regex: str, test: int) -> bool:
        """Return whether a regular expression, which has no automaton, matches somewhere in a string."""
        table, regexes = self._view.table, self._view.regexes
        if len(text) < -1 - int(table.others[test]):
            return False
        compiled = regexes.get(test)
        if compiled is None:
            compiled = regexes[test] = compile_regex(regex)
        self._programs.regex_calls += 1
        return compiled.search(_SURROGATE.sub(_REPLACEMENT, text)) is not None


def _texts_of(columns: LeafColumns, leaves: Iterable[int]) -> list[bytes]:
    texts, starts, ends = columns.texts, columns.text_starts, columns.text_ends
    return [texts[starts[leaf] : ends[leaf]].tobytes() for leaf in leaves]


def _as_arrays(keys: Sequence[tuple[int, int]], truths: Sequence[int], n_events: int) -> Decided:
    """Return the truths of pairs of an event and a test, which ascend."""
    events, tests = np.array(keys).T
    return Decided(
        np.searchsorted(events, np.arange(n_events + 1)),
        tests.astype(np.int32),
        np.array(truths, dtype=np.uint8),
    )


class Workspace:
    """What one thread keeps for running programs, with room for what it has met so far."""

    def __init__(self) -> None:
        empty: ProgramScratch = no_arrays(ProgramScratch)
        self.scratch = empty._replace(
            counts=np.zeros(N_COUNTS, dtype=np.int64),
            grams=np.zeros(GRAM_SETS << GRAM_SET_BITS >> 6, dtype=np.uint64),
            all_grams=np.zeros(2 << LARGE_SET_BITS >> 6, dtype=np.uint64),
        )
        self.handle: Any = handle_of(self.scratch)

    def replace(self, **arrays: NDArray[Any]) -> None:
        """Take other arrays."""
        self.scratch = self.scratch._replace(**arrays)
        self.handle = handle_of(self.scratch)

    def make_room_for(self, view: ProgramView, values: Values) -> None:
        """Make room for the programs of a view, and for any of the events."""
        n_leaves, n_texts = _sizes(values.columns, values.starts)
        self.make_room(len(view.table.tests), len(view.names), n_leaves, n_texts)

    def make_room(self, n_tests: int, n_attributes: int, n_leaves: int, n_texts: int) -> None:
        """Make room for tests and attributes, and for the leaves of one event with strings of so many bytes."""
        scratch = self.scratch
        if n_tests > len(scratch.truths):
            self.replace(truths=_zeros(2 * n_tests))
        if n_attributes >= len(scratch.firsts):  # one more is for strings of other attributes
            self.replace(events=_zeros(2 * n_attributes + 1), firsts=_zeros(2 * n_attributes + 1))
        n_bytes = FOLDED_GROWTH * n_texts + (n_leaves + 1) * 2 * MARGIN
        if n_leaves > len(scratch.nexts):
            names = "nexts", "folded_starts", "folded_ends"
            self.replace(gram_sets=_zeros(4 * n_leaves), **{name: _zeros(2 * n_leaves) for name in names})
        if n_bytes > len(scratch.folded_texts):
            self.replace(folded_texts=np.zeros(2 * n_bytes, dtype=np.uint8))
        elif len(scratch.folded_texts) > max(_KEPT_TEXT_BYTES, 4 * n_bytes):
            self.replace(folded_texts=np.zeros(n_bytes, dtype=np.uint8))


def _zeros(n: int) -> NDArray[np.int64]:
    return np.zeros(n, dtype=np.int64)


def _sizes(columns: LeafColumns, starts: NDArray[np.int64]) -> tuple[int, int]:
    """Return the most leaves that an event has, and the most bytes of strings."""
    if len(starts) == 2:
        return int(starts[1]), len(columns.texts)
    bounds = np.append(columns.text_starts, len(columns.texts))[starts]
    return int(np.diff(starts).max(initial=0)), int(np.diff(bounds).max(initial=0))


class _OfThread(threading.local):
    workspace: Workspace | None = None


_of_thread = _OfThread()


def _workspace() -> Workspace:
    workspace = _of_thread.workspace
    if workspace is None:
        workspace = _of_thread.workspace = Workspace()
    return workspace


@functools.cache
def _runner() -> Callable[..., int]:
    """Return `run_programs` for arguments whose types are known."""
    handle, starts = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    leaves = no_arrays(LeafColumns)
    return direct(run_programs, no_arrays(Pairs), leaves, starts, no_arrays(Decided), handle, handle, 0, 0)
