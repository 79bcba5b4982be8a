"""Tables of subscriptions: the form that a table has, and how workers parse it (text, JSON dialects, predicates)."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siftline.encoding.columns import load_columns
from siftline.encoding.domains import Domains
from siftline.encoding.tables import predicate_of
from siftline.errors import SubscriptionError, TableError
from siftline.language.printer import to_text
from siftline.model import leaf_of
from siftline.model.expression import walk
from siftline.operators.acceptance import accepted
from siftline.operators.modules import load_modules
from siftline.spark.sharding.parsed import Collector, Parsed
from siftline.spark.worker.quarantine import Quarantine, is_unicode
from siftline.storage.written import CLOUDEVENTS, DIALECTS, EVENTBRIDGE, TEXT, Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from siftline.model import Expression

PREDICATES: Final = "predicates"
SIGMA: Final = "sigma"
LANGUAGES: Final = (*DIALECTS, SIGMA, PREDICATES)

# The output of a worker: a row holds a packed `Parsed` if it is good, otherwise a packed batch of the quarantine, and n
# is the number of subscriptions in it.
PACKED: Final = "is_good boolean, n bigint, content binary"
# How many subscriptions are in one row: few enough for the JVM to hold some rows.
_SUBSCRIPTIONS_PER_ROW: Final = 20_000

_IDS: Final = ("subscription", "id")
# The columns that may hold an expression, and the language that each implies.
SOURCES: Final = {"expression": None, "pattern": EVENTBRIDGE, "filters": CLOUDEVENTS, "sigma": SIGMA}
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
_NUMBERS: Final = (*_INTEGERS, "float", "double")
# Columns of predicates, and the types that they are cast to.
_COLUMNS: Final = {
    "clause": "bigint",
    "attribute": "string",
    "op": "string",
    "number": None,
    "upper": None,
    "text": "string",
    "upper_text": "string",
    "flag": "boolean",
    "numbers": None,
    "texts": "array<string>",
    "timestamp": None,
    "upper_timestamp": None,
    "timestamps": None,
}
_MOMENTS: Final = ("timestamp", "timestamp_ntz", "string")
_ARROW: Final = {"bigint": pa.int64(), "string": pa.string()}
# The language of a JSON document by its first character; no text expression begins with one of these.
_BY_BRACKET: Final = {"{": EVENTBRIDGE, "[": CLOUDEVENTS}


class Form(NamedTuple):
    """A table of subscriptions with known columns: subscription, expression, weight; or those of predicates."""

    table: Any
    id_type: str
    language: str | None  # None: detected for each expression

    @property
    def is_predicates(self) -> bool:
        """Whether one row is one predicate."""
        return self.language == PREDICATES


def form_of(table: Any, language: str | None) -> Form:
    """Return a DataFrame in the form that workers parse; raise TableError if it lacks a column."""
    if language is not None and language not in LANGUAGES:
        raise ValueError(f"unknown language {language!r}; there are {', '.join(LANGUAGES)}")
    types = dict(table.dtypes)
    id_name = next((name for name in _IDS if name in types), None)
    if id_name is None:
        raise TableError(f"the table of subscriptions has no column 'subscription'; it has {', '.join(types)}")
    if types[id_name] not in (*_INTEGERS, "string"):
        raise TableError(f"column {id_name!r} must be an integer or a string, not {types[id_name]}")
    id_type = "string" if types[id_name] == "string" else "bigint"
    if not _is_number(types.get("weight", "double")):
        raise TableError(f"column 'weight' must be a number, not {types['weight']}")
    chosen = [table[id_name].cast(id_type).alias("subscription")]
    if "weight" in types:
        chosen.append(table["weight"].cast("double").alias("weight"))
    source = next((name for name in SOURCES if name in types), None)
    if language == PREDICATES or (source is None and language is None):
        return Form(table.select(*chosen, *_predicate_columns(table, types)), id_type, PREDICATES)
    if source is None or types[source] != "string":
        found = "there is none" if source is None else f"{source!r} is {types[source]}"
        raise TableError(f"expressions must be in a column 'expression' of strings; {found}")
    chosen.append(table[source].alias("expression"))
    return Form(table.select(*chosen), id_type, language or SOURCES[source])


def _predicate_columns(table: Any, types: dict[str, str]) -> Iterator[Any]:
    """Return the columns of a table of predicates."""
    missing = [name for name in ("attribute", "op") if name not in types]
    if missing:
        raise TableError(
            f"the table of subscriptions has neither 'expression' nor {missing[0]!r}; it has {', '.join(types)}"
        )
    for name, kind in _COLUMNS.items():
        if name in types:
            if kind is None:
                _check_constants(name, types[name])
            yield table[name] if kind is None else table[name].cast(kind).alias(name)


def _check_constants(name: str, kind: str) -> None:
    element = kind.removeprefix("array<").removesuffix(">")
    if "timestamp" in name:
        if element not in _MOMENTS:
            raise TableError(f"column {name!r} must hold timestamps, not {kind}")
    elif not _is_number(element):
        raise TableError(f"column {name!r} must hold numbers, not {kind}")


def _is_number(kind: str) -> bool:
    return kind in _NUMBERS or kind.startswith("decimal(")


def parser(form: Form, operators: tuple[str, ...] = ()) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function that parses batches of a table in a worker, and returns rows of PACKED.

    `operators` are the modules of the operators that expressions may call.
    """
    id_type, language = _ARROW[form.id_type], form.language

    def parse_texts(batches: Iterable[Any]) -> Iterator[Any]:
        load_modules(operators)
        for batch in batches:
            yield from _packed(*_parsed_texts(batch, language, id_type))

    def parse_predicates(batches: Iterable[Any]) -> Iterator[Any]:
        found = list(batches)  # a subscription may have rows in several batches
        if found:
            yield from _packed(*_parsed_predicates(pa.Table.from_batches(found), id_type))

    return parse_predicates if form.is_predicates else parse_texts


def checker(form: Form, operators: tuple[str, ...] = ()) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function that adds a column to batches of a table in a worker: whether the row can be parsed."""
    language = form.language

    def check(batches: Iterable[Any]) -> Iterator[Any]:
        load_modules(operators)
        for batch in batches:
            columns = batch.to_pydict()
            rows = zip(columns["subscription"], columns["expression"], _weights(columns, len(batch)), strict=True)
            are_good = [refusal(*row) is None and _parses(row[1], language) for row in rows]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(are_good)], names=[*batch.schema.names, "is_good"]
            )

    return check


def _parses(text: str, language: str | None) -> bool:
    try:
        parsed_text(text, language)
    except SubscriptionError:
        return False
    return True


def _packed(good: Parsed, bad: Quarantine) -> Iterator[Any]:
    """Yield rows of PACKED, each of a limited number of subscriptions."""
    for start in range(0, len(good), _SUBSCRIPTIONS_PER_ROW):
        part = good.sliced(start, _SUBSCRIPTIONS_PER_ROW)
        yield _packed_row(True, len(part), part.packed())
    if len(bad):
        yield _packed_row(False, len(bad), packed_batch(bad.batch()))


def _packed_row(is_good: bool, n: int, content: bytes) -> Any:
    columns = [pa.array([is_good]), pa.array([n], pa.int64()), pa.array([content], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["is_good", "n", "content"])


def packed_batch(batch: Any) -> bytes:
    """Return a batch as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def unpack_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """Return the packed batches of the column `content`, in a worker."""
    for batch in batches:
        for content in batch.column("content"):
            yield from pa.ipc.open_stream(content.as_buffer())


# texts


def _parsed_texts(batch: Any, language: str | None, id_type: Any) -> tuple[Parsed, Quarantine]:
    """Parse all expressions of a batch; invalid ones go to the quarantine."""
    columns = batch.to_pydict()
    texts = columns["expression"]
    good, bad = Collector(id_type), Quarantine(id_type)
    for id, text, weight in zip(columns["subscription"], texts, _weights(columns, len(texts)), strict=True):
        reason = refusal(id, text, weight)
        if reason is not None:
            bad.add(id, text, reason)
            continue
        try:
            good.add(id, weight, *parsed_text(text, language))
        except SubscriptionError as error:
            bad.add_error(id, text, error)
    return good.parsed(), bad


def _weights(columns: dict[str, list[Any]], n: int) -> list[float]:
    if "weight" not in columns:
        return [1.0] * n
    return [1.0 if weight is None else weight for weight in columns["weight"]]


def refusal(id: Any, text: str | None, weight: float) -> str | None:
    """Return the reason to refuse a subscription, apart from its expression; None if there is none."""
    if id is None:
        return "the id is null"
    if text is None:
        return "the expression is null"
    return None if math.isfinite(weight) else f"the weight must be a finite number, not {weight}"


# Repeated texts are parsed once. If all were kept, the garbage collector would scan them repeatedly.
@lru_cache(maxsize=1024)
def parsed_text(text: str, language: str | None) -> tuple[str, Expression]:
    """Return the text to keep of an expression, in the text language, and the expression."""
    chosen = language or _BY_BRACKET.get(text.lstrip()[:1], TEXT)
    if chosen == TEXT:
        return text, accepted(text)
    if chosen == SIGMA:
        from siftline.sigma import parse_sigma

        rule = parse_sigma(text)
        return to_text(rule), rule
    expression = Written(chosen, text).expression()
    if "\\u" in text:
        _check_attributes(expression)
    return to_text(expression), expression


def _check_attributes(expression: Expression) -> None:
    """Raise SubscriptionError if an attribute has a lone surrogate, which only an escape in JSON can produce."""
    for node in walk(expression):
        name = getattr(node, "attribute", None) or ""
        if not is_unicode(name):
            raise SubscriptionError(f"the attribute {name!a} is half of a surrogate pair, which columns cannot hold")


# rows of predicates


def _parsed_predicates(table: Any, id_type: Any) -> tuple[Parsed, Quarantine]:
    """Check all subscriptions of a table of predicates."""
    bad = Quarantine(id_type)
    for _ in range(table.filter(table["subscription"].is_null()).num_rows):
        bad.add(None, None, "the id is null")
    table = table.filter(table["subscription"].is_valid())
    refused: set[Any] = set()
    try:
        loaded = load_columns(table, Domains())
    except (SubscriptionError, TableError):
        refused = _refuse_rows(table, bad)
        if not refused:
            raise
        keeps = pc.invert(pc.is_in(table["subscription"], pa.array(list(refused), id_type)))
        loaded = load_columns(table.filter(keeps), Domains())
    rows = loaded.expressions.rows
    unneeded = [name for name in ("subscription", "weight") if name in rows.column_names]
    subscriptions = {
        "id": pa.array(loaded.ids, id_type),
        "weight": pa.array(loaded.weights),
        "text": pa.nulls(len(loaded.ids), pa.large_binary()),
        "n_rows": pa.array(np.diff(loaded.expressions.starts), pa.int32()),
    }
    return Parsed(pa.table(subscriptions), rows.drop_columns(unneeded)), bad


def _refuse_rows(table: Any, bad: Quarantine) -> set[Any]:
    """Check each row, quarantine the subscriptions with an invalid one, and return their ids."""
    refused: set[Any] = set()
    weights: dict[Any, float] = {}
    for row in table.to_pylist():
        row = {name: _without_decimals(value) for name, value in row.items()}
        id = row["subscription"]
        error = None if id in refused else _row_error(row, weights)
        if error is not None:
            refused.add(id)
            shown = {name: value for name, value in row.items() if value is not None and name != "subscription"}
            bad.add(id, json.dumps(shown, default=str), error, row["attribute"])
    return refused


def _without_decimals(value: Any) -> Any:
    """Return a decimal as the number of the model with its value, and any other value unchanged."""
    if isinstance(value, list):
        return [_without_decimals(element) for element in value]
    return leaf_of(value, "") if isinstance(value, Decimal) else value


def _row_error(row: dict[str, Any], weights: dict[Any, float]) -> str | None:
    """Return what is wrong with a row, None if it is valid; `weights` has those of the subscriptions so far."""
    for name in ("clause", "attribute", "op"):
        if name in row and row[name] is None:
            return f"column {name!r} is null"
    weight = 1.0 if row.get("weight") is None else row["weight"]
    if not math.isfinite(weight) or weights.setdefault(row["subscription"], weight) != weight:
        return "the weight must be one finite number"
    try:
        predicate_of(row)
    except SubscriptionError as error:
        return error.reason
    return None
