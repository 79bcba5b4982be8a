"""Reading many subscriptions at once: rows, tables and files become what an engine adds, and what it refuses.

rows, a table of texts, a file   →  Rows: ids, expressions, weights, tenants   →  ids checked against the engine
a table of predicates            →  Columns: the same as arrays, without an object for each
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from siftline.encoding.tables import table_of
from siftline.engine.arguments import checked_tenant, checked_weight
from siftline.errors import FileError, SubscriptionError, TableError
from siftline.files.problems import Problem
from siftline.files.subscription_files import Subscriptions, mapped_entry, parse_entry, read_subscriptions
from siftline.ids import Id, check_type, plain_id
from siftline.operators.acceptance import accepted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from siftline.engine.subscriptions import Tenants
    from siftline.model import Expression

OnError = Literal["raise", "collect"]
# The position of a subscription in its source, and its line in a text file.
Place = tuple[int | None, int | None]


class Refused(NamedTuple):
    """A subscription that was not added.

    `position` counts the rows of the source from 0; `line` is the line of a text file. Unknown values are None.
    """

    position: int | None
    id: Any
    reason: str
    hint: str | None = None
    line: int | None = None


class Added(int):
    """How many subscriptions were added, and which were refused.

    >>> added = Added(2, [Refused(2, "bob", "the expression is empty")])
    >>> added == 2, added.refused[0].id
    (True, 'bob')
    """

    refused: tuple[Refused, ...]

    def __new__(cls, n: int, refused: Iterable[Refused] = ()) -> Added:
        """Return a number with the attribute `refused`."""
        added = super().__new__(cls, n)
        added.refused = tuple(refused)
        return added

    def __repr__(self) -> str:
        return f"<{int(self):,} added, {len(self.refused):,} refused>" if self.refused else int.__repr__(self)

    __str__ = __repr__


class Rows(NamedTuple):
    """Subscriptions with an expression each, and the refusals so far."""

    ids: list[Id]
    expressions: list[Expression]
    weights: list[float]
    tenants: Tenants
    places: list[Place]
    refused: list[Refused]
    are_ids_spelled: bool = False  # ids of a CSV file look like numbers, but may be meant as text

    def fitted(self, is_text: bool | None, has: Callable[[Id], bool]) -> Rows:
        """Return the rows whose ids an engine can take: of its type, new, and different; refuse the others."""
        rows = self.spelled(is_text)
        reasons = _id_reasons(rows.ids, is_text, has)
        if not reasons:
            return rows
        refused = [Refused(rows.places[i][0], rows.ids[i], reason, None, rows.places[i][1]) for i, reason in reasons]
        gone = {i for i, _ in reasons}
        good = [i for i in range(len(rows.ids)) if i not in gone]
        tenants = rows.tenants
        return Rows(
            [rows.ids[i] for i in good],
            [rows.expressions[i] for i in good],
            [rows.weights[i] for i in good],
            tenants if tenants is None or isinstance(tenants, str) else [tenants[i] for i in good],
            [rows.places[i] for i in good],
            sorted([*rows.refused, *refused], key=_order),
        )

    def spelled(self, is_text: bool | None) -> Rows:
        """Return the same with ids as text, if they come from a text file and the ids of the engine are text."""
        return self._replace(ids=[str(id) for id in self.ids]) if self.are_ids_spelled and is_text else self

    def each_tenant(self) -> list[str | None]:
        """Return the tenant of each subscription."""
        tenants = self.tenants
        return [tenants] * len(self.ids) if tenants is None or isinstance(tenants, str) else list(tenants)


class Columns(NamedTuple):
    """A table of one row a predicate, the tenants by id, and the refusals so far."""

    table: Any
    tenants: Mapping[Id, str | None] | str | None
    refused: list[Refused]
    whole: Any  # the table, including refused subscriptions

    def fitted(self, is_text: bool | None, has: Callable[[Id], bool]) -> Columns:
        """Return the subscriptions whose ids an engine can take; refuse the others."""
        from siftline.files.subscription_tables import rows_of_ids

        ids = self.table["subscription"].unique().to_pylist()
        reasons = _id_reasons(ids, is_text, has)
        if not reasons:
            return self
        first = _first_rows(self.whole)
        refused = [Refused(first[ids[i]], ids[i], reason) for i, reason in reasons]
        rest = rows_of_ids(self.table, [ids[i] for i, _ in reasons], is_wanted=False)
        return self._replace(table=rest, refused=sorted([*self.refused, *refused], key=_order))

    def tenants_of(self, ids: Sequence[Id]) -> Tenants:
        """Return the tenants of ids."""
        return [self.tenants.get(id) for id in ids] if isinstance(self.tenants, Mapping) else self.tenants

    def unpacked(self) -> Rows:
        """Return the same with an expression for each."""
        from siftline.encoding.columns import load_columns
        from siftline.encoding.domains import Domains

        loaded = load_columns(self.table, Domains())
        expressions = [loaded.expressions.expression(i) for i in range(len(loaded.ids))]
        places: list[Place] = [(None, None)] * len(loaded.ids)
        return Rows(loaded.ids, expressions, loaded.weights.tolist(), self.tenants_of(loaded.ids), places, self.refused)


def read(source: Any, tenant: str | None, on_error: OnError) -> Rows | Columns:
    """Return the subscriptions of a source; raise at the first bad one, or collect them.

    Parameters
    ----------
    source
        As `Engine.add_many` takes it.
    tenant : str, optional
        The tenant of subscriptions that name none.
    on_error : {'raise', 'collect'}
        Whether a bad subscription raises, or is refused and collected.
    """
    if on_error not in ("raise", "collect"):
        raise ValueError(f"on_error must be 'raise' or 'collect', not {on_error!r}")
    collects = on_error == "collect"
    if isinstance(source, (str, PathLike)) and not _is_parquet(fspath(source)):
        _check_path(Path(source))
        source = read_subscriptions(fspath(source), stop_after=None if collects else 1)
    if isinstance(source, Subscriptions):
        return _of_file(source, tenant, collects)
    table = table_of(source)
    if table is None:
        return _of_rows(_listed(source), tenant, collects)
    table = _with_subscription(table)
    if "expression" in table.column_names:
        return _of_rows(_text_rows(table), tenant, collects)
    return _of_columns(table, tenant, collects)


def _check_path(path: Path) -> None:
    """Raise FileError if a path looks like an expression; opening a missing file raises later."""
    if not path.suffix and not path.exists():
        raise FileError(f"{path}: there is no such file; `add` takes one expression, add_many files, tables and rows")


def _is_parquet(path: Any) -> bool:
    return Path(path).suffix.lower() == ".parquet" or Path(path).is_dir()


def _with_subscription(table: Any) -> Any:
    """Return a table whose ids are in the column `subscription`."""
    names = table.column_names
    if "expression" not in names and "attribute" not in names:
        found = ", ".join(names) or "none"
        raise TableError(
            "the table must have the columns subscription (or id) and expression, or subscription, attribute and op "
            f"(one row a predicate); it has {found}"
        )
    if "id" not in names:
        return table
    if "subscription" in names:
        raise TableError("the table has both 'subscription' and 'id': only one can be")
    return table.rename_columns(["subscription" if name == "id" else name for name in names])


# Files


def _of_file(found: Subscriptions, tenant: str | None, collects: bool) -> Rows | Columns:
    if found.problems and not collects:
        first = found.problems[0]
        raise SubscriptionError(f"{first.place}: {first.reason}", hint=first.hint)
    refused = [_refused(problem) for problem in found.problems]
    if found.table is not None:
        return Columns(found.table, _tenants_by_id(found.table, tenant), refused, found.table)
    lines: list[Any] = found.lines if found.unit == "line" else [None] * len(found.lines)
    places: list[Place] = list(zip(found.positions, lines, strict=True))
    tenants = _tenants(found.tenants, tenant)
    return Rows(found.ids, found.expressions, found.weights, tenants, places, refused, found.are_ids_spelled)


def _refused(problem: Problem) -> Refused:
    line = problem.line if problem.unit == "line" else None
    return Refused(problem.position, problem.id, problem.reason, problem.hint, line)


# Rows


def _listed(source: Any) -> Iterable[Any]:
    if isinstance(source, Mapping):
        return source.items()
    if not isinstance(source, Iterable):
        raise TypeError(f"subscriptions must come as an iterable or a table, not {type(source).__name__}")
    return source


def _text_rows(table: Any) -> Iterable[tuple[Any, ...]]:
    if "subscription" not in table.column_names:
        listed = ", ".join(table.column_names)
        raise TableError(f"the table has no column 'subscription' (or 'id'); it has {listed}")
    names = ("subscription", "expression", "weight", "tenant")
    columns = [table[name].to_pylist() if name in table.column_names else [None] * len(table) for name in names]
    return zip(*columns, strict=True)


def _of_rows(source: Iterable[Any], tenant: str | None, collects: bool) -> Rows:
    rows = Rows([], [], [], [], [], [])
    tenants: list[str | None] = []
    known: dict[str, Expression] = {}  # a repeated text is parsed once
    for position, given in enumerate(source):
        id = None
        try:
            id, expression, weight, of = _parts(given, position)
            id = plain_id(id)
            rows.expressions.append(_parsed(expression, id, known, collects))
            rows.weights.append(checked_weight(weight))
            tenants.append(checked_tenant(of))
        except SubscriptionError as error:
            if not collects:
                raise
            del rows.expressions[len(rows.ids) :], rows.weights[len(rows.ids) :]
            rows.refused.append(Refused(position, id, str(error).partition("\n")[0], error.hint))
            continue
        rows.ids.append(id)
        rows.places.append((position, None))
    return rows._replace(tenants=_tenants(tenants, tenant))


def _parts(row: Any, position: int) -> tuple[Any, Any, Any, Any]:
    """Return id, expression, weight and tenant of a row."""
    if isinstance(row, Mapping):
        entry = mapped_entry(row)
        if isinstance(entry, Problem):
            raise SubscriptionError(f"row {position}: {entry.reason}")
        expression = entry.source if entry.kind == "expression" else parse_entry(entry)
        return entry.id, expression, entry.weight, entry.tenant
    if not isinstance(row, (tuple, list)) or len(row) not in (2, 3, 4):
        hint = "a dict with the keys of a subscription file will do as well"
        if isinstance(row, str):
            hint = "each needs an id: add_many(enumerate(expressions)) numbers them"
        reason = f"row {position} must be (id, expression) or (id, expression, weight), not {row!r}"
        raise SubscriptionError(reason, hint=hint)
    id, expression, weight, tenant = [*row, None, None][:4]
    return id, expression, weight, tenant


def _parsed(expression: Any, id: Id, known: dict[str, Expression], collects: bool) -> Expression:
    if isinstance(expression, str) and expression in known:
        return known[expression]
    try:
        parsed = accepted(expression)
    except SubscriptionError as error:
        if collects:
            raise
        place: dict[str, Any] = {"text": error.text, "position": error.position, "path": error.path}
        raise SubscriptionError(f"subscription {id!r}: {error.reason}", hint=error.hint, **place) from None
    if isinstance(expression, str):
        known[expression] = parsed
    return parsed


def _tenants(tenants: list[str | None], default: str | None) -> Tenants:
    if not any(each is not None for each in tenants):
        return default
    return [default if each is None else each for each in tenants]


# Tables of predicates


def _of_columns(table: Any, tenant: str | None, collects: bool) -> Columns:
    tenants = _tenants_by_id(table, tenant)
    if not collects:
        return Columns(table, tenants, [], table)
    from siftline.files.subscription_tables import bad_subscriptions, rows_of_ids

    bad = list(bad_subscriptions(table))
    if not bad:
        return Columns(table, tenants, [], table)
    first = _first_rows(table)
    refused = [Refused(first[id], id, reason, hint) for id, reason, hint in bad]
    rest = rows_of_ids(table, [id for id, *_ in bad], is_wanted=False)
    return Columns(rest, tenants, sorted(refused, key=_order), table)


def _tenants_by_id(table: Any, tenant: str | None) -> Mapping[Id, str | None] | str | None:
    """Return the tenant of each id, as its first row says."""
    if "tenant" not in table.column_names or "subscription" not in table.column_names:
        return tenant
    found: dict[Id, str | None] = {}
    for id, of in zip(table["subscription"].to_pylist(), table["tenant"].to_pylist(), strict=True):
        found.setdefault(id, tenant if checked_tenant(of) is None else of)
    return found


def _first_rows(table: Any) -> dict[Id, int]:
    """Return the number of the first row of each subscription."""
    ids = table["subscription"].to_pylist()
    return {id: len(ids) - 1 - i for i, id in enumerate(reversed(ids))}


# Ids


def _id_reasons(ids: Sequence[Any], is_text: bool | None, has: Callable[[Id], bool]) -> list[tuple[int, str]]:
    """Return which ids an engine cannot take, and why."""
    reasons: list[tuple[int, str]] = []
    seen: set[Id] = set()
    for i, id in enumerate(ids):
        try:
            is_text = check_type(id, is_text)
        except SubscriptionError as error:
            reasons.append((i, error.reason))
            continue
        if id in seen or has(id):
            reasons.append((i, f"the id {id!r} is already in use"))
        seen.add(id)
    return reasons


def _order(refused: Refused) -> int:
    return -1 if refused.position is None else refused.position
