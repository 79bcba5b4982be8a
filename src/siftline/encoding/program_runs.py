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
from siftline.kernels.programs import (
    GRAM_SETS,
    HOLDS,
    IS_FALSE,
    IS_TRUE,
    IS_UNKNOWN,
    NEEDS,
    Decided,
    Pairs,
    ProgramScratch,
    run_programs,
)
from siftline.kernels.text_search import FOLDED_GROWTH, MARGIN
from siftline.kernels.text_tests import GRAM_SET_WORDS
from siftline.model import Predicate, evaluate
from siftline.model.predicate import POSITIVE_OF, compile_regex
from siftline.model.semantics import compare

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from siftline.encoding.program_values import Values
    from siftline.encoding.programs import Programs, ProgramView
    from siftline.model import Event

_PER_SECOND: Final = 1_000_000_000
# A thread keeps at most this much room for folded strings from one run to the next.
_KEPT_TEXT_BYTES: Final = 1 << 18
# A lone surrogate as Python writes it; RE2 reads UTF-8, in which U+FFFD must stand in for it.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACEMENT: Final = "\ufffd".encode()
_TRUTHS: Final = {True: IS_TRUE, False: IS_FALSE, None: IS_UNKNOWN}
_NOTHING_DECIDED: Final = no_arrays(Decided)


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
        workspace.make_room(self._view, self._values)
        pairs = Pairs(events, places, np.empty(len(places), dtype=np.int32))
        known: dict[tuple[int, int], int] = {}
        decided, run = _NOTHING_DECIDED, _runner()
        columns, starts, handle = self._values.columns, self._values.starts, self._view.handle
        seconds, nanoseconds = divmod(self._now, _PER_SECOND)
        while True:
            n_waiting = run(pairs, columns, starts, decided, handle, workspace.handle, seconds, nanoseconds)
            if n_waiting == 0:
                holds: NDArray[np.bool_] = places == HOLDS
                return holds
            if n_waiting < 0:
                workspace.replace(folded=folded_characters())
                continue
            waiting = np.flatnonzero(places >= 0)
            for key in zip(events[waiting].tolist(), pairs.waits[waiting].tolist(), strict=True):
                if key not in known:
                    known[key] = _TRUTHS[self._decide(*key)]
            decided = _as_arrays(known, len(starts) - 1)

    def _decide(self, event: int, test: int) -> bool | None:
        """Return the truth of an undecided test."""
        leaf = self._view.leaves[test]
        if not isinstance(leaf, Predicate):
            return evaluate(leaf, self._event(event))
        texts = self._texts(event, leaf.attribute)
        truths = (self._holds_of(text, leaf, test) for text in texts)
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
        leaves = (np.flatnonzero(is_text) + first).tolist()
        return [columns.texts[columns.text_starts[k] : columns.text_ends[k]].tobytes() for k in leaves]

    def _holds_of(self, text: bytes, leaf: Predicate, test: int) -> bool | None:
        """Return the truth of a test of one string."""
        positive = POSITIVE_OF.get(leaf.op, leaf.op)
        if positive != "matches":
            return compare(text.decode("utf-8", "surrogatepass"), leaf.op, leaf.operand, self._now)
        return self._is_match(text, str(leaf.operand), test) == (positive == leaf.op)

    def _is_match(self, text: bytes, regex: str, test: int) -> bool:
        """Return whether a regular expression matches somewhere in a string, which must have the text that it needs."""
        table, regexes = self._view.table, self._view.regexes
        if table.tests[test] == NEEDS:
            constant = int(table.operands[test])
            if table.texts[table.text_starts[constant] : table.text_ends[constant]].tobytes() not in text:
                return False
        compiled = regexes.get(test)
        if compiled is None:
            compiled = regexes[test] = compile_regex(regex)
        self._programs.regex_calls += 1
        return compiled.search(_SURROGATE.sub(_REPLACEMENT, text)) is not None


def _as_arrays(known: dict[tuple[int, int], int], n_events: int) -> Decided:
    """Return decided tests by event."""
    keys = sorted(known)
    events = np.array([event for event, _ in keys])
    return Decided(
        np.searchsorted(events, np.arange(n_events + 1)),
        np.array([test for _, test in keys], dtype=np.int32),
        np.array([known[key] for key in keys], dtype=np.uint8),
    )


class _Workspace:
    """What one thread keeps for running programs, with room for what it has met so far."""

    def __init__(self) -> None:
        empty: ProgramScratch = no_arrays(ProgramScratch)
        grams = np.zeros(GRAM_SETS * GRAM_SET_WORDS, dtype=np.uint64)
        self.scratch = empty._replace(counts=np.zeros(3, dtype=np.int64), grams=grams)
        self.handle: Any = handle_of(self.scratch)

    def replace(self, **arrays: NDArray[Any]) -> None:
        """Take other arrays."""
        self.scratch = self.scratch._replace(**arrays)
        self.handle = handle_of(self.scratch)

    def make_room(self, view: ProgramView, values: Values) -> None:
        """Make room for all tests and attributes, and for the values of any of the events."""
        scratch, columns, starts = self.scratch, values.columns, values.starts
        n_tests, n_attributes = len(view.table.tests), len(view.names)
        if n_tests > len(scratch.truths):
            self.replace(truths=_zeros(2 * n_tests))
        if n_attributes > len(scratch.firsts):
            self.replace(events=_zeros(2 * n_attributes), firsts=_zeros(2 * n_attributes))
        n_leaves = _most(starts)
        n_bytes = FOLDED_GROWTH * _most(_text_bounds(columns, starts)) + (n_leaves + 1) * 2 * MARGIN
        if n_leaves > len(scratch.nexts):
            names = "nexts", "folded_starts", "folded_ends"
            self.replace(gram_sets=_zeros(4 * n_leaves), **{name: _zeros(2 * n_leaves) for name in names})
        if n_bytes > len(scratch.folded_texts):
            self.replace(folded_texts=np.zeros(2 * n_bytes, dtype=np.uint8))
        elif len(scratch.folded_texts) > max(_KEPT_TEXT_BYTES, 4 * n_bytes):
            self.replace(folded_texts=np.zeros(n_bytes, dtype=np.uint8))


def _zeros(n: int) -> NDArray[np.int64]:
    return np.zeros(n, dtype=np.int64)


def _most(starts: NDArray[np.int64]) -> int:
    return int(starts[1] - starts[0]) if len(starts) == 2 else int(np.diff(starts).max(initial=0))


def _text_bounds(columns: LeafColumns, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where in the bytes of all strings those of each event begin, and the end."""
    if len(starts) == 2:
        return np.array((0, len(columns.texts)))
    return np.append(columns.text_starts, len(columns.texts))[starts]


class _OfThread(threading.local):
    workspace: _Workspace | None = None


_of_thread = _OfThread()


def _workspace() -> _Workspace:
    workspace = _of_thread.workspace
    if workspace is None:
        workspace = _of_thread.workspace = _Workspace()
    return workspace


@functools.cache
def _runner() -> Callable[..., int]:
    """Return `run_programs` for arguments whose types are known."""
    handle, starts = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    return direct(
        run_programs, no_arrays(Pairs), no_arrays(LeafColumns), starts, no_arrays(Decided), handle, handle, 0, 0
    )
