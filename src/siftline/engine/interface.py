"""What all engines share, wherever they keep their subscriptions."""

from __future__ import annotations

import time
from abc import ABCMeta, abstractmethod
from typing import TYPE_CHECKING, Any, Self

from siftline.encoding.sources import source_of
from siftline.engine.arguments import checked_now
from siftline.engine.subsets import Subset
from siftline.ids import AnyId, plain_id
from siftline.model import has_calls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from siftline.engine.explanation import Explanation
    from siftline.model import Expression
    from siftline.operators.stage import Stage


class CommonEngine(metaclass=ABCMeta):
    """The methods that all engines share; they use the methods that each engine defines."""

    @abstractmethod
    def __len__(self) -> int: ...

    index_name: str

    @property
    @abstractmethod
    def call_stage(self) -> Stage | None:
        """The stage that calls operators and learns from the calls; None if no condition has calls."""

    @abstractmethod
    def expression(self, id: AnyId) -> Expression:
        """Return the expression of a subscription."""

    @abstractmethod
    def match(self, event: Any, *, now: Any = None) -> Any:
        """Return the ids of all subscriptions that one event satisfies."""

    def __repr__(self) -> str:
        return f"<siftline.Engine: {len(self):,} subscriptions, index {self.index_name!r}>"

    def subset(self, ids: Iterable[AnyId]) -> Subset:
        """Return some ids for `match(..., within=...)`, prepared once for many matches.

        An id that is added to the engine later belongs to the subset too.
        """
        return Subset(ids)

    def explain(self, event: Any, id: AnyId, *, now: Any = None) -> Explanation:
        """Explain condition by condition why an event matches a subscription, or why not.

        If the subscription has calls, the event is also matched against all subscriptions, to show which calls that
        takes. `now` is the instant that `now()` means; the current time if left out.

        >>> from siftline import Engine
        >>> engine = Engine()
        >>> _ = engine.add("price <= 580 and color = 'red'", id=1)
        >>> engine.explain({"price": 600}, 1).matched
        False
        """
        from siftline.engine.explanation import explain

        id = plain_id(id)
        expression = self.expression(id)
        tree, stage = source_of(event, event=None, is_one=True).tree(0), self.call_stage
        instant = time.time_ns() if now is None else checked_now(now)
        if stage is None or not has_calls(expression):
            return explain(expression, tree, id, now=instant)
        return explain(expression, tree, id, stage.traced(lambda: self.match(tree, now=now)), now=instant)

    def close(self) -> None:  # noqa: B027 - an engine without a file has nothing to do
        """Bring the file of an engine up to date and release it; without a file, do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
