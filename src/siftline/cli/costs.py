"""Measures subscriptions on a sample of events: how often they match, what they cost, and which can never match.

Every subscription implies an `and` and `or` of literals (`language.normal_form.indexable`), which are matched against
the events like the subscriptions themselves. So all shares below are counted, not estimated:

- a subscription can never match these events if an `and` has an operand, or an `or` only operands, that no event
  satisfies;
- an index finds it by clauses of some of the literals (`cover`), at best by the rarest one of each; the share of events
  that satisfy those is the share for which it has to examine the subscription.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.cli.seen import Finding, Seen
from siftline.encoding.clauses import constants_of, encode_covers
from siftline.encoding.domains import Domains
from siftline.encoding.likelihoods import Likelihoods
from siftline.engine import Engine
from siftline.language.normal_form import Asked, cover, indexable, literals_of, parts_of
from siftline.language.printer import to_text
from siftline.model import And, AnyElement, AttributeComparison, Length, Or, Predicate, children, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from siftline.language.normal_form import Clause, Cover
    from siftline.model import Event, Expression


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one subscription.

    Attributes
    ----------
    matches : int
        How many of the events it matches.
    share : float
        The share of events for which the best index has to examine it.
    clauses : int
        How many clauses an index keeps for it.
    needs_check : bool
        Whether the index only finds candidates that must be checked against the whole expression.
    findings : tuple of Finding
        Why it can never match these events; empty if it can.
    warnings : tuple of Finding
        Attributes that no event has, if not among the findings: it can match, but perhaps not as intended.
    """

    matches: int
    share: float
    clauses: int
    needs_check: bool
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as a JSON document."""
        return {
            "matches": self.matches,
            "share": round(self.share, 6),
            "clauses": self.clauses,
            "needs_check": self.needs_check,
            "findings": [finding.to_dict() for finding in self.findings],
            "warnings": [finding.to_dict() for finding in self.warnings],
        }


class Sample:
    """Counts how many events satisfy each subscription and each of its literals."""

    def __init__(self, expressions: Sequence[Expression]) -> None:
        self._n = len(expressions)
        self._expressions = expressions
        self._conditions = [indexable(expression) for expression in expressions]
        covers = [cover(expression, Likelihoods(None)) for expression in expressions]
        self._clauses: list[list[Clause]] = [each.clauses for each in covers]
        clauses = chain.from_iterable(self._clauses)
        literals = dict.fromkeys(chain(chain.from_iterable(map(literals_of, self._conditions)), *clauses))
        self._positions = {literal: self._n + i for i, literal in enumerate(literals)}
        self._needs_check = _needs_check(covers)
        self.engine = Engine()
        # Ids are positions in the order of addition, like the slots of a new engine.
        self.engine.add_many(enumerate([*expressions, *literals]))
        self._counts: NDArray[np.int64] = np.zeros(self._n + len(literals), dtype=np.int64)
        self.seen = Seen()
        self.seen.compared = {
            node.other for each in expressions for node in walk(each) if isinstance(node, AttributeComparison)
        }

    def take(self, events: Iterable[Event]) -> None:
        """Count which subscriptions and literals some events satisfy."""
        for event in events:
            self.seen.take(event)
            slots = np.asarray(self.engine.match(event.tree, as_slots=True), dtype=np.int32)
            self._counts[slots] += 1

    def cost(self, position: int) -> Cost:
        """Return the cost of the subscription at a position."""
        clauses = self._clauses[position]
        n_events = max(self.seen.n_events, 1)
        rarest = sum(self._rarest(clause) for clause in clauses)
        findings = self._findings(self._conditions[position]) if self.seen.n_events else ()
        return Cost(
            matches=int(self._counts[position]),
            share=min(rarest / n_events, 1.0),
            clauses=len(clauses),
            needs_check=bool(self._needs_check[position]),
            findings=findings,
            warnings=self._warnings(position, findings) if self.seen.n_events else (),
        )

    def _warnings(self, position: int, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        unseen = self.seen.unseen(_paths(self._expressions[position]))
        return tuple(warning for warning in unseen if warning not in findings)

    def _rarest(self, clause: Clause) -> int:
        counts = [self._count(literal) for literal in clause if _is_indexable(literal)]
        return min(counts, default=self.seen.n_events)

    def _count(self, literal: Expression) -> int:
        return int(self._counts[self._positions[literal]])

    def _findings(self, condition: Expression) -> tuple[Finding, ...]:
        """Return why a condition cannot hold; nothing if it can."""
        if isinstance(condition, (And, Or)):
            found = [self._findings(operand) for operand in condition.operands]
            if isinstance(condition, Or) and not all(found):
                return ()
            if isinstance(condition, Or) and not found:
                return (Finding("never-true", "it is false by its form"),)
            return tuple(dict.fromkeys(chain.from_iterable(found)))
        return () if self._count(condition) else (self._finding(condition),)

    def _finding(self, literal: Expression) -> Finding:
        leaf, asked = parts_of(literal)
        if isinstance(leaf, Predicate) and asked is Asked.TRUE:
            return self.seen.reason(leaf)
        if isinstance(leaf, Predicate) and asked is Asked.FALSE and self._is_incomparable(leaf):
            return self.seen.reason(leaf)
        text = to_text(literal)
        return Finding("never-true", f"no event satisfies {text[:80]}{'...' if len(text) > 80 else ''}")

    def _is_incomparable(self, predicate: Predicate) -> bool:
        """Return whether no value in the events could make the predicate false or true."""
        return self.seen.reason(predicate).kind in ("unseen-attribute", "wrong-kind")


def _paths(expression: Expression, prefix: str = "") -> Iterator[str]:
    """Yield the attributes that an expression uses."""
    if isinstance(expression, (Predicate, Length)):
        yield _joined(prefix, expression.attribute)
    elif isinstance(expression, AttributeComparison):
        yield from (_joined(prefix, expression.attribute), _joined(prefix, expression.other))
    elif isinstance(expression, AnyElement):
        yield from _paths(expression.operand, _joined(prefix, expression.attribute))
    else:
        for child in children(expression):
            yield from _paths(child, prefix)


def _joined(prefix: str, path: str | None) -> str:
    return ".".join(part for part in (prefix, path) if part)


def _is_indexable(literal: Expression) -> bool:
    leaf, asked = parts_of(literal)
    return isinstance(leaf, Predicate) and asked in (Asked.TRUE, Asked.FALSE) and not isinstance(leaf, AnyElement)


def _needs_check(covers: Sequence[Cover]) -> NDArray[np.bool_]:
    """Return for each subscription whether it has a clause that only an evaluation of its expression can confirm."""
    domains = Domains()
    domains.add(constants_of(covers))
    clauses = encode_covers(covers, 0, domains)
    result = np.zeros(len(covers), dtype=np.bool_)
    result[clauses.slots[~clauses.is_exact]] = True
    return result
