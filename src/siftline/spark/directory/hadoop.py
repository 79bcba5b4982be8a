"""A folder on any file system that Spark knows, accessed by the driver through the JVM with Hadoop's own client.

A file is created completely or not at all, and only one process can create it. One step of the file system decides: on
a store with conditional writes (S3A reports this capability) the end of the upload, elsewhere the renaming of a
finished draft, which HDFS refuses if a file of that name exists. Some file systems, such as the local one, would
replace the file. On those it is first checked whether the file exists; two processes that do so at the same moment can
both succeed, and the later file wins.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import SparkError, StorageError
from siftline.spark.runtime.sessions import is_connect

if TYPE_CHECKING:
    from collections.abc import Iterator

# `Options.CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE`, since Hadoop 3.4.2.
_ON_CONDITION: Final = "fs.option.create.conditional.overwrite"


class HadoopFolder:
    """A folder by its URI."""

    def __init__(self, uri: str, spark: Any) -> None:
        if is_connect(spark):
            raise SparkError(f"{uri}: only a classic Spark session can reach it, not one of Spark Connect")
        self.uri = uri.rstrip("/")
        self._jvm = spark._jvm
        try:
            root = self._jvm.org.apache.hadoop.fs.Path(self.uri)
            self._files = root.getFileSystem(spark._jsc.hadoopConfiguration())
        except _java_error() as error:
            raise SparkError(f"{uri}: {_reason(error)}") from None

    @contextmanager
    def _named_errors(self, name: str) -> Iterator[None]:
        """Turn errors of the file system into StorageError."""
        try:
            yield
        except _java_error() as error:
            raise StorageError(f"{self.path_of(name)} cannot be read or written: {_reason(error)}") from error

    def path_of(self, name: str) -> str:
        """Return the URI of an entry of the folder."""
        return f"{self.uri}/{name}"

    def encoded(self, name: str) -> str:
        """Return the URI of an entry of the folder, with special characters percent-encoded (RFC 3986)."""
        return str(self._path(name).toUri().toString())

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.path_of(name))

    def names(self, folder: str) -> list[str]:
        """Return the names in a subfolder; none if it does not exist."""
        return list(self._statuses(folder))

    def ages_ms(self, folder: str, now_ms: int) -> dict[str, int]:
        """Return how long ago each entry of a subfolder was last changed."""
        return {name: now_ms - int(status.getModificationTime()) for name, status in self._statuses(folder).items()}

    def _statuses(self, folder: str) -> dict[str, Any]:
        path = self._path(folder)
        with self._named_errors(folder):
            if not self._files.exists(path):
                return {}
            return {status.getPath().getName(): status for status in self._files.listStatus(path)}

    def exists(self, name: str) -> bool:
        """Return whether an entry exists."""
        with self._named_errors(name):
            return bool(self._files.exists(self._path(name)))

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if there is none."""
        path = self._path(name)
        with self._named_errors(name):
            if not self._files.exists(path):
                return None
            stream = self._files.open(path)
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def create(self, name: str, content: bytes) -> bool:
        """Create a file, completely or not at all; return False if it exists."""
        path = self._path(name)
        with self._named_errors(name):
            if self._files.hasPathCapability(path, _ON_CONDITION):
                return self._uploaded(path, content)
            draft = self._path(f"{name}-{uuid.uuid4().hex}.draft")
            _write(self._files.create(draft, False), content)
            try:
                return not self._files.exists(path) and self._is_renamed(draft, path)
            finally:
                self._files.delete(draft, False)

    def _is_renamed(self, draft: Any, path: Any) -> bool:
        try:
            if self._files.rename(draft, path):
                return True
        except _java_error():
            if not self._files.exists(path):
                raise
            return False
        if not self._files.exists(path):
            raise SparkError(f"{path.toString()} cannot be written: the file system refuses to rename a file to it")
        return False

    def _uploaded(self, path: Any, content: bytes) -> bool:
        try:
            _write(self._files.createFile(path).must(_ON_CONDITION, True).recursive().build(), content)
        except _java_error():
            if not self._files.exists(path):
                raise
            return False
        return True

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its contents, if it exists."""
        with self._named_errors(name):
            self._files.delete(self._path(name), True)


def _write(stream: Any, content: bytes) -> None:
    try:
        stream.write(bytearray(content))
    finally:
        stream.close()


def _java_error() -> Any:
    from py4j.protocol import Py4JJavaError

    return Py4JJavaError


def _reason(error: Any) -> str:
    return str(error.java_exception.toString())
