"""Rules: one from its text, or all of a folder."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sigma.rule import SigmaRule

from siftline.errors import FileError, SubscriptionError
from siftline.files.problems import Problem, problem_of
from siftline.sigma.conditions import rule_piece
from siftline.sigma.documents import read_documents
from siftline.sigma.pieces import expression_of
from siftline.sigma.pipelines import resolved
from siftline.sigma.places import line_of, located
from siftline.sigma.policy import POLICY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sigma.processing.pipeline import ProcessingPipeline

    from siftline.model import Expression
    from siftline.sigma.pieces import Piece

PIPELINES: Final = ("sysmon", "windows-logsources")
# What a rule weighs where the best matches are asked for, by its level.
WEIGHTS: Final = {"informational": 1.0, "low": 2.0, "medium": 3.0, "high": 4.0, "critical": 5.0}
_SUFFIXES: Final = (".yml", ".yaml")
# The longest condition of the rules that the Sigma project publishes has some hundred characters.
_MAX_CONDITION: Final = 10_000
# Documents that are no rules, by the key that tells, and why they are refused.
_OTHERS: Final = {
    "correlation": "a correlation counts or orders several events, and Siftline looks at one event at a time",
    "filter": "a filter changes other rules, which is not supported: write its condition into them",
    "action": "collections with 'action' are not supported: write each rule out",
}


@dataclass
class Rules:
    """The rules of a folder: lists of the same length, and what was refused.

    Attributes
    ----------
    ids : list of str
        The `id` of each rule; of a rule without one, the path of its file in the folder.
    expressions : list of Expression
    titles, levels : list of str
        The level is empty where the rule has none.
    files, lines : list of str, list of int
        Where each rule begins.
    refused : list of Problem
        File, line, column and reason of what is no rule, or has what Siftline does not have.
    seconds : dict
        How long the parts of the work took: yaml, rules, pipelines, conversion, parsing.
    """

    folder: str
    ids: list[str] = field(default_factory=list)
    expressions: list[Expression] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    levels: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def weights(self) -> list[float]:
        """What each rule weighs, by its level: 1 (informational) to 5 (critical)."""
        return [WEIGHTS.get(level, 1.0) for level in self.levels]


def parse_sigma(
    rule: str | Mapping[str, Any],
    pipelines: Sequence[str | ProcessingPipeline] = PIPELINES,
    *,
    placeholders: Mapping[str, Sequence[str]] | None = None,
) -> Expression:
    """Return the expression of a Sigma rule.

    Parameters
    ----------
    rule : str or mapping
        The YAML text of one rule, or what it holds.
    pipelines : sequence
        Names of installed pipelines of pySigma, YAML files of others, or pipelines themselves, applied in this order.
    placeholders : mapping, optional
        Values for placeholders (`%name%`, modifier `expand`) that no pipeline fills.

    Raises
    ------
    SubscriptionError
        With the place in the text and the reason.
    UnknownPipelineError
        If there is no such pipeline.

    Examples
    --------
    >>> import siftline
    >>> rule = '''
    ... title: Quiet copy
    ... logsource: {product: windows}
    ... detection:
    ...   tool: {EventID: 4688}
    ...   service: {User: null}
    ...   condition: tool and not service
    ... '''
    >>> print(siftline.to_text(siftline.parse_sigma(rule, pipelines=[])))
    EventID in (4688, '4688') and (User is null) is not true
    """
    text = rule if isinstance(rule, str) else None
    documents = [dict(rule)] if not isinstance(rule, str) else read_documents(rule)
    if len(documents) != 1:
        raise SubscriptionError(f"expected one rule, found {len(documents)} documents")
    translator = Translator(resolved(pipelines, placeholders))
    try:
        return expression_of(translator.piece(translator.rule(documents[0])))
    except Exception as error:
        if text is None:
            raise _unlocated(error) from error
        raise located(error, text, 0) from None


def _unlocated(error: Exception) -> SubscriptionError:
    from siftline.sigma.places import reason_of

    return error if isinstance(error, SubscriptionError) else SubscriptionError(reason_of(error))


def read_rules(
    folder: str | os.PathLike[str],
    pipelines: Sequence[str | ProcessingPipeline] = PIPELINES,
    *,
    placeholders: Mapping[str, Sequence[str]] | None = None,
    advance: Callable[[int], None] = lambda size: None,
) -> Rules:
    """Read the rules of a folder (or of one file): all .yml and .yaml files in it and below, in the order of names.

    Parameters
    ----------
    pipelines, placeholders
        As for `parse_sigma`.
    advance : function, optional
        Is told how many more bytes were read.

    Returns
    -------
    Rules
        Ids, expressions, titles, levels, and what was refused, with file, line and reason. An id that occurs twice is
        refused the second time.
    """
    reader = _Reader(os.fspath(folder), Translator(resolved(pipelines, placeholders)))
    for path in rule_files(reader.rules.folder):
        content = path.read_bytes()
        reader.take(path, content)
        advance(len(content))
    return reader.rules


def rule_files(folder: str) -> list[Path]:
    """Return the files that hold rules; raise FileError if there is no such folder or file."""
    root = Path(folder)
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise FileError(f"{folder}: no such folder or file")
    return sorted(path for path in root.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())


class Translator:
    """Makes pySigma's rule of a document, and a condition of the rule; notes how long each part takes."""

    def __init__(self, pipeline: ProcessingPipeline) -> None:
        self._pipeline = pipeline
        self.seconds = dict.fromkeys(("yaml", "rules", "pipelines", "conversion", "parsing"), 0.0)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time of a block to that of a part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - start

    def rule(self, document: Any) -> SigmaRule:
        """Return the rule that a document holds; raise an error of pySigma, or SubscriptionError."""
        if not isinstance(document, dict):
            raise SubscriptionError("a rule must be a mapping")
        for key, reason in _OTHERS.items():
            if key in document:
                raise SubscriptionError(reason)
        _check_conditions(document.get("detection"))
        with self.timed("rules"):
            return SigmaRule.from_dict(document, **POLICY)

    def piece(self, rule: SigmaRule) -> Piece:
        """Return the condition of a rule, log source and all."""
        with self.timed("pipelines"):
            self._pipeline.apply(rule)
        with self.timed("conversion"):
            return rule_piece(rule)


def _check_conditions(detection: Any) -> None:
    """Refuse conditions so long that pySigma would parse them for a minute."""
    conditions = detection.get("condition") if isinstance(detection, dict) else None
    for condition in conditions if isinstance(conditions, list) else [conditions]:
        if isinstance(condition, str) and len(condition) > _MAX_CONDITION:
            raise SubscriptionError(f"the condition is longer than {_MAX_CONDITION:,} characters")


class _Reader:
    """Takes file after file."""

    def __init__(self, folder: str, translator: Translator) -> None:
        self._translator = translator
        self._places: dict[str, str] = {}
        self.rules = Rules(folder, seconds=translator.seconds)

    def take(self, path: Path, content: bytes) -> None:
        """Read one file: each document is kept or refused by itself."""
        try:
            text = content.decode()
            with self._translator.timed("yaml"):
                documents = read_documents(text)
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self.rules.refused.append(Problem(str(path), line, None, f"not UTF-8: {error.reason}"))
            return
        except SubscriptionError as error:
            self.rules.refused.append(problem_of(error, str(path), error.line or 1))
            return
        for index, document in enumerate(documents):
            self._take_document(path, text, index, document)

    def _take_document(self, path: Path, text: str, index: int, document: Any) -> None:
        rule = None
        try:
            rule = self._translator.rule(document)
            piece = self._translator.piece(rule)
            with self._translator.timed("parsing"):
                expression = expression_of(piece)
        except Exception as error:  # whatever a rule does to pySigma, the others are read
            self._refuse(path, located(error, text, index), rule)
            return
        line = line_of(text, index) if index else 1
        id = str(rule.id) if rule.id is not None else self._id_of(path, index)
        if id in self._places:
            reason = f"duplicate id {id}: {self._places[id]} has it already"
            self._refuse(path, located(SubscriptionError(reason), text, index), rule)
            return
        self._places[id] = f"{path}:{line}"
        self._keep(id, expression, rule, str(path), line)

    def _keep(self, id: str, expression: Expression, rule: SigmaRule, file: str, line: int) -> None:
        rules = self.rules
        rules.ids.append(id)
        rules.expressions.append(expression)
        rules.titles.append(str(rule.title))
        rules.levels.append("" if rule.level is None else str(rule.level).lower())
        rules.files.append(file)
        rules.lines.append(line)

    def _id_of(self, path: Path, index: int) -> str:
        name = path.name if path == Path(self.rules.folder) else path.relative_to(self.rules.folder).as_posix()
        return f"{name}#{index + 1}" if index else name

    def _refuse(self, path: Path, error: SubscriptionError, rule: SigmaRule | None) -> None:
        id = None if rule is None or rule.id is None else str(rule.id)
        self.rules.refused.append(replace(problem_of(error, str(path), error.line), id=id))
