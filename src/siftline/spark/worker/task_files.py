"""Files that tasks write beside a job: Parquet and small JSON, on any file system that Arrow knows.

    PATH/run=3f9c1a/part-00007-0-1312.parquet     stage, partition, piece, attempt

A repeated task replaces the files of an earlier attempt. After `coalesce` one task does the work of several partitions,
one after the other and all under its own number; each of them is a piece of the task. A restarted stream repeats a
micro-batch, which may then have other partitions. So the names of its files end with the start of the query that they
belong to, and files of earlier starts are removed.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import StorageError
from siftline.spark.runtime.paths import is_remote
from siftline.spark.runtime.tasks import task_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

PARQUET, JSON = ".parquet", ".json"
# Spark's readers skip files whose names begin with this.
_HIDDEN: Final = "_"


class TaskFolder:
    """The folder of a run, for one task."""

    def __init__(self, path: str, run: str, stage: str, start: str = "") -> None:
        self.path = f"{path}/run={run}"
        with self._named_errors():
            self._files, root = _file_system(path)
        self._folder = f"{root}/run={run}"
        self._stage = stage
        self._start = f"-{start}" if start else ""
        self._partition, self._attempt = task_numbers()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(f"{self.path} cannot be written: {error}") from error

    def opened(self) -> TaskFile:
        """Start a Parquet file."""
        with self._named_errors():
            draft = self._draft()
            return TaskFile(self, draft, self._files.open_output_stream(draft))

    def _draft(self) -> str:
        """Return the temporary name of a file of this task."""
        self._files.create_dir(self._folder, recursive=True)
        return f"{self._folder}/{_HIDDEN}draft-{self._stage}-{self._partition:05d}-{self._attempt}{self._start}"

    def commit(self, draft: str) -> None:
        """Give a finished file its name; it replaces the file of an earlier attempt."""
        with self._named_errors():
            self._files.move(draft, self._new_name("", PARQUET))
            self._remove_earlier_starts()

    def discard(self, draft: str) -> None:
        """Remove an unfinished file."""
        with suppress(OSError):
            self._files.delete_file(draft)

    def write_note(self, kind: str, content: Any) -> None:
        """Write a small JSON document, which readers of the folder do not see."""
        with self._named_errors():
            draft = self._draft()
            with self._files.open_output_stream(draft) as stream:
                stream.write(json.dumps(content).encode("ascii"))
            self._files.move(draft, self._new_name(f"{_HIDDEN}{kind}-", JSON))
            self._remove_earlier_starts()

    def note_names(self, kind: str, stage: str = "") -> list[str]:
        """Return the names of the documents of all tasks of this run, or of a stage."""
        prefix = f"{_HIDDEN}{kind}-{stage}{stage and '-'}"
        return [name for name in self._names() if name.startswith(prefix) and name.endswith(self._start + JSON)]

    def notes(self, kind: str) -> Iterator[Any]:
        """Return the documents of all tasks of this run."""
        for name in self.note_names(kind):
            # A missing document has been replaced by one with another name.
            with suppress(FileNotFoundError), self._files.open_input_stream(f"{self._folder}/{name}") as stream:
                yield json.loads(stream.read())

    def _new_name(self, prefix: str, suffix: str) -> str:
        """Return the name of the next piece of this task, and remove the files of an earlier attempt."""
        task = f"{prefix}{self._stage}-{self._partition:05d}-"
        end = f"-{self._attempt}{self._start}{suffix}"
        names = [name for name in self._names() if name.startswith(task) and name.endswith(self._start + suffix)]
        piece = sum(name.endswith(end) for name in names)
        for name in names:
            if name.startswith(f"{task}{piece}-"):
                self.discard(f"{self._folder}/{name}")
        return f"{self._folder}/{task}{piece}{end}"

    def _names(self) -> list[str]:
        from pyarrow import fs

        return [file.base_name for file in self._files.get_file_info(fs.FileSelector(self._folder))]

    def _remove_earlier_starts(self) -> None:
        """Remove the files of earlier starts; other tasks of this one may do so at the same time."""
        if not self._start:
            return
        for name in self._names():
            if not name.removesuffix(PARQUET).removesuffix(JSON).endswith(self._start):
                self.discard(f"{self._folder}/{name}")


class TaskFile:
    """A Parquet file of one task, under a temporary name until it is finished."""

    def __init__(self, folder: TaskFolder, draft: str, stream: Any) -> None:
        self._folder = folder
        self._draft = draft
        self._stream = stream
        self._writer: Any = None

    def write(self, table: Any) -> None:
        """Add a table."""
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(self._stream, table.schema)
        self._writer.write_table(table)

    def commit(self) -> None:
        """Finish the file."""
        self._close()
        self._folder.commit(self._draft)

    def discard(self) -> None:
        """Remove the file."""
        with suppress(OSError):
            self._close()
        self._folder.discard(self._draft)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._stream.close()


def _file_system(path: str) -> tuple[Any, str]:
    from pyarrow import fs

    if not is_remote(path):
        return fs.LocalFileSystem(), path
    system, root = fs.FileSystem.from_uri(path)
    return system, root
