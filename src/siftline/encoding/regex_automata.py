r"""Small automata of regular expressions, which the compiled search can run itself.

An expression is read as `regex_needs.py` does, turned into a nondeterministic automaton, and that into a deterministic
one, if it stays small. A character is one of some 130 *symbols*: itself if it is ASCII, one each for a few others that
the expression names, or that are an `s` or a `k` where case is ignored, and one for all others. Symbols that the
expression does not tell apart are one class, so that a state has few columns.

    a[0-9]$         classes     0: anything else, 1: a digit, 2: "a"
                    state 0     1, 1, 2          at the begin
                    state 1     1, 1, 2          nothing so far
                    state 2     1, 3, 2          behind an "a"
                    state 3     1, 1, 2          behind a digit behind it: a match, if the string ends here

Where the automaton says that there is a match, RE2 says so, too. Not made are automata for word boundaries, lines
(`(?m)`), ranges beyond ASCII, and what would need too many states (`.{200,}`); they are left to RE2. So is `[kK]` or
`[sS]` beside an alternative: RE2 takes it for a letter that ignores case, and finds a Kelvin sign or a long s in
some of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from siftline.encoding.regex_needs import GROUPS_MAX, bounds_of, tokens_of
from siftline.kernels.text_search import N_NAMED, N_SYMBOLS, OTHER

# Set of symbols, and sets of states, are integers with a bit for each.
_ALL: Final = (1 << N_SYMBOLS) - 1
_ASCII: Final = (1 << 128) - 1
_NEWLINE: Final = 1 << ord("\n")

# A state in which everything is decided: there is a match.
MATCHED: Final = -1

# Automata with more states, or more columns of states, are not made: it would take more than milliseconds.
_NFA_STATES_MAX: Final = 400
_DFA_STEPS_MAX: Final = 1 << 14
# Nor are those whose states come from very many others.
_WORK_MAX: Final = 1 << 15

# The two characters beyond ASCII that are ASCII letters where case is ignored. They always have the first two numbers.
_LONG_S: Final = "\u017f"
_KELVIN: Final = "\u212a"
# RE2 sees this in the place of a lone surrogate.
_REPLACEMENT: Final = "\ufffd"

_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _mask(characters: str) -> int:
    return sum(1 << ord(character) for character in set(characters))


_DIGITS: Final = _mask("0123456789")
_WORDS: Final = _DIGITS | _mask("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_SPACES: Final = _mask("\t\n\f\r ")
# Letters in both cases that are like another character where case is ignored.
_BOTH_CASES: Final = (_mask("kK"), _mask("sS"))
_CLASSES: Final = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}


class Automaton(NamedTuple):
    """A deterministic automaton; see above.

    Attributes
    ----------
    named : tuple of str
        The characters beyond ASCII that have symbols.
    classes : uint8[N_SYMBOLS]
        The class of each symbol.
    steps : int16[n_states, n_classes]
        The next state, or MATCHED; the first state is 0.
    matches_at_end : bool[n_states]
        Whether there is a match if the string ends in a state.
    """

    named: tuple[str, ...]
    classes: Any
    steps: Any
    matches_at_end: Any


class _UnreadError(Exception):
    """The expression has something that is left to RE2."""


@lru_cache(maxsize=1024)
def automaton_of(regex: str) -> Automaton | None:
    r"""Return an automaton for the strings in which an expression, which RE2 accepts, matches somewhere.

    >>> found = automaton_of("a[0-9]$")
    >>> found.steps.tolist(), found.matches_at_end.tolist()
    ([[1, 1, 2], [1, 1, 2], [1, 3, 2], [1, 1, 2]], [False, False, False, True])
    >>> automaton_of(r"a\\b") is None, automaton_of(r"a\b") is None
    (False, True)
    """
    tokens = tokens_of(regex)
    if tokens is None or _REPLACEMENT in regex or regex.count("(") > GROUPS_MAX:
        return None
    try:
        reader = _Reader(tokens)
        node = reader.alternatives()
        if reader.place < len(tokens) or _size(node) > _NFA_STATES_MAX:
            return None
        return _Nfa(node).automaton(tuple(reader.named))
    except _UnreadError:
        return None


class _Reader:
    """Reads tokens into a tree.

    Its nodes are ("set", symbols), ("all", nodes), ("any", nodes), ("repeat", node, low, high), ("begin",), ("end",).
    """

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self.place = 0
        self.named = [_LONG_S, _KELVIN]
        flags = [token for kind, token in tokens if token.startswith("(?") and token[2:3] not in ("P", "<")]
        self._ignores_case = self._dots_are_all = False
        self._has_alternatives = any(kind == "or" for kind, _ in tokens)
        for token in flags:
            letters = token[2:-1]
            # Flags that do not hold for the whole expression would have to be given up behind it.
            if letters and (token is not flags[0] or tokens[0][1] != token or token[-1] != ")"):
                raise _UnreadError
            if "m" in letters:
                raise _UnreadError
            self._ignores_case |= "i" in letters
            self._dots_are_all |= "s" in letters

    def alternatives(self) -> Any:
        """Read up to a closing bracket."""
        found = [self._sequence()]
        while self.place < len(self._tokens) and self._tokens[self.place][0] == "or":
            self.place += 1
            found.append(self._sequence())
        return ("any", found) if len(found) > 1 else found[0]

    def _sequence(self) -> Any:
        found = []
        while self.place < len(self._tokens) and self._tokens[self.place][0] not in ("or", "close"):
            kind, token = self._tokens[self.place]
            self.place += 1
            node = self._one(kind, token)
            while self.place < len(self._tokens) and self._tokens[self.place][0] == "repeat":
                node = ("repeat", node, *bounds_of(self._tokens[self.place][1]))
                self.place += 1
            found.append(node)
        return ("all", found)

    def _one(self, kind: str, token: str) -> Any:
        match kind:
            case "open":
                node = self.alternatives()
                self.place += 1
                return node
            case "place":
                return self._place(token)
            case "text":
                character = _CONTROLS.get(token[1:], token[-1]) if token[0] == "\\" else token
                return ("set", self._cased(1 << self._symbol(character)))
            case "any":
                if token == ".":
                    return ("set", _ALL if self._dots_are_all else _ALL & ~_NEWLINE)
                return ("set", self._group(token[1]))
            case "class":
                return ("set", self._class(token))
        raise _UnreadError

    def _symbol(self, character: str) -> int:
        """Return the number of a character."""
        if character.isascii():
            return ord(character)
        if self._ignores_case or "\ud800" <= character <= "\udfff":
            raise _UnreadError
        if character not in self.named:
            self.named.append(character)
        if len(self.named) > N_NAMED:
            raise _UnreadError
        return OTHER + 1 + self.named.index(character)

    def _place(self, token: str) -> Any:
        if token in ("^", r"\A"):
            return ("begin",)
        if token in ("$", r"\z"):
            return ("end",)
        if token.startswith("(?"):
            return ("all", [])
        raise _UnreadError

    def _class(self, token: str) -> int:
        inner = token[1:-1]
        is_negated = inner.startswith("^")
        inner = inner[is_negated:]
        members, place, mask = [], 0, 0
        while place < len(inner):
            taken = 2 if inner[place] == "\\" else 1
            members.append(inner[place : place + taken])
            place += taken
        place = 0
        while place < len(members):
            first = members[place]
            if place + 2 < len(members) and members[place + 1] == "-":
                low, high = self._member(first), self._member(members[place + 2])
                if low is None or high is None or max(low, high) >= OTHER:
                    raise _UnreadError
                mask |= (1 << (high + 1)) - (1 << low)
                place += 3
                continue
            point = self._member(first)
            mask |= self._group(first[1]) if point is None else 1 << point
            place += 1
        if mask in _BOTH_CASES and self._has_alternatives and not self._ignores_case:
            raise _UnreadError
        mask = self._cased(mask)
        return _ALL & ~mask if is_negated else mask

    def _member(self, member: str) -> int | None:
        """Return the code of a member of a class, None if it stands for several."""
        if member[0] != "\\":
            return self._symbol(member)
        if member[1].lower() in _CLASSES:
            return None
        if member[1] in _CONTROLS:
            return ord(_CONTROLS[member[1]])
        if member[1].isalnum():
            raise _UnreadError
        return self._symbol(member[1])

    def _group(self, name: str) -> int:
        """Return the symbols of a class with a name; ignoring case, what is like one of its letters is in it, too."""
        mask = self._cased(_CLASSES[name.lower()])
        return mask if name.islower() else _ALL & ~mask

    def _cased(self, mask: int) -> int:
        """Add the other cases of letters."""
        if not self._ignores_case:
            return mask
        for letter in range(26):
            both = (1 << (65 + letter)) | (1 << (97 + letter))
            mask |= both if mask & both else 0
        mask |= _symbol_of(_LONG_S) if mask & _mask("s") else 0
        return mask | (_symbol_of(_KELVIN) if mask & _mask("k") else 0)


def _symbol_of(character: str) -> int:
    return 1 << (OTHER + 1 + (_LONG_S, _KELVIN).index(character))


def _size(node: Any) -> int:
    """Return how many sets a tree has, repetitions counted."""
    match node:
        case ("set", _):
            return 1
        case ("all" | "any", nodes):
            return 1 + sum(_size(inner) for inner in nodes)
        case ("repeat", inner, low, high):
            return 1 + _size(inner) * int(max(1, low, high))
    return 1


class _Nfa:
    """A nondeterministic automaton; state 1 is a match."""

    def __init__(self, node: Any) -> None:
        self._edges: list[list[tuple[int, int]]] = []  # (symbols, next state)
        self._free: list[dict[str, list[int]]] = []  # next states without a symbol: always, at the begin, at the end
        start, end = self._new(), self._new()
        self._link(self._built(node, start), end)
        self._closures = {at: [self._reached(state, at) for state in range(len(self._edges))] for at in _PLACES}

    def _new(self) -> int:
        self._edges.append([])
        self._free.append({"": [], "begin": [], "end": []})
        return len(self._edges) - 1

    def _link(self, state: int, other: int, at: str = "") -> None:
        self._free[state][at].append(other)

    def _built(self, node: Any, start: int) -> int:
        """Add what a node asks behind a state; return the state behind it."""
        match node:
            case ("set", symbols):
                end = self._new()
                self._edges[start].append((symbols, end))
                return end
            case ("all", nodes):
                for inner in nodes:
                    start = self._built(inner, start)
                return start
            case ("any", nodes):
                end = self._new()
                for inner in nodes:
                    self._link(self._built(inner, start), end)
                return end
            case ("repeat", inner, low, high):
                return self._repeated(inner, low, high, start)
        end = self._new()
        self._link(start, end, node[0])
        return end

    def _repeated(self, inner: Any, low: int, high: int, start: int) -> int:
        for _ in range(low):
            start = self._built(inner, start)
        if high < 0:
            loop, end = self._new(), self._new()
            self._link(start, loop)
            self._link(self._built(inner, loop), loop)
            self._link(loop, end)
            return end
        end = self._new()
        for _ in range(high - low):
            self._link(start, end)
            begin = self._new()
            self._link(start, begin)
            start = self._built(inner, begin)
        self._link(start, end)
        return end

    def _reached(self, state: int, at: str) -> int:
        """Return the states that are reached from one without a symbol."""
        reached, pending = 1 << state, [state]
        while pending:
            free = self._free[pending.pop()]
            for other in free[""] + (free["begin"] if "begin" in at else []) + (free["end"] if "end" in at else []):
                if not reached >> other & 1:
                    reached |= 1 << other
                    pending.append(other)
        return reached

    def automaton(self, named: tuple[str, ...]) -> Automaton | None:
        """Return the deterministic automaton, None if it is too large."""
        symbols = _told_apart([symbols for edges in self._edges for symbols, _ in edges])
        # By class: from each state, the states that its symbols lead to.
        steps_of = [self._steps(symbol) for symbol in symbols.representatives]
        again = self._closures[""][0]
        first = self._closures["begin"][0]
        numbers: dict[int, int] = {}  # of what is reached behind the begin
        pending, steps, work = [first], [], 0
        for states in pending:
            work += states.bit_count() * len(steps_of)
            row = []
            for step in steps_of:
                reached, left = again, states
                while left:
                    lowest = left & -left
                    reached |= step[lowest.bit_length() - 1]
                    left ^= lowest
                if reached & _MATCH:
                    row.append(MATCHED)
                    continue
                if reached not in numbers:
                    numbers[reached] = len(pending)
                    pending.append(reached)
                row.append(numbers[reached])
            steps.append(row)
            if len(pending) * len(steps_of) > _DFA_STEPS_MAX or work > _WORK_MAX:
                return None
        if first & _MATCH or again & _MATCH:
            return None  # it matches everything
        ends = [self._matches_at_end(first, "begin end"), *(self._matches_at_end(each, "end") for each in pending[1:])]
        return Automaton(named, symbols.classes, np.array(steps, dtype=np.int16), np.array(ends, dtype=np.bool_))

    def _steps(self, symbol: int) -> list[int]:
        found = []
        for edges in self._edges:
            reached = 0
            for symbols, other in edges:
                if symbols >> symbol & 1:
                    reached |= self._closures[""][other]
            found.append(reached)
        return found

    def _matches_at_end(self, states: int, at: str) -> bool:
        closures, reached = self._closures[at], 0
        while states:
            lowest = states & -states
            reached |= closures[lowest.bit_length() - 1]
            states ^= lowest
        return bool(reached & _MATCH)


_PLACES: Final = ("", "begin", "end", "begin end")
_MATCH: Final = 1 << 1


class _Symbols(NamedTuple):
    classes: Any
    representatives: list[int]


def _told_apart(masks: list[int]) -> _Symbols:
    """Return classes of symbols that are in the same of some sets, and a symbol of each class."""
    numbers: dict[tuple[int, ...], int] = {}
    representatives: list[int] = []
    classes = np.zeros(N_SYMBOLS, dtype=np.uint8)
    distinct = sorted(set(masks))
    for symbol in range(N_SYMBOLS):
        key = tuple(mask >> symbol & 1 for mask in distinct)
        if key not in numbers:
            numbers[key] = len(numbers)
            representatives.append(symbol)
        classes[symbol] = numbers[key]
    return _Symbols(classes, representatives)
