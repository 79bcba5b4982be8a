"""Ids before times: every index must find what `fast-scan` finds, and `fast-scan` what `scan` finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from siftline.engine import Engine
from siftline_bench.errors import WrongIdsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline_bench.workloads import Workload

# The oracle evaluates Python objects, about 2 microseconds each: a second or two in all.
_ORACLE_EVENTS: Final = 20
_ORACLE_SUBSCRIPTIONS: Final = 2_000

Found = list[frozenset[Any]]


def find_all(engine: Engine, events: Sequence[Any]) -> Found:
    """Match events and return the sets of ids."""
    return [frozenset(engine.match(event)) for event in events]


def check_same(index: str, found: Found, expected: Found, reference: str) -> None:
    """Raise unless two indexes found the same ids for the events that both have seen."""
    for position, (ids, wanted) in enumerate(zip(found, expected, strict=False)):
        if ids != wanted:
            raise WrongIdsError(
                f"{index} and {reference} disagree on event {position}: "
                f"{_some(ids - wanted)} found only by {index}, {_some(wanted - ids)} only by {reference}"
            )


def _some(ids: frozenset[Any]) -> str:
    shown = ", ".join(repr(id) for id in sorted(ids)[:5])
    return f"{len(ids)} ids ({shown}{', ...' if len(ids) > 5 else ''})" if ids else "none"


def check_reference(workload: Workload, found: Found, reference: str) -> int:
    """Compare what the reference found with `scan`, on a sample; return how many (event, subscription) were evaluated.

    The sample has the subscriptions that matched the first events, which a wrong index may have invented, and others
    beside them, which it may have missed.
    """
    events = workload.dicts[:_ORACLE_EVENTS]
    expected = found[: len(events)]
    sample = _sample(workload, expected)
    engine = Engine(index="scan")
    engine.add_many(sample)
    chosen = frozenset(engine.ids())
    check_same(reference, [ids & chosen for ids in expected], find_all(engine, events), "scan")
    return len(events) * len(engine)


def _sample(workload: Workload, found: Found) -> Any:
    """Return the predicates of matching subscriptions, then of the first ones, up to the size that the oracle bears."""
    import pyarrow as pa
    import pyarrow.compute as pc

    subscriptions = workload.predicates["subscription"]
    # Some of each event, so that one with very many does not crowd out the others.
    share = _ORACLE_SUBSCRIPTIONS // (2 * max(1, len(found)))
    matching = [id for ids in found for id in sorted(ids)[:share]]
    first = subscriptions.slice(0, 64 * _ORACLE_SUBSCRIPTIONS).unique().to_pylist()
    chosen = list(dict.fromkeys([*matching, *first]))[:_ORACLE_SUBSCRIPTIONS]
    return workload.predicates.filter(pc.is_in(subscriptions, pa.array(chosen, subscriptions.type)))
