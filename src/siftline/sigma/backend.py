"""The backend of pySigma: `sigma convert -t siftline` prints a condition for each rule."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from sigma.conversion.base import TextQueryBackend
from sigma.exceptions import SigmaFeatureNotSupportedByBackendError

from siftline.errors import SubscriptionError
from siftline.sigma.conditions import condition_piece
from siftline.sigma.pieces import text_of

if TYPE_CHECKING:
    from sigma.conversion.state import ConversionState
    from sigma.rule import SigmaRule


class SiftlineBackend(TextQueryBackend):
    """Conditions in Siftline's language."""

    name: ClassVar[str] = "Siftline"
    identifier: ClassVar[str] = "siftline"
    formats: ClassVar[dict[str, str]] = {
        "default": "conditions in Siftline's language",
        "jsonl": "JSON Lines with id and expression, as `siftline match --subscriptions` reads them",
    }
    requires_pipeline: ClassVar[bool] = False

    def convert_condition(self, cond: Any, state: ConversionState) -> str:
        """Return the text of a parsed condition."""
        try:
            return text_of(condition_piece(cond))
        except SubscriptionError as error:
            raise SigmaFeatureNotSupportedByBackendError(error.reason) from error

    def finish_query(self, rule: Any, query: str, state: ConversionState) -> str:
        """Return the text as it is: nothing is deferred, and braces in it are no template."""
        return query

    def finalize_query_jsonl(self, rule: SigmaRule, query: str, index: int, state: ConversionState) -> str:
        """Return a line of JSON; a rule without an id is named by its title."""
        id = str(rule.id or rule.title) + (f"#{index + 1}" if index else "")
        return json.dumps({"id": id, "expression": query}, ensure_ascii=False)

    def finalize_output_jsonl(self, queries: list[str]) -> list[str]:
        """Return the lines."""
        return list(queries)
