r"""`strings`: detection rules over what processes do, that is over paths and command lines.

A rule has one to three string predicates on different attributes, and every second one an equality beside them:

    command_line contains '-umbrella mountain' and image ends with '\telephone.exe' and event_id = 7

Operators are in the proportions of 3,754 public Sigma rules: contains 4,625, ends with 3,445, starts with 570, matches
214. Every event has the ten attributes, composed of the same words; one rule is planted in each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline_bench.workloads.drawing import named, numbered, predicate_table
from siftline_bench.workloads.words import words
from siftline_bench.workloads.workload import Parameters, Recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

_ATTRIBUTES: Final = (
    "image",
    "parent_image",
    "image_loaded",
    "target_filename",
    "current_directory",
    "target_object",
    "command_line",
    "parent_command_line",
    "user",
    "event_id",
)
# String predicates are on all but the last two, on command lines and images more often.
_WEIGHTS: Final = np.array([0.22, 0.1, 0.08, 0.12, 0.04, 0.1, 0.26, 0.08])
_COMMANDS: Final = (6, 7)
_USER, _EVENT_ID = 8, 9
_N_EVENT_IDS: Final = 30
_N_USERS: Final = 200

_CONTAINS, _ENDS, _STARTS, _MATCHES, _EQUAL = range(5)
_OPERATORS: Final = ("contains", "ends with", "starts with", "matches", "=")
_PROPORTIONS: Final = (4_625, 3_445, 570, 214)

_DRIVES: Final = ("C:\\", "D:\\", "\\\\server\\")
_ENDINGS: Final = (".exe", ".dll", ".ps1", ".bat", ".sys", ".tmp", ".log", ".txt")


@dataclass(frozen=True, kw_only=True)
class Strings(Parameters):
    """Parameters of the detection rules.

    Attributes
    ----------
    most_predicates : int
        String predicates of a rule: half of the rules have one, the others up to this many.
    equal_share : float
        The share of rules with an equality beside.
    """

    n_subscriptions: int = 100_000
    n_events: int = 1_000
    most_predicates: int = 3
    equal_share: float = 0.5


class _Condition(NamedTuple):
    """A string predicate and a text that satisfies it."""

    attribute: int
    operator: int
    text: str
    example: str


class _Writer:
    """Composes texts of words."""

    def __init__(self, chance: np.random.Generator) -> None:
        self._chance = chance
        self._words = words()
        self._stock: list[float] = []

    def number(self, n: int) -> int:
        """Return one of 0 .. n - 1."""
        if not self._stock:
            self._stock = self._chance.random(4096).tolist()
        return int(self._stock.pop() * n)

    def word(self) -> str:
        """Return a word."""
        return self._words[self.number(len(self._words))]

    def name(self) -> str:
        """Return the name of a file."""
        return self.word() + _ENDINGS[min(self.number(2 * len(_ENDINGS)), len(_ENDINGS) - 1)]

    def path(self) -> str:
        """Return the path of a file."""
        parts = [self.word() for _ in range(1 + self.number(3))]
        return _DRIVES[self.number(len(_DRIVES))] + "\\".join([*parts, self.name()])

    def command(self) -> str:
        """Return a command line."""
        options = [f"-{self.word()} {self.word()}" for _ in range(1 + self.number(4))]
        return " ".join([self.path(), *options])

    def text(self, attribute: int) -> str:
        """Return what an attribute may hold."""
        return self.command() if attribute in _COMMANDS else self.path()

    def condition(self, attribute: int, operator: int) -> _Condition:
        """Return a predicate on an attribute, with an example."""
        is_command = attribute in _COMMANDS
        if operator == _CONTAINS:
            piece = self._piece(is_command)
            return _Condition(attribute, operator, piece, self.path() + piece + self.word())
        if operator == _ENDS:
            end = f" {self.word()}" if is_command else f"\\{self.name()}"
            return _Condition(attribute, operator, end, self.path() + end)
        if operator == _STARTS:
            start = f"{_DRIVES[self.number(len(_DRIVES))]}{self.word()}\\"
            return _Condition(attribute, operator, start, start + self.name())
        return self._regex(attribute)

    def _piece(self, is_command: bool) -> str:
        """Return a part of a text, one or two words with what stands beside them."""
        forms = (f"-{self.word()} {self.word()}", f" {self.word()}") if is_command else ("", f"\\{self.word()}\\")
        form = forms[self.number(2)]
        return form or f"\\{self.word()}\\{self.word()}"

    def _regex(self, attribute: int) -> _Condition:
        """Return a regular expression: alternatives, digits, or a gap between words."""
        one, other = self.word(), self.word()
        forms = (
            (rf"(?i)\\({one}|{other})\.(exe|dll)$", f"{self.path()}\\{other}.dll"),
            (rf"{one}[0-9]{{2,4}}\.{other}", f"{self.path()}{one}407.{other}"),
            (rf"\b{one}\b.*\b{other}\b", f"{self.path()} {one} -x {other}"),
        )
        text, example = forms[self.number(len(forms))]
        return _Condition(attribute, _MATCHES, text, example)


class _Rules(NamedTuple):
    """Rules: string predicates of each, and its equality on `user` or `event_id` if there is one."""

    conditions: list[list[_Condition]]
    equals: list[tuple[int, int] | None]


def draw(parameters: Strings, chance: np.random.Generator, event_chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    if parameters.most_predicates > len(_WEIGHTS):
        raise ValueError(f"a rule has at most {len(_WEIGHTS)} string predicates")
    rules = _draw_rules(parameters, chance)
    chosen = event_chance.integers(0, max(1, parameters.n_subscriptions), size=parameters.n_events)
    return _predicate_table(rules), _value_table(rules, chosen.tolist(), event_chance)


def _draw_rules(parameters: Strings, chance: np.random.Generator) -> _Rules:
    n, most = parameters.n_subscriptions, parameters.most_predicates
    counts = np.where(chance.random(n) < 0.5, 1, chance.integers(1, most + 1, size=n)).tolist()
    # The largest keys of exponential races: attributes by weight, none twice.
    attributes = np.argsort(chance.exponential(size=(n, len(_WEIGHTS))) / _WEIGHTS, axis=1)[:, :most].tolist()
    shares = np.array(_PROPORTIONS) / sum(_PROPORTIONS)
    operators = chance.choice(len(_PROPORTIONS), size=(n, most), p=shares).tolist()
    has_equal = (chance.random(n) < parameters.equal_share).tolist()
    writer = _Writer(chance)
    conditions, equals = [], []
    for count, places, ops, is_equal in zip(counts, attributes, operators, has_equal, strict=True):
        pairs = zip(places[:count], ops[:count], strict=True)
        conditions.append([writer.condition(attribute, operator) for attribute, operator in pairs])
        equals.append(_draw_equal(writer) if is_equal else None)
    return _Rules(conditions, equals)


def _draw_equal(writer: _Writer) -> tuple[int, int]:
    """Return an attribute and the value that it must have."""
    return (_USER, writer.number(_N_USERS)) if writer.number(4) == 0 else (_EVENT_ID, writer.number(_N_EVENT_IDS))


def _user(number: int) -> str:
    return f"{words()[number % 7]}\\{words()[number]}".upper()


def _predicate_table(rules: _Rules) -> Any:
    import pyarrow as pa

    rows: list[tuple[int, int, int, str | None, int]] = []
    for rule, (conditions, equal) in enumerate(zip(*rules, strict=True)):
        rows += [(rule, each.attribute, each.operator, each.text, 0) for each in conditions]
        if equal is not None:
            attribute, value = equal
            rows.append((rule, attribute, _EQUAL, _user(value) if attribute == _USER else None, value))
    owners, attributes, operators, texts, numbers = zip(*rows, strict=True)
    columns = np.array(attributes)
    return predicate_table(
        np.array(owners),
        named(columns, _ATTRIBUTES),
        np.array(operators, dtype=np.int8),
        _OPERATORS,
        number=numbered(np.array(numbers), columns == _EVENT_ID),
        text=pa.array(texts, pa.string()),
    )


def _value_table(rules: _Rules, chosen: Sequence[int], chance: np.random.Generator) -> Any:
    import pyarrow as pa

    writer = _Writer(chance)
    n_events, n_attributes = len(chosen), len(_ATTRIBUTES)
    texts: list[str | None] = []
    event_ids = np.zeros((n_events, n_attributes), dtype=np.int64)
    for event, rule in enumerate(chosen):
        examples = {each.attribute: each.example for each in rules.conditions[rule]}
        attribute, value = rules.equals[rule] or (-1, 0)
        user = value if attribute == _USER else writer.number(_N_USERS)
        event_ids[event, _EVENT_ID] = value if attribute == _EVENT_ID else writer.number(_N_EVENT_IDS)
        texts += [examples.get(i) or writer.text(i) for i in range(len(_WEIGHTS))]
        texts += [_user(user), None]
    is_id = np.tile(np.arange(n_attributes) == _EVENT_ID, n_events)
    return pa.table(
        {
            "event": np.repeat(np.arange(n_events), n_attributes),
            "attribute": named(np.tile(np.arange(n_attributes), n_events), _ATTRIBUTES),
            "number": numbered(event_ids.ravel(), is_id),
            "text": pa.array(texts, pa.string()),
        }
    )


RECIPES: Final = (
    Recipe(
        name="strings",
        description="detection rules: contains, ends with, starts with, regex on paths and command lines",
        parameters=Strings(),
        draw=draw,
    ),
)
