"""`siftline spark`: the pipeline on Spark: profile events, compile subscriptions, match, stream."""

from __future__ import annotations

import argparse
import functools
import glob
import importlib
import json
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline.cli.actions import add_action
from siftline.cli.match import count
from siftline.cli.moments import add_now, moment_of
from siftline.cli.operator_modules import add_operators
from siftline.cli.problems import BAD_INPUT, OK, CannotRunError, counted, say, show
from siftline.files.formats import CSV, JSONL, PARQUET, format_of

if TYPE_CHECKING:
    from collections.abc import Callable

NAME: Final = "spark"
SUMMARY: Final = "profile events, compile subscriptions, match and stream, on Spark"
DETAILS: Final = """\
  profile  collects statistics of events for `compile`: frequencies and samples of values.
  compile  makes an index directory of subscriptions, or a new version of an existing one. Invalid subscriptions are
           left out, and written with reason and position to a quarantine beside the index.
  match    writes a row for every event and every subscription that it satisfies.
  stream   does the same for files of events that arrive in a directory, until it is stopped; after a restart it goes
           on where it was, and no match is lost or written twice.
  apply    changes the subscriptions of an index: one row per change (add, replace, remove, expire), with the columns
           change, subscription, expression, weight and expires, in the order of the files, those of a directory by
           name. A running stream applies it in its next batch.
  compact  merges changes into a new version of the index, while streams and other jobs run.

Files and directories of files are Parquet, JSON Lines or CSV, by extension or --format; a directory without an
extension is Parquet. Subscriptions have the columns subscription (or id), expression, and optionally weight; or one row
per predicate. Events of Parquet and CSV have a column for each attribute, or --event names the column that holds whole
events; each line of JSON Lines is an event. The output identifies an event by the column or attribute --key, or by a
number that ascends in the order of the files, with gaps.

An unreadable event ends a job, unless --dead-letters names a directory for such events, or is `ignore`. --fail-above
limits how many events may be unreadable, or subscriptions invalid: a number (20) or a share (0.01 or 1%).

Operators that subscriptions call are found by the entry points of installed packages, or in the modules of
--operators; the index stores the names of those that it was compiled with.

Spark runs on all cores of this machine, unless `spark-submit` runs this command; the extra `[spark]` includes Java.

exit status: 0 done; 1 done, but invalid subscriptions or events were left out; 2 could not run
"""
EXAMPLES: Final = """\
examples:
  siftline spark profile events.parquet --output statistics.json
  siftline spark compile subscriptions.parquet --index wishes --statistics statistics.json
  siftline spark match events.parquet --index wishes --output matches.parquet --dead-letters bad --fail-above 1%
  siftline spark stream incoming --format jsonl --key id --index wishes --output matches --checkpoint state
  siftline spark apply changes.jsonl --index wishes
  siftline spark compact wishes
"""

_FORMATS: Final = (PARQUET, JSONL, CSV)
# Fields may contain line breaks and doubled quotes.
_CSV: Final = {"header": True, "multiLine": True, "escape": '"'}
# The file with the columns of the events, in the checkpoint directory of a stream.
_COLUMNS: Final = "siftline-columns"
_LOG: Final = {"spark.log.level": "ERROR"}
# How many refused changes are printed.
_SHOWN: Final = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the commands and their options."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    profiling = _action(actions, "profile", "collect statistics of events", _profile, "EVENTS")
    profiling.add_argument("--output", metavar="FILE", required=True, help="the file for the statistics, as JSON")
    _add_event(profiling)
    compiling = _action(actions, "compile", "make an index directory of subscriptions", _compile, "SUBSCRIPTIONS")
    compiling.add_argument("--index", metavar="DIRECTORY", required=True, help="the index directory")
    compiling.add_argument("--statistics", metavar="FILE", help="statistics of events that were written by `profile`")
    compiling.add_argument(
        "--changes", choices=("keep", "drop"), help="what to do with changes of `apply` since the last compilation"
    )
    _add_fail_above(compiling, "invalid subscriptions")
    _add_keep(compiling)
    compiling.add_argument("--shards", metavar="N", type=count, help="how many parts (by size)")
    compiling.add_argument(
        "--language", help="the language of the expressions, if not detected: text, eventbridge, sns, ..."
    )
    add_operators(compiling)
    compiling.add_argument("--schedule", help="the order in which operators are called (adaptive)")
    compiling.add_argument("--json", action="store_true", help="print a JSON document instead of a line")
    matching = _action(actions, "match", "match events", _match, "EVENTS")
    _add_matching(matching)
    add_now(matching)
    matching.add_argument("--plan", choices=("auto", "replicated", "sharded"), default="auto", help="how to match")
    streaming = _action(actions, "stream", "match events as they come", _stream, "EVENTS")
    _add_matching(streaming)
    streaming.add_argument("--checkpoint", metavar="DIRECTORY", required=True, help="the checkpoint of Spark")
    streaming.add_argument("--sink", choices=("parquet", "json"), default="parquet", help="format of the output")
    streaming.add_argument("--once", action="store_true", help="stop when all present files have been matched")
    streaming.add_argument("--every", metavar="SECONDS", type=float, help="the time between batches (none)")
    streaming.add_argument(
        "--files", metavar="N", dest="most_files", type=count, help="the largest number of files in a batch"
    )
    streaming.add_argument("--time", metavar="COLUMN", help="the column with the time of an event, for --late")
    streaming.add_argument("--late", metavar="DELAY", help="drop events that are later than this, such as '10 minutes'")
    applying = _action(actions, "apply", "change the subscriptions of an index", _apply, "CHANGES")
    applying.add_argument("--index", metavar="DIRECTORY", required=True, help="the index directory")
    applying.add_argument("--language", help="the language of the expressions, if not detected")
    compacting = add_action(actions, "compact", "merge changes into a new version of an index", _compact)
    compacting.add_argument("index", metavar="DIRECTORY", help="the index directory")
    _add_keep(compacting)


def _add_matching(action: argparse.ArgumentParser) -> None:
    action.add_argument("--index", metavar="DIRECTORY", required=True, help="an index directory of `compile`")
    action.add_argument("--output", metavar="DIRECTORY", required=True, help="the directory for the matches")
    action.add_argument(
        "--key", metavar="COLUMN", help="the column that identifies an event in the output (id, if there is one)"
    )
    action.add_argument("--how", choices=("pairs", "arrays", "counts", "top-k"), default="pairs", help="what to write")
    action.add_argument("--k", metavar="K", type=count, default=10, help="for top-k: how many per event (10)")
    action.add_argument("--dead-letters", metavar="DIRECTORY", help="the directory for unreadable events; or: ignore")
    _add_fail_above(action, "unreadable events")
    add_operators(action)
    _add_event(action)


def _add_fail_above(action: argparse.ArgumentParser, what: str) -> None:
    action.add_argument(
        "--fail-above", metavar="N", type=_limit, help=f"fail if there are more {what}: a number, or 1%%"
    )


def _limit(text: str) -> int | float:
    """Parse a number, or a share such as 0.01 or 1%."""
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor a share, such as 0.01 or 1%") from None


def _add_keep(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--keep", metavar="HOURS", type=float, help="how long replaced versions are kept for running jobs (24)"
    )


def _kept(args: argparse.Namespace) -> dict[str, Any]:
    return {} if args.keep is None else {"keep": timedelta(hours=args.keep)}


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    run: Callable[[argparse.Namespace], int],
    files: str,
) -> argparse.ArgumentParser:
    action = add_action(actions, name, summary, run)
    action.add_argument("files", metavar=files, nargs="+", help="files or directories")
    action.add_argument("--format", choices=_FORMATS, help="the format of the files, if not by their extension")
    action.add_argument("--cores", metavar="N", type=count, help="how many tasks at a time (all cores)")
    action.add_argument("--memory", metavar="SIZE", default="2g", help="the memory of the JVM (2g)")
    return action


def _add_event(action: argparse.ArgumentParser) -> None:
    action.add_argument("--event", metavar="COLUMN", help="the column that holds whole events (event, if there is one)")


def run(args: argparse.Namespace) -> int:
    """Run one action, and return the exit status."""
    try:
        import pyspark.errors
    except ImportError:
        raise CannotRunError("PySpark is not installed: pip install 'siftline[spark]'") from None
    try:
        return int(args.act(args))
    except pyspark.errors.PySparkException as error:
        if args.debug:
            raise
        from siftline.spark.runtime.failures import own_error

        own = own_error(error)
        raise CannotRunError(str(own) if own else f"Spark: {str(error).strip().splitlines()[0]}") from None


def _profile(args: argparse.Namespace) -> int:
    start = time.perf_counter()
    events, _ = _events(args)
    counts = _pipeline().Counts(events.sparkSession)
    statistics = _pipeline().profile(events, counts=counts, **_given(event=args.event))
    statistics.save(args.output)
    n_events, n_attributes = counted(statistics.n_events, "event"), counted(len(statistics.counts), "attribute")
    _tell(args, f"{args.output}: {n_events}, {n_attributes}{_unread(counts)}", start)
    return BAD_INPUT if counts.dead_letters else OK


def _compile(args: argparse.Namespace) -> int:
    from siftline.encoding.statistics import Statistics

    start = time.perf_counter()
    statistics = None if args.statistics is None else Statistics.load(args.statistics)
    subscriptions = _subscriptions(args)
    chosen = {"shards": args.shards or "auto", "language": args.language}
    chosen |= {"operators": args.operators, "schedule": args.schedule, **_kept(args)}
    chosen |= {"changes": args.changes, "fail_above": args.fail_above}
    try:
        index = _pipeline().compile(subscriptions, args.index, statistics, **chosen)
    except ValueError as error:
        raise CannotRunError(str(error)) from None
    if args.json:
        show(json.dumps(_described(index)))
    else:
        refused = f", {index.quarantined:,} refused (see {index.quarantine_path})" if index.quarantined else ""
        in_shards = f"{counted(index.subscriptions, 'subscription')} in {counted(len(index.shards), 'shard')}"
        _tell(args, f"{args.index}: version {index.version}, {in_shards}{refused}", start)
    return BAD_INPUT if index.quarantined else OK


def _described(index: Any) -> dict[str, Any]:
    return {
        "index": str(index.path),
        "version": index.version,
        "subscriptions": index.subscriptions,
        "quarantined": index.quarantined,
        "quarantine": str(index.quarantine_path) if index.quarantined else None,
        "shards": [{"subscriptions": shard.subscriptions, "bytes": shard.bytes} for shard in index.shards],
    }


def _match(args: argparse.Namespace) -> int:
    start = time.perf_counter()
    pipeline = _pipeline()
    events, key = _events(args)
    counts = pipeline.Counts(events.sparkSession)
    chosen = {"how": args.how, "k": args.k, "plan": args.plan, "dead_letters": args.dead_letters, "counts": counts}
    chosen |= {"operators": args.operators, "fail_above": args.fail_above, "now": moment_of(args)}
    try:
        matches = pipeline.match(events, args.index, key=key, **_given(event=args.event), **chosen)
    except ValueError as error:
        raise CannotRunError(str(error)) from None
    matches.write.parquet(_absolute(args.output))
    _tell(args, f"{args.output}: {_counted(counts)}", start)
    return BAD_INPUT if counts.dead_letters else OK


def _stream(args: argparse.Namespace) -> int:
    if args.once and args.every is not None:
        raise CannotRunError("--once and --every exclude each other")
    start = time.perf_counter()
    pipeline = _pipeline()
    events, key = _event_stream(args)
    counts = pipeline.Counts(events.sparkSession)
    chosen = {"how": args.how, "k": args.k, "dead_letters": args.dead_letters, "counts": counts}
    chosen |= {"operators": args.operators, "fail_above": args.fail_above}
    options = _given(event=args.event, time=args.time, late=args.late)
    try:
        matches = pipeline.stream(events, args.index, key=key, **options, **chosen)
    except ValueError as error:
        raise CannotRunError(str(error)) from None
    writer = matches.writeStream.format(args.sink).option("checkpointLocation", _absolute(args.checkpoint))
    if args.once:
        writer = writer.trigger(availableNow=True)
    elif args.every is not None:
        writer = writer.trigger(processingTime=f"{args.every} seconds")
    query = writer.start(_absolute(args.output))
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    _tell(args, f"{args.output}: {_counted(counts)}", start)
    return BAD_INPUT if counts.dead_letters else OK


def _counted(counts: Any) -> str:
    return f"{counted(counts.matches, 'match', 'matches')} of {counted(counts.events, 'event')}{_unread(counts)}"


def _unread(counts: Any) -> str:
    return f", {counted(counts.dead_letters, 'event')} could not be read" if counts.dead_letters else ""


def _apply(args: argparse.Namespace) -> int:
    start = time.perf_counter()
    try:
        delta = _pipeline().apply(args.index, _changes(args), language=args.language)
    except ValueError as error:
        raise CannotRunError(str(error)) from None
    for refused in delta.refused[:_SHOWN]:
        say(f"subscription {refused.id!r}: {refused.reason}")
    more = f", {len(delta.refused):,} refused" if delta.refused else ""
    _tell(args, f"{args.index}: delta {delta.number}, {counted(len(delta.changes), 'change')}{more}", start)
    return BAD_INPUT if delta.refused else OK


def _compact(args: argparse.Namespace) -> int:
    start = time.perf_counter()
    index = _pipeline().compact(args.index, **_kept(args))
    _tell(args, f"{args.index}: version {index.version}, {counted(index.subscriptions, 'subscription')}", start)
    return OK


def _pipeline() -> Any:
    """Return the package, which takes a second to import."""
    return importlib.import_module("siftline.spark")


def _paths() -> Any:
    return importlib.import_module("siftline.spark.runtime.paths")


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _tell(args: argparse.Namespace, text: str, start: float) -> None:
    if not args.quiet:
        say(f"{text}; {time.perf_counter() - start:.1f} s")


# tables


def _session(args: argparse.Namespace) -> Any:
    return _pipeline().session(args.cores, memory=args.memory, settings=_LOG)


def _absolute(path: str) -> str:
    """Return a path for the JVM, which has no working directory; URIs of file systems are not changed."""
    return str(_paths().spark_path(path))


def _readable(path: str) -> str:
    """Return a path for reading with Spark: the name of an existing file is not a pattern, whatever it looks like."""
    paths = _paths()
    is_there = not paths.is_remote(path) and paths.local_path(path).exists()
    return str(paths.literal(_absolute(path)) if is_there else _absolute(path))


def _format(args: argparse.Namespace) -> str:
    """Return the format of all files; raise if one does not exist."""
    paths = _paths()
    kinds = {args.format or (format_of(file, _FORMATS) if Path(file).suffix else PARQUET) for file in args.files}
    if len(kinds) > 1:
        raise CannotRunError(f"the files are of several formats: {', '.join(sorted(kinds))}")
    for file in args.files:
        if paths.is_remote(file):
            continue
        local = paths.local_path(file)
        if not local.exists() and not glob.glob(str(local)):
            raise CannotRunError(f"{file}: No such file or directory")
        importlib.import_module("siftline.spark.worker.event_files").check_plain(local)
    return str(kinds.pop())


def _files(args: argparse.Namespace) -> list[str]:
    return [_readable(file) for file in args.files]


def _subscriptions(args: argparse.Namespace) -> Any:
    kind = _format(args)
    reader = _session(args).read
    if kind == CSV:
        return reader.csv(_files(args), inferSchema=True, **_CSV)
    if kind == PARQUET:
        return reader.parquet(*_files(args))
    table = reader.json(_files(args))
    # Patterns and filters are kept as text.
    fields = [(name, "string" if name in ("pattern", "filters") else kind) for name, kind in table.dtypes]
    if fields == table.dtypes:
        return table
    return reader.schema(", ".join(f"`{name}` {kind}" for name, kind in fields)).json(_files(args))


def _changes(args: argparse.Namespace) -> Any:
    """Return changes in the order of the files, those of a directory by name; Spark alone reads the largest first."""
    from pyspark.sql.functions import monotonically_increasing_id

    kind, schema = _format(args), _subscriptions(args).schema
    reader = _session(args).read.schema(schema).options(**(_CSV if kind == CSV else {}))
    parts = []
    for file in _files(args):
        lines = reader.format("json" if kind == JSONL else kind).load(file)
        place = {"_file": lines["_metadata.file_path"], "_line": monotonically_increasing_id()}
        parts.append(lines.withColumns(place).orderBy(*place).drop(*place))
    return functools.reduce(lambda before, after: before.unionAll(after), parts)


def _events(args: argparse.Namespace) -> tuple[Any, str]:
    """Return events, and the column that identifies them."""
    kind = _format(args)
    reader = _session(args).read
    key = getattr(args, "key", None)
    if kind == JSONL:
        if args.event is not None:
            raise CannotRunError("each line of JSON Lines is an event: --event is for columns")
        lines = _lines(reader.text(_files(args)))
        return (_numbered(lines), "id") if key is None else (_with_attribute(lines, key), key)
    files = _files(args)
    table = reader.csv(files, inferSchema=True, **_CSV) if kind == CSV else reader.parquet(*files)
    if key is None and "id" not in table.columns:
        return _numbered(table), "id"
    return table, key or "id"


def _event_stream(args: argparse.Namespace) -> tuple[Any, str]:
    """Return a stream of events from a directory, and the column that identifies them."""
    kind, key = _format(args), args.key or "id"
    if len(args.files) != 1 or not _paths().local_path(args.files[0]).is_dir():
        raise CannotRunError("a stream reads one directory, in which files arrive")
    path = _readable(args.files[0])
    session = _session(args)
    reader = session.readStream
    if args.most_files is not None:
        reader = reader.option("maxFilesPerTrigger", args.most_files)
    if kind == JSONL:
        if args.event is not None:
            raise CannotRunError("each line of JSON Lines is an event: --event is for columns")
        lines = _with_attribute(_lines(reader.text(path)), key)
        return (lines if args.time is None else _with_attribute(lines, args.time, "timestamp")), key
    reader = reader.schema(_columns(session, kind, path, f"{_absolute(args.checkpoint)}/{_COLUMNS}"))
    return (reader.csv(path, **_CSV) if kind == CSV else reader.parquet(path)), key


def _columns(session: Any, kind: str, path: str, kept: str) -> Any:
    """Return the columns of events: as stored when the stream first started, or else as in the present files.

    After a restart there are more files, from which Spark might infer other types.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import StructType

    try:
        found = session.read.text(kept, wholetext=True).first()
    except AnalysisException:
        found = None
    if found is not None:
        return StructType.fromJson(json.loads(found.value))
    reader = session.read
    table = reader.csv(path, inferSchema=True, **_CSV) if kind == CSV else reader.parquet(path)
    document = session.createDataFrame([(table.schema.json(),)], "value string")
    document.coalesce(1).write.mode("overwrite").text(kept)
    return table.schema


def _lines(table: Any) -> Any:
    """Return the lines that are not blank as events."""
    return table.toDF("event").where("trim(event) != ''")


def _numbered(table: Any) -> Any:
    from pyspark.sql.functions import monotonically_increasing_id

    return table.withColumn("id", monotonically_increasing_id())


def _with_attribute(lines: Any, name: str, kind: str = "string") -> Any:
    """Return events with one of their attributes as a column."""
    from pyspark.sql.functions import get_json_object

    return lines.withColumn(name, get_json_object("event", f"$['{name}']").cast(kind))
