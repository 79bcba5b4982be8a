"""Parquet files of events that workers read themselves: the files, their columns, and the tasks that read them.

Spark only lists the files and finds the types of folders such as `day=2026-11-17`; it opens no file. The driver reads
the footers. Files may have different columns: a column that a file lacks is null in all its events, and a struct has
all fields that it has in any file. A column of the event may even have another type in each file; keys and nested
columns are converted to one type that holds them all.
"""

from __future__ import annotations

import glob
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from siftline.errors import SparkError, StorageError, TableError
from siftline.spark.runtime.paths import file_uri, is_remote, literal, local_path
from siftline.spark.worker.events import column_of, quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from siftline.spark.worker.events import Shape

# How many events are read at a time.
_READ_ROWS: Final = 50_000
# Table formats with Parquet files: an entry by which their folder is recognised, and how to read such a table.
_TABLE_FORMATS: Final = (
    ("_delta_log", "Delta Lake", "spark.read.format('delta').load(...)"),
    ("metadata/*.metadata.json", "Iceberg", "spark.table(...)"),
    (".hoodie", "Hudi", "spark.read.format('hudi').load(...)"),
)
# The name of a folder whose value is null.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
# The metadata of a file in which Spark records the columns that it wrote.
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
# The types as which Spark reads unsigned integers.
_SIGNED: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
_LISTED: Final = "_siftline_listed"
# The input of a task: the row groups that it reads, and the values of the folders above each.
_GROUPS: Final = "place int, file string, group int"
# There is a task for this many bytes of row groups, if that makes more tasks than a few for each core.
_TASK_BYTES: Final = 1 << 26
_TASKS_PER_CORE: Final = 4


def mounted(path: str | os.PathLike[str], what: str) -> Path:
    """Return the path of files that workers read or write themselves."""
    if is_remote(path):
        raise SparkError(f"{path}: workers read and write {what} themselves, which must be mounted; use `match`")
    return local_path(path)


def check_plain(path: Path) -> None:
    """Raise TableError if a folder is a table of which not all Parquet files are valid."""
    for pattern, name, reader in _TABLE_FORMATS:
        if path.is_dir() and any(path.glob(pattern)):
            raise TableError(
                f"{path} is a table of {name}: some of its Parquet files may be deleted or older than others; read it "
                f"as a DataFrame, such as {reader}, and use `match`"
            )


class Group(NamedTuple):
    """A row group of a file, and the values of the folders above it."""

    file: str
    number: int
    n_rows: int
    n_bytes: int
    values: tuple[Any, ...]


class EventFiles(NamedTuple):
    """Files of events.

    Attributes
    ----------
    schema : pyspark.sql.types.StructType
        All columns of all files, then those of the folders.
    partitions : list of pyspark.sql.types.StructField
        The columns of the folders.
    kinds : dict
        By column of the files, the Arrow types that it has, each with a file in which it has that type.
    groups : list of Group
        All row groups, in the order of the files.
    """

    schema: Any
    partitions: list[Any]
    kinds: dict[str, dict[Any, str]]
    groups: list[Group]

    def n_tasks(self, n_cores: int) -> int:
        """Return the number of tasks that read the files, each of which has something to do."""
        n_bytes = sum(group.n_bytes for group in self.groups)
        return min(len(self.groups), max(_TASKS_PER_CORE * n_cores, n_bytes // _TASK_BYTES))

    def reader(self, shape: Shape) -> Reader:
        """Return the reader of workers for the columns of a shape."""
        if shape.is_variant:
            raise TableError("only Spark can read a VARIANT; use `match`")
        names = [path[0] for path in shape.paths if path[0] not in self.partition_names]
        return Reader(shape.paths, self.partition_names, {name: self.united(name, "event") for name in names})

    @property
    def partition_names(self) -> tuple[str, ...]:
        """The names of the columns of the folders."""
        return tuple(field.name for field in self.partitions)

    def united(self, name: str, role: str) -> Any:
        """Return one type for a column of the files; null for a plain column of the event that has several."""
        kinds = list(self.kinds[name])
        if len(kinds) == 1:
            return kinds[0]
        try:
            schemas = [pa.schema([(name, kind)]) for kind in kinds]
            return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
        except pa.ArrowException:
            if role == "event" and not any(map(types.is_nested, kinds)):
                return pa.null()
            shown = ", ".join(f"{kind} in {file}" for kind, file in self.kinds[name].items())
            raise TableError(f"column {name!r} ({role}) has types that do not go together: {shown}") from None


def event_files(spark: Any, paths: Sequence[str | os.PathLike[str]]) -> EventFiles:
    """Inspect files and folders of Parquet; raise an error that names an unreadable file."""
    from pyspark.sql import types as spark_types

    roots = [root for path in paths for root in _roots(path)]
    for root in roots:
        check_plain(root)
    frame = spark.read.schema(f"{_LISTED} int").parquet(*(literal(file_uri(root)) for root in roots))
    files = sorted(map(local_path, frame.inputFiles()))
    if not files:
        raise TableError(f"there are no Parquet files at {', '.join(map(str, roots))}")
    partitions = [field for field in frame.schema if field.name != _LISTED]
    values = _partition_values(spark, partitions, [_folder_values(file, roots, partitions) for file in files])
    fields: dict[str, Any] = {}
    kinds: dict[str, dict[Any, str]] = {}
    groups: list[Group] = []
    for file, of_file in zip(files, values, strict=True):
        footer, arrow_schema = _footer(file)
        for field in arrow_schema:
            kinds.setdefault(field.name, {}).setdefault(_value_type(field.type), str(file))
        if not all(name in fields for name in arrow_schema.names):
            fields = {field.name: field for field in _spark_fields(arrow_schema, file)} | fields
        sizes = [footer.row_group(number) for number in range(footer.num_row_groups)]
        groups += [Group(str(file), i, g.num_rows, g.total_byte_size, of_file) for i, g in enumerate(sizes)]
    names = {field.name for field in partitions}
    data = [field for name, field in fields.items() if name not in names]
    return EventFiles(spark_types.StructType([*data, *partitions]), partitions, kinds, groups)


def _roots(path: str | os.PathLike[str]) -> list[Path]:
    """Return the path itself, or, if nothing has this name, the files and folders that match it as a pattern."""
    root = mounted(path, "events")
    if root.exists():
        return [root]
    found = [root.__class__(name) for name in sorted(glob.glob(str(root)))]
    if not found:
        raise SparkError(f"{root}: there is no such file or folder")
    return found


def _footer(file: Path) -> tuple[Any, Any]:
    """Return the metadata of a file, and its columns as workers read them."""
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as opened:
            return opened.metadata, opened.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"{file} cannot be read as Parquet: {error}") from error


def _spark_fields(schema: Any, file: Path) -> Iterator[Any]:
    """Return the columns of a file as Spark reads them: as it has recorded them, or by their Arrow types."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    written = (schema.metadata or {}).get(_SPARK_SCHEMA)
    if written is not None:
        yield from StructType.fromJson(json.loads(written))
        return
    for field in schema:
        try:
            yield StructField(field.name, from_arrow_type(_plain(field.type)))
        except PySparkException:
            raise TableError(f"{file}: column {field.name!r} is {field.type}, which Spark does not know") from None


def _plain(kind: Any) -> Any:
    return _SIGNED.get(_value_type(kind), _value_type(kind))


def _value_type(kind: Any) -> Any:
    return kind.value_type if types.is_dictionary(kind) else kind


# values of folders


def _folder_values(file: Path, roots: Sequence[Path], partitions: Sequence[Any]) -> tuple[str | None, ...]:
    """Return the texts of the folders between a root and a file, for the columns of the folders."""
    inside = next(file.relative_to(root) for root in roots if file.is_relative_to(root))
    found = dict(part.split("=", 1) for part in inside.parts[:-1] if "=" in part)
    texts = {unquote(name): unquote(value) for name, value in found.items() if value != _NULL}
    return tuple(texts.get(field.name) for field in partitions)


def _partition_values(
    spark: Any, partitions: Sequence[Any], texts: Sequence[tuple[str | None, ...]]
) -> list[tuple[Any, ...]]:
    """Let Spark convert the texts of folders to the types that it has found for them."""
    if not partitions:
        return list(texts)
    different = sorted(set(texts), key=repr)
    columns = [f"c{number}" for number in range(len(partitions))]
    table = spark.createDataFrame(different, ", ".join(f"{column} string" for column in columns))
    casts = [table[c].cast(field.dataType).alias(c) for c, field in zip(columns, partitions, strict=True)]
    known = dict(zip(different, (tuple(row) for row in table.select(*casts).collect()), strict=True))
    return [known[each] for each in texts]


# tasks


def task_rows(spark: Any, files: EventFiles, n_tasks: int) -> Any:
    """Return a DataFrame of the row groups, those of a task in one partition."""
    from pyspark.sql import types as spark_types

    partitions = [spark_types.StructField(f"value{i}", field.dataType) for i, field in enumerate(files.partitions)]
    fields = [*spark_types.StructType.fromDDL(_GROUPS), *partitions]
    groups = distributed(files.groups, n_tasks)
    return spark.createDataFrame(groups, spark_types.StructType(fields)).repartitionById(n_tasks, "place")


def key_columns(files: EventFiles, shape: Shape) -> list[Any]:
    """Return the keys as columns of the result; a key that has several types gets one that holds them all."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField

    fields = []
    for name, path in zip(shape.keys, shape.paths, strict=False):
        kind = column_of(files.schema, quoted(*path))
        assert kind is not None
        spark_type = kind.type
        if len(path) == 1 and len(files.kinds.get(path[0], ())) > 1 and path[0] not in files.partition_names:
            spark_type = from_arrow_type(files.united(path[0], "key"))
        fields.append(StructField(name, spark_type))
    return fields


def distributed(groups: Sequence[Group], n_tasks: int) -> list[tuple[Any, ...]]:
    """Return for each row group its task, file, number and values: neighbours share a task, and tasks have equal work.

    >>> groups = [Group("a", 0, 10, 1, ()), Group("a", 1, 10, 1, ()), Group("b", 0, 20, 1, ())]
    >>> distributed(groups, 2)
    [(0, 'a', 0), (0, 'a', 1), (1, 'b', 0)]
    """
    total, before, rows = max(1, sum(group.n_rows for group in groups)), 0, []
    for group in groups:
        place = min(n_tasks - 1, (before + group.n_rows // 2) * n_tasks // total)
        rows.append((place, group.file, group.number, *group.values))
        before += group.n_rows
    return rows


@dataclass(frozen=True)
class Reader:
    """Reads the row groups of a task: rows of `distributed` in, batches of events with the columns of a shape out.

    Attributes
    ----------
    paths : tuple of tuple of str
        The columns, or fields in them.
    partitions : tuple of str
        The columns of the folders, which come with the rows.
    kinds : dict
        By column of the files, the type that it has in all of them; null if each file has its own.
    """

    paths: tuple[tuple[str, ...], ...]
    partitions: tuple[str, ...]
    kinds: dict[str, Any]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Read the events of one task."""
        for batch in batches:
            for row in range(batch.num_rows):
                file, group = batch.column(1)[row].as_py(), batch.column(2)[row].as_py()
                values = {name: batch.column(3 + i)[row] for i, name in enumerate(self.partitions)}
                for events in self._read(file, group):
                    yield self._columns(events, values)

    def _read(self, file: str, group: int) -> Iterator[Any]:
        import pyarrow.parquet as pq

        # Spark writes times as INT96 by default; nanoseconds cannot represent times after 2262.
        with pq.ParquetFile(file, memory_map=True, coerce_int96_timestamp_unit="us") as opened:
            there = set(opened.schema_arrow.names)
            names = [name for name in self.kinds if name in there]
            if names:
                yield from opened.iter_batches(_READ_ROWS, [group], columns=names, use_threads=False)
                return
            n_rows = opened.metadata.row_group(group).num_rows  # the file has none of the columns
            for first in range(0, n_rows, _READ_ROWS):
                nothing = pa.nulls(min(_READ_ROWS, n_rows - first))
                yield pa.RecordBatch.from_arrays([nothing], names=[_LISTED])

    def _columns(self, events: Any, values: dict[str, Any]) -> Any:
        columns = []
        for name, *fields in self.paths:
            is_folder = name in values
            column = pa.repeat(values[name], events.num_rows) if is_folder else self._column(events, name)
            columns.append(pc.struct_field(column, fields) if fields else column)
        return pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(columns))])

    def _column(self, events: Any, name: str) -> Any:
        place = events.schema.get_field_index(name)
        if place < 0:
            return pa.nulls(events.num_rows, self.kinds[name])
        column = events.column(place)
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        # Plain values keep the type of the file, in which they are exact.
        is_other = types.is_nested(self.kinds[name]) and column.type != self.kinds[name]
        return column.cast(self.kinds[name]) if is_other else column
