"""The papers' claims, in our words, and what the rows say about each.

    words:
      about twice: {at_least: 1.5, at_most: 3}
    claims:
    - number: 12
      paper: opindex
      where: Fig. 8(a)
      claim: BE-Tree needs about twice, k-index about seven times the memory of OpIndex
      checks:
        - {check: ratio, figure: opindex-8a, measure: memory_mb, of: BE-Tree, to: OpIndex, is: about twice}
        - {check: ratio, figure: opindex-8a, measure: memory_mb, of: k-index, to: OpIndex, at_least: 3.5, at_most: 14}
      why: what explains the numbers, where they are others than the paper's
    - number: 82
      ...
      untestable: why

A check has a word, which has the same bounds in all claims, or bounds of its own.

All checks hold: reproduced; some: partly; none: not reproduced. Where `untested` says what part of a claim no check is
about, partly is the best that it can get. A check with `scale: paper` has no answer at small sizes.

Another measurement may fall on the other side of a bound, if a number is near to it. Where such numbers decide about
the word, the verdict is open, and `harness.py` measures their runs again. In the end the side decides: a word of its
own for what cannot be told from its bound would turn at two places instead of one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.figures.checks import CHECKS, MissingRowsError, NoAnswerError, involved
from siftline_bench.figures.figure import check_keys, loaded
from siftline_bench.figures.measures import measure
from siftline_bench.figures.noise import distance, margin
from siftline_bench.figures.panels import MISSING, panel
from siftline_bench.figures.registry import CLAIMS, PAPERS, figures, folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from siftline_bench.figures.panels import Panel
    from siftline_bench.results import Rounds

REPRODUCED: Final = "reproduced"
PARTLY: Final = "partly"
NOT_REPRODUCED: Final = "not reproduced"
NOT_TESTABLE: Final = "not testable"
NOT_MEASURED: Final = "not measured"
VERDICTS: Final = (REPRODUCED, PARTLY, NOT_REPRODUCED, NOT_TESTABLE, NOT_MEASURED)
_REQUIRED: Final = {"number", "paper", "where", "claim"}
_OPTIONAL: Final = {"checks", "why", "untested", "untestable"}
_BOUNDS: Final = ("at_least", "at_most")


@dataclass(frozen=True)
class Check:
    """A question to one measure of one figure, and the bounds of the answer."""

    name: str
    figure: str
    measure: str
    arguments: Mapping[str, Any]
    at_least: float | None = None
    at_most: float | None = None
    scale: str | None = None
    word: str | None = None

    @property
    def text(self) -> str:
        """The question in words.

        >>> Check("ratio", "opindex-1", "match_ms", {"of": ["k-index", "BE-Tree"], "to": "OpIndex", "at": "mean"}).text
        'match_ms, best of k-index, BE-Tree / OpIndex, mean over all x'
        """
        said = self.arguments
        of, to = (_named(said.get(name)) for name in ("of", "to"))
        places = f"from {said.get('from', 'the first')} to {said.get('until', 'the last x')}"
        words = {
            "ratio": f"{of} / {to}",
            "change": f"change of {of} {places}",
            "against": f"change of {of} / change of {to} {places}",
            "spread": f"largest / smallest of {of}",
            "exponent": f"exponent of {of}",
            "order": f"smallest step in the order {_listed(said.get('of'))}",
            "value": of,
            "status": f"{of} ends as {_listed(said.get('among'))}",
        }[self.name]
        has_place = self.name in ("ratio", "order", "value", "status")
        place = _AT.get(said.get("at", "last"), f"at {said.get('at')}") if has_place else ""
        return ", ".join(filter(None, [self.measure, words, place]))

    @property
    def bounds(self) -> str:
        """The bounds, behind the word that has them.

        >>> Check("change", "opindex-8b", "memory_mb", {"of": "OpIndex"}, 0.5, 2, word="stays").bounds
        'stays: ≥ 0.5 and ≤ 2'
        """
        signs = ("≥", self.at_least), ("≤", self.at_most)
        bounds = " and ".join(f"{sign} {bound:g}" for sign, bound in signs if bound is not None)
        return f"{self.word}: {bounds}" if self.word else bounds


_AT: Final = {
    "least": "smallest over all x",
    "most": "largest over all x",
    "mean": "mean over all x",
    "first": "at the first x",
    "last": "at the last x",
}


def _named(series: Any) -> str:
    return f"best of {_listed(series)}" if isinstance(series, list) else str(series)


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class Claim:
    """What a paper says, and how it is checked."""

    number: int
    paper: str
    where: str
    claim: str
    checks: Sequence[Check] = ()
    why: str = ""
    untested: str = ""
    untestable: str = ""


@dataclass(frozen=True)
class Answer:
    """A check and the number that it gave, or why there is none.

    Attributes
    ----------
    by_round : sequence of float
        What each round alone says, of as many as all runs have that the check asks for.
    span : float, optional
        Of an exponent, the largest x by the smallest.
    n_left_out : int
        Points that have no rows yet, where all x count.
    runs : sequence of str
        The runs whose rows decide.
    """

    check: Check
    number: float | None
    problem: str = ""
    is_missing: bool = False
    by_round: Sequence[float] = ()
    span: float | None = None
    n_left_out: int = 0
    runs: Sequence[str] = ()

    @property
    def holds(self) -> bool:
        """Whether the number is within its bounds."""
        low, high = self.check.at_least, self.check.at_most
        if self.number is None:
            return False
        return (low is None or self.number >= low) and (high is None or self.number <= high)

    @property
    def is_near(self) -> bool:
        """Whether the number is so near to a bound that noise could turn it; what is counted has no noise."""
        if self.number is None or self.check.name == "status" or not measure(self.check.measure).is_time:
            return False
        least = margin(self.by_round, span=self.span)
        bounds = [bound for bound in (self.check.at_least, self.check.at_most) if bound is not None]
        return any(distance(self.number, bound, span=self.span) < least for bound in bounds)


@dataclass(frozen=True)
class Verdict:
    """A claim, the answers to its checks, and what follows."""

    claim: Claim
    answers: Sequence[Answer]

    @property
    def word(self) -> str:
        """One of `VERDICTS`."""
        if self.claim.untestable:
            return NOT_TESTABLE
        if any(answer.is_missing for answer in self.answers):
            return NOT_MEASURED
        if all(answer.number is None for answer in self.answers):
            return NOT_TESTABLE
        return self._word(sum(answer.holds for answer in self.answers))

    def _word(self, n_held: int) -> str:
        if n_held == len(self.answers) and not self.claim.untested:
            return REPRODUCED
        return PARTLY if n_held else NOT_REPRODUCED

    @property
    def hangs_on(self) -> list[Answer]:
        """The answers near to their bounds, if the word would be another one on the other side of these.

        Whoever measures again may then get another word, so the verdict is open.
        """
        if self.word not in (REPRODUCED, PARTLY, NOT_REPRODUCED):
            return []
        near = [answer for answer in self.answers if answer.is_near]
        n_sure = sum(answer.holds for answer in self.answers if not answer.is_near)
        return near if len({self._word(n) for n in range(n_sure, n_sure + len(near) + 1)}) > 1 else []

    @property
    def why(self) -> str:
        """The explanation, where one is due."""
        if self.claim.untestable:
            return self.claim.untestable
        problems = dict.fromkeys(answer.problem for answer in self.answers if answer.problem)
        is_short = any(answer.number is not None and not answer.holds for answer in self.answers)
        return " ".join(filter(None, [*problems, self.claim.why if is_short else "", self.claim.untested]))


def claims(path: Path | None = None) -> list[Claim]:
    """Read the claims, in the order of their numbers."""
    source = path or folder() / CLAIMS
    try:
        said = loaded(source)
        check_keys("a file of claims", said, {"words", "claims"}, set())
        return sorted((_claim(each, said["words"]) for each in said["claims"]), key=lambda claim: claim.number)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{source}: {error}") from None


def _claim(said: Any, words: Mapping[str, Mapping[str, float]]) -> Claim:
    check_keys("a claim", said, _REQUIRED, _OPTIONAL)
    if said["paper"] not in PAPERS:
        raise ValueError(f"claim {said['number']} is of no known paper: {said['paper']!r}")
    if ("checks" in said) == ("untestable" in said):
        raise ValueError(f"claim {said['number']} has either checks, or why it cannot be tested")
    checks = [_check(said["number"], each, words) for each in said.get("checks", [])]
    return Claim(**{**said, "checks": checks})


def _check(number: int, said: dict[str, Any], words: Mapping[str, Mapping[str, float]]) -> Check:
    rest = dict(said)
    name, figure, word = rest.pop("check"), rest.pop("figure"), rest.pop("is", None)
    bounds: dict[str, float] = {bound: rest.pop(bound) for bound in _BOUNDS if bound in rest}
    if word is not None and (word not in words or bounds):
        raise ValueError(f"claim {number}: a check has bounds or a word, one of {', '.join(words)}; not {word!r}")
    bounds = bounds or dict(words[word] if word else {})
    if name not in CHECKS or not bounds:
        raise ValueError(f"claim {number}: a check has a name, one of {', '.join(CHECKS)}, and a word or a bound")
    if figure not in figures():
        raise ValueError(f"claim {number}: there is no figure {figure!r}")
    measures = [axis.measure.name for axis in figures()[figure].y if axis.measure is not None]
    scale = rest.pop("scale", None)
    return Check(name, figure, rest.pop("measure", measures[0]), rest, **bounds, scale=scale, word=word)


def verdicts(found: Sequence[Claim], scale: str, rows: Rounds, seed: int = 0) -> list[Verdict]:
    """Ask the rows about each claim; they are by run, one for each round."""
    return [Verdict(claim, [_answer(check, scale, rows, seed) for check in claim.checks]) for claim in found]


def _answer(check: Check, scale: str, rows: Rounds, seed: int) -> Answer:
    if check.scale not in (None, scale):
        return Answer(check, None, f"This needs --scale {check.scale}.")

    def asked(number: int | None = None) -> Panel:
        return panel(figures()[check.figure], measure(check.measure), scale, rows, seed, number=number)

    shown = asked()
    points = involved(shown, check.name, check.arguments)
    measured = [point for point in points if point.status != MISSING]
    try:
        number = CHECKS[check.name](shown, **check.arguments)
    except MissingRowsError as error:
        return Answer(check, None, str(error), is_missing=True)
    except NoAnswerError as error:
        return Answer(check, None, str(error))
    n_rounds = min(point.n_rounds for point in measured)
    return Answer(
        check,
        number,
        by_round=[number] if n_rounds == 1 else _by_round(check, map(asked, range(n_rounds))),
        span=_span([point.x for point in measured]) if check.name == "exponent" else None,
        n_left_out=len(points) - len(measured),
        runs=[point.run for point in measured],
    )


def _by_round(check: Check, panels: Iterable[Panel]) -> list[float]:
    """Return what single rounds say, of those that say something: a run may have timed out in one of them."""
    found = []
    for each in panels:
        with suppress(NoAnswerError):
            found.append(CHECKS[check.name](each, **check.arguments))
    return found


def _span(xs: Sequence[float]) -> float:
    return max(xs) / min(xs)
