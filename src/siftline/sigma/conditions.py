"""A parsed condition of pySigma becomes one piece, with the structure of `and`, `or` and `not` as it was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)

from siftline.errors import SubscriptionError
from siftline.sigma.pieces import Negation, Piece, all_of, any_of
from siftline.sigma.values import field_piece, keyword_piece

if TYPE_CHECKING:
    from sigma.rule import SigmaRule


def rule_piece(rule: SigmaRule) -> Piece:
    """Return the condition of a rule that pipelines were applied to; of several conditions, one must hold."""
    return any_of([condition_piece(condition.parsed) for condition in rule.detection.parsed_condition])


def condition_piece(condition: Any) -> Piece:
    """Return a condition; raise SubscriptionError for what Siftline does not have."""
    match condition:
        case ConditionFieldEqualsValueExpression():
            return field_piece(condition.field, condition.value)
        case ConditionValueExpression():
            return keyword_piece(condition.value)
        case ConditionAND():
            return all_of(map(condition_piece, condition.args))
        case ConditionOR():
            return any_of(map(condition_piece, condition.args))
        case ConditionNOT():
            return Negation(condition_piece(condition.args[0]))
        case None:
            raise SubscriptionError("the condition is empty: nothing is left of it")
    raise SubscriptionError(f"conditions of the kind {type(condition).__name__} are not supported")
