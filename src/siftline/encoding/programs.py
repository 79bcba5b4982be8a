"""Expressions as programs for the exact check (see `kernels/programs.py`), compiled when they are first needed.

An expression becomes its negation normal form: and / or over literals, each of which asks something of a leaf. Leaves
are tests that all programs of a table share. Operands of a connective are in the order of what they cost, so that a
comparison of numbers comes before a search in a text, and a regular expression last.

A program speaks of values, not of codes: nothing that happens to the domains makes it invalid. Programs are only
appended. Whoever runs them takes a *view*, arrays that never change as far as they go.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.flat_domains import split_numbers
from siftline.encoding.growable import Growable
from siftline.encoding.leaf_tests import Constant, LeafTest, leaf_test
from siftline.encoding.path_hash import NO_PATHS, Paths
from siftline.encoding.patterns import laid_out_automata
from siftline.kernels.json_leaves import NUMBER
from siftline.kernels.pointers import handle_of, no_arrays
from siftline.kernels.program_table import (
    FAILS,
    FROM_NOW,
    HOLDS,
    INSTANT,
    IS_FALSE,
    IS_TRUE,
    IS_UNKNOWN,
    NEEDS,
    NOT_COMPILED,
    OF_ANY_STRING,
    ProgramTable,
)
from siftline.kernels.text_search import Automata
from siftline.language.normal_form import Asked, nnf, parts_of
from siftline.model import And, Expression, Or

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from siftline.encoding.regex_automata import Automaton

_NOBODY: Final = -1
_PER_SECOND: Final = 1_000_000_000

_TRUTHS: Final = {
    Asked.TRUE: 1 << IS_TRUE,
    Asked.FALSE: 1 << IS_FALSE,
    Asked.NOT_TRUE: 1 << IS_FALSE | 1 << IS_UNKNOWN,
    Asked.NOT_FALSE: 1 << IS_TRUE | 1 << IS_UNKNOWN,
}


class ProgramView(NamedTuple):
    """All programs of some moment.

    Attributes
    ----------
    table, handle
        Their arrays, and what kernels take for them.
    paths, names : Paths, dict of str to int
        The attributes that they ask about.
    leaves : list of Expression
        The leaf of each test. The list grows.
    regexes : dict of int to compiled regular expression
        By test, those that were needed so far.
    asks_strings : bool
        Whether some test asks about all strings of an event.
    """

    table: ProgramTable
    handle: Any
    paths: Paths
    names: dict[str, int]
    leaves: list[Expression]
    regexes: dict[int, Any]
    asks_strings: bool


class Programs:
    """The programs of the subscriptions of one table, by slot.

    Attributes
    ----------
    regex_calls : int
        How often a regular expression was run on a string.

    Examples
    --------
    >>> from siftline.model import Predicate
    >>> programs = Programs()
    >>> a, b = Predicate("a", "=", 1), Predicate("b", "contains", "x")
    >>> view, places = programs.ready(np.array([7, 8]), {7: b & a, 8: a}.__getitem__)
    >>> places.tolist(), len(view.leaves)
    ([1, 2], 2)
    """

    def __init__(self) -> None:
        self._forget()
        _watched.add(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._compiled = _Compiled()
        self.regex_calls = 0

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Programs, ()  # made again where they are needed

    def stats(self) -> dict[str, int]:
        """Return how many programs and tests there are, their bytes, and how often regular expressions were run."""
        compiled = self._compiled
        return {
            "programs": compiled.n_programs,
            "program_tests": len(compiled.leaves),
            "program_bytes": compiled.n_bytes,
            "regex_calls": self.regex_calls,
        }

    def ready(
        self, slots: NDArray[Any], expression: Callable[[int], Expression]
    ) -> tuple[ProgramView, NDArray[np.int32]]:
        """Return a view, and where in it the program of each slot begins; HOLDS or FAILS if it is only that.

        `expression` gives the expression of a slot that has no program yet.
        """
        compiled = self._compiled
        missing = slots
        try:
            places = compiled.places[slots]
        except IndexError:
            pass
        else:
            is_missing = places == NOT_COMPILED
            if not np.count_nonzero(is_missing):
                return compiled.view, places  # which was there before the places were
            missing = slots[is_missing]
        with self._lock:
            try:
                compiled = self._compiled
                compiled.add(np.unique(missing).tolist(), expression)
            except BaseException:  # an interrupt as well: some arrays may have grown, and others not
                self._compiled = _Compiled()
                raise
            return compiled.view, compiled.places[slots]


class _Compiled:
    """All programs that there are, until they are forgotten together."""

    def __init__(self) -> None:
        self.places = np.full(64, NOT_COMPILED, dtype=np.int32)  # by slot, with room for more
        arrays: dict[str, Any] = no_arrays(ProgramTable)._asdict()
        automata: dict[str, Any] = arrays.pop("automata")._asdict()
        self.columns = {name: Growable(array) for name, array in arrays.items()}
        self.automata = {name: Growable(array) for name, array in automata.items()}
        self.numbers: dict[Expression, int] = {}  # of the test of a leaf
        self.leaves: list[Expression] = []
        self.costs: list[int] = []
        self.screens: list[int] = []
        self.names: dict[str, int] = {}
        self.n_programs = 0
        table = no_arrays(ProgramTable)
        self.view = ProgramView(table, handle_of(table), NO_PATHS, {}, self.leaves, {}, False)

    @property
    def n_bytes(self) -> int:
        """How many bytes all arrays have."""
        columns = (*self.columns.values(), *self.automata.values())
        return self.places.nbytes + sum(column.whole.nbytes for column in columns)

    def add(self, slots: list[int], expression: Callable[[int], Expression]) -> None:
        """Compile the expressions of those slots that have no program yet."""
        if not slots:
            return
        n_known = len(self.places)
        if slots[-1] >= n_known:
            larger = np.full(2 * (slots[-1] + 1), NOT_COMPILED, dtype=np.int32)
            larger[:n_known] = self.places
            self.places = larger
        draft = _Draft(self)
        item = self.places.item
        added = [(slot, draft.program(expression(slot))) for slot in slots if item(slot) == NOT_COMPILED]
        draft.append()
        self.n_programs += len(added)
        self._publish()
        # Only now: whoever reads a place finds the program in the view.
        for slot, place in added:
            self.places[slot] = place

    def _publish(self) -> None:
        """Replace the view by one of everything that there is now."""
        automata = Automata(**{name: column.view for name, column in self.automata.items()})
        table = ProgramTable(**{name: column.view for name, column in self.columns.items()}, automata=automata)
        paths, names = self.view.paths, self.view.names
        if len(names) != len(self.names):
            names = self.names.copy()
            paths = Paths(list(names))
        handle, asks_strings = handle_of(table), bool((table.flags & OF_ANY_STRING).any())
        self.view = ProgramView(table, handle, paths, names, self.leaves, self.view.regexes, asks_strings)


class _Draft:
    """Programs that are being made, and their tests, in lists."""

    def __init__(self, compiled: _Compiled) -> None:
        self._compiled = compiled
        self._lengths = {name: len(column) for name, column in compiled.columns.items()}
        made_otherwise = ("numbers", "residuals", "texts")
        self._new: dict[str, list[Any]] = {name: [] for name in compiled.columns if name not in made_otherwise}
        self._automata: list[Automaton] = []
        self._constants: list[Constant] = []
        self._texts = bytearray()

    def program(self, expression: Expression) -> int:
        """Add the program of an expression and return where it begins."""
        tree, _ = self._costed(nnf(expression))
        return self._laid_out(tree, HOLDS, FAILS)

    def append(self) -> None:
        """Append everything to the arrays of all programs."""
        seconds = [divmod(each.value, _PER_SECOND) for each in self._constants if each.kind in (INSTANT, FROM_NOW)]
        are_moments = np.array([each.kind in (INSTANT, FROM_NOW) for each in self._constants], dtype=np.bool_)
        values = [each.value if each.kind == NUMBER else 0 for each in self._constants]
        numbers, residuals = split_numbers(values)
        starts = np.array(self._new["text_starts"], dtype=np.int64)
        if seconds:
            residuals[are_moments], starts[are_moments] = zip(*seconds, strict=True)
        made = {
            **self._new,
            "numbers": numbers,
            "residuals": residuals,
            "text_starts": starts,
            "texts": np.frombuffer(bytes(self._texts), dtype=np.uint8),
        }
        for name, column in self._compiled.columns.items():
            column.extend(made[name])
        self._append_automata()

    def _append_automata(self) -> None:
        columns, made = self._compiled.automata, laid_out_automata(self._automata)
        n_steps, n_ends = len(columns["steps"]), len(columns["matches_at_end"])
        made = made._replace(step_starts=made.step_starts[:-1] + n_steps, end_starts=made.end_starts[:-1] + n_ends)
        for name, array in made._asdict().items():
            columns[name].extend(array)

    # programs

    def _costed(self, expression: Expression) -> tuple[Any, int]:
        """Return what is asked of which test, or a connective and its operands by cost; and the cost of all."""
        if isinstance(expression, (And, Or)):
            operands = sorted(map(self._costed, expression.operands), key=_cost)
            return (type(expression) is And, operands), sum(map(_cost, operands))
        leaf, asked = parts_of(expression)
        test = self._test(leaf)
        return (test, _TRUTHS[asked]), self._compiled.costs[test]

    def _laid_out(self, tree: Any, if_so: int, otherwise: int) -> int:
        """Add the instructions of a tree, the last operands first, and return where they begin."""
        first, second = tree
        if type(first) is not bool:
            return self._instruction(first, second, if_so, otherwise)
        place = if_so if first else otherwise
        for operand, _ in reversed(second):
            place = self._laid_out(operand, place, otherwise) if first else self._laid_out(operand, if_so, place)
        return place

    def _instruction(self, test: int, truths: int, if_so: int, otherwise: int) -> int:
        new = self._new
        new["asked_tests"].append(test)
        new["asked_truths"].append(truths)
        new["screens"].append(self._compiled.screens[test])
        new["if_so"].append(if_so)
        new["otherwise"].append(otherwise)
        return self._lengths["asked_tests"] + len(new["asked_tests"]) - 1

    # tests

    def _test(self, leaf: Expression) -> int:
        """Return the number of the test of a leaf."""
        compiled = self._compiled
        number = compiled.numbers.get(leaf)
        if number is None:
            number = compiled.numbers[leaf] = len(compiled.leaves)
            test = leaf_test(leaf)
            compiled.leaves.append(leaf)
            compiled.costs.append(test.cost)
            compiled.screens.append(test.screen)
            self._append(test)
        return number

    def _append(self, test: LeafTest) -> None:
        new = self._new
        first = self._lengths["kinds"] + len(new["kinds"])
        operand = first if test.constants else _NOBODY
        if test.bounds:
            operand = self._lengths["bounds"] + len(new["bounds"])
            new["bounds"] += [first + bound for bound in test.bounds]
        new["tests"].append(test.asks)
        new["flags"].append(test.flags)
        new["attributes"].append(self._attribute(test.attribute))
        new["others"].append(self._other(test))
        new["operands"].append(operand)
        for constant in test.constants:
            start = self._lengths["texts"] + len(self._texts)
            self._constants.append(constant)
            self._texts += constant.text
            new["kinds"].append(constant.kind)
            new["text_starts"].append(start)
            new["text_ends"].append(start + len(constant.text))

    def _other(self, test: LeafTest) -> int:
        """Return what a test has beside its attribute, see `ProgramTable.others`."""
        if test.automaton is not None:
            self._automata.append(test.automaton)
            return len(self._compiled.automata["widths"]) + len(self._automata) - 1
        return -1 - test.shortest if test.asks == NEEDS else self._attribute(test.other)

    def _attribute(self, path: str | None) -> int:
        names = self._compiled.names
        return _NOBODY if path is None else names.setdefault(path, len(names))


def _cost(costed: tuple[Any, int]) -> int:
    return costed[1]


def _after_fork() -> None:
    """Drop all programs: a thread of the parent process may have been in the middle of compiling some."""
    for programs in list(_watched):
        programs._forget()


_watched: Final[weakref.WeakSet[Programs]] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
