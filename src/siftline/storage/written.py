"""Expressions as they were written: the dialect, and the exact text.

>>> Written.of('{"size": [{"numeric": [">", 9]}]}', "eventbridge")
Written(dialect='eventbridge', text='{"size": [{"numeric": [">", 9]}]}')
>>> Written.of("size > 9").expression()
Predicate('size', '>', 9)
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.errors import SubscriptionError
from siftline.language.printer import to_text
from siftline.language.text import parse_stored
from siftline.model import Expression
from siftline.operators.acceptance import accepted

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT: Final = "text"
EVENTBRIDGE: Final = "eventbridge"
SNS: Final = "sns"
CLOUDEVENTS: Final = "cloudevents"
DIALECTS: Final = (TEXT, EVENTBRIDGE, SNS, CLOUDEVENTS)


class Written(NamedTuple):
    """One expression as its author wrote it; made by `of`, which refuses invalid expressions."""

    dialect: str
    text: str

    @classmethod
    def of(cls, source: Any, dialect: str = TEXT) -> Written:
        """Check an expression and return it as it was written.

        Parameters
        ----------
        source
            Text in the dialect; an Expression, which is printed; or parsed JSON, which is dumped.
        dialect : {'text', 'eventbridge', 'sns', 'cloudevents'}
            The text language, an event pattern, an SNS filter policy, or CloudEvents filters.
        """
        if dialect not in DIALECTS:
            raise SubscriptionError(f"unknown dialect {dialect!r}", hint=f"one of {', '.join(DIALECTS)}")
        if isinstance(source, Written):
            return source
        if dialect == TEXT:
            expression = accepted(source)
            return cls(TEXT, to_text(expression) if isinstance(source, Expression) else source)
        if isinstance(source, bytes):
            source = source.decode()
        _PARSERS[dialect](source)
        return cls(dialect, source if isinstance(source, str) else json.dumps(source, ensure_ascii=False))

    def expression(self) -> Expression:
        """Parse the text, which was accepted before."""
        if self.dialect == TEXT:
            return accepted(parse_stored(self.text))
        return _PARSERS[self.dialect](self.text)


def _pattern(source: Any) -> Expression:
    from siftline.language.event_pattern import parse_pattern

    return accepted(parse_pattern(source))


def _policy(source: Any) -> Expression:
    from siftline.language.event_pattern import parse_pattern

    return accepted(parse_pattern(source, "sns"))


def _filters(source: Any) -> Expression:
    from siftline.language.cloudevents import parse_filters

    return accepted(parse_filters(source))


_PARSERS: Final[dict[str, Callable[[Any], Expression]]] = {EVENTBRIDGE: _pattern, SNS: _policy, CLOUDEVENTS: _filters}
