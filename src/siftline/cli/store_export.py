"""Writes the subscriptions of a store to a file that `siftline store import` and `siftline match` can read."""

from __future__ import annotations

import contextlib
import json
import sys
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final

from siftline.cli.files import csv_bytes, written_whole
from siftline.cli.progress import Progress
from siftline.files.formats import JSONL, PARQUET, STANDARD
from siftline.language.printer import to_text
from siftline.storage.written import CLOUDEVENTS, EVENTBRIDGE, SNS, TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from siftline.storage.rows import StoredSubscription
    from siftline.storage.store import Store

_COLUMNS: Final = ("subscription", "expression", "weight", "owner", "created", "expires")
_ROWS: Final = 4096
_KEYS: Final = {TEXT: "expression", EVENTBRIDGE: "pattern", SNS: "pattern", CLOUDEVENTS: "filters"}


def export(store: Store, path: str, kind: str, *, owner: str | None, is_quiet: bool) -> int:
    """Write all subscriptions of a store, or of one owner; return how many."""
    with Progress("exporting", None, "subscriptions", is_quiet=is_quiet) as progress:
        portions = _portions(store, owner, progress.advance)
        if path == STANDARD:
            n = _write(portions, kind, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return n
        with written_whole(path) as temporary:
            if kind == PARQUET:
                return _write_parquet(portions, str(temporary), bool(store.are_ids_text()))
            with temporary.open("wb") as file:
                return _write(portions, kind, file)


def _portions(store: Store, owner: str | None, advance: Callable[[int], None]) -> Iterator[list[StoredSubscription]]:
    with contextlib.closing(store.subscriptions(owner=owner)) as rows:
        while portion := list(islice(rows, _ROWS)):
            yield portion
            advance(len(portion))


def _write(portions: Iterator[list[StoredSubscription]], kind: str, file: IO[bytes]) -> int:
    n = 0
    if kind != JSONL:
        file.write(csv_bytes([_COLUMNS]))
    for portion in portions:
        lines = "".join(f"{json_line(each)}\n" for each in portion).encode() if kind == JSONL else None
        file.write(csv_bytes([_row(each) for each in portion]) if lines is None else lines)
        n += len(portion)
    return n


def json_line(subscription: StoredSubscription) -> str:
    """Return one line of JSON with the expression as it was written; a pattern on one line stays JSON."""
    dialect, text = subscription.written
    source = text if dialect != TEXT and _fits_a_line(text) else json.dumps(text)
    parts = [f'"id": {json.dumps(subscription.id)}', f'"{_KEYS[dialect]}": {source}']
    if dialect == SNS:
        parts.append('"dialect": "sns"')
    parts.append(f'"weight": {json.dumps(subscription.weight)}')
    if subscription.owner is not None:
        parts.append(f'"owner": {json.dumps(subscription.owner)}')
    parts.append(f'"created": "{subscription.created.isoformat()}"')
    if subscription.expires is not None:
        parts.append(f'"expires": "{subscription.expires.isoformat()}"')
    return f"{{{', '.join(parts)}}}"


def _fits_a_line(text: str) -> bool:
    return text == text.strip() and text.isprintable()


def _row(subscription: StoredSubscription) -> tuple[Any, ...]:
    dialect, text = subscription.written
    expression = text if dialect == TEXT else to_text(subscription.expression())
    expires = None if subscription.expires is None else subscription.expires.isoformat()
    created = subscription.created.isoformat()
    return subscription.id, expression, subscription.weight, subscription.owner, created, expires


def _write_parquet(portions: Iterator[list[StoredSubscription]], path: str, are_ids_text: bool) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = (pa.string() if are_ids_text else pa.int64(), pa.string(), pa.float64(), *[pa.string()] * 3)
    schema = pa.schema(list(zip(_COLUMNS, kinds, strict=True)))
    n = 0
    with pq.ParquetWriter(path, schema) as file:
        for portion in portions:
            columns = zip(*(_row(each) for each in portion), strict=True)
            file.write_table(pa.table([pa.array(c, t) for c, t in zip(columns, kinds, strict=True)], schema=schema))
            n += len(portion)
    return n
