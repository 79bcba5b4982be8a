"""Where a rule is wrong. pySigma does not say, so the parts are tried one by one, and only when there is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sigma.exceptions import SigmaError
from sigma.rule.detection import SigmaDetectionItem

from siftline.errors import SubscriptionError
from siftline.sigma.documents import elements_of, members_of, nodes_of, offset_of, value_of
from siftline.sigma.pieces import expression_of
from siftline.sigma.policy import POLICY
from siftline.sigma.values import field_piece, keyword_piece

if TYPE_CHECKING:
    from collections.abc import Iterator

# The key that an error of pySigma is about, by the name of its class.
_KEYS: Final = {
    "SigmaDateError": "date",
    "SigmaIdentifierError": "id",
    "SigmaLevelError": "level",
    "SigmaLogsourceError": "logsource",
    "SigmaModifiedError": "modified",
    "SigmaNameError": "name",
    "SigmaRelatedError": "related",
    "SigmaStatusError": "status",
    "SigmaTagError": "tags",
    "SigmaTaxonomyError": "taxonomy",
    "SigmaTitleError": "title",
}


def reason_of(error: Exception) -> str:
    """Return what an error says, without what cannot be seen from outside."""
    if isinstance(error, SubscriptionError):
        return error.reason
    if isinstance(error, RecursionError):
        return "the rule nests too deeply"
    said = " ".join(str(error).split()) or type(error).__name__
    return said if isinstance(error, SigmaError) else f"pySigma cannot read the rule: {type(error).__name__}: {said}"


def located(error: Exception, text: str, index: int) -> SubscriptionError:
    """Return the error of the document at an index of a text, with its place."""
    if isinstance(error, SubscriptionError) and error.position is not None and error.text == text:
        return error
    reason = reason_of(error)
    node = _node_of(nodes_of(text)[index], error, reason)
    hint = error.hint if isinstance(error, SubscriptionError) else None
    return SubscriptionError(reason, text=text, position=offset_of(text, node.start_mark), hint=hint)


def line_of(text: str, index: int) -> int:
    """Return the line, from 1, that the document at an index begins in."""
    return int(nodes_of(text)[index].start_mark.line) + 1


def _node_of(document: Any, error: Exception, reason: str) -> Any:
    keys = {key.value: (key, value) for key, value in members_of(document)}
    named = keys.get(_KEYS.get(type(error).__name__, ""))
    if named is not None:
        return named[0]
    if "detection" not in keys:
        return document
    parts = {key.value: (key, value) for key, value in members_of(keys["detection"][1])}
    for name, (_, node) in parts.items():
        bad = None if name == "condition" else next(_bad_nodes(node, reason), None)
        if bad is not None:
            return bad
    return parts.get("condition", keys["detection"])[0]


def _bad_nodes(definition: Any, reason: str) -> Iterator[Any]:
    """Yield the nodes of a selection that are refused for this reason."""
    for key, value in members_of(definition):
        values = elements_of(value) or [value]
        bad = [each for each in values if _is_bad(key.value, each, reason)]
        if bad:
            yield bad[0] if len(values) > 1 and len(bad) < len(values) else key
    for element in elements_of(definition):
        if elements_of(element) or any(members_of(element)):
            yield from _bad_nodes(element, reason)
        elif _is_bad(None, element, reason):
            yield element


def _is_bad(key: str | None, node: Any, reason: str) -> bool:
    try:
        item = SigmaDetectionItem.from_mapping(key, value_of(node), **POLICY)
        for value in item.value:
            expression_of(keyword_piece(value) if item.field is None else field_piece(item.field, value))
    except Exception as error:
        return reason_of(error) == reason
    return False
