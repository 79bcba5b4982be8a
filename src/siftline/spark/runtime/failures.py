"""Failures: an error in a worker reaches the driver as the text of a traceback, from which it is made again."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from siftline import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

_OURS: Final = re.compile(r"^siftline\.errors\.(\w+): (.+)$", re.MULTILINE)


def own_error(error: Exception) -> errors.SiftlineError | None:
    """Return the error of Siftline that made a job of Spark fail, None if it was another one."""
    found = _OURS.findall(str(error))
    if not found:
        return None
    name, message = found[-1]
    kind = getattr(errors, name, errors.SparkError)
    own: errors.SiftlineError = kind(message)
    return own


@contextmanager
def own_errors(place: str) -> Iterator[None]:
    """Raise errors of Siftline from workers with their own types, and file errors of the JVM as StorageError."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        reason = _file_error(error.java_exception)
        if reason is None:
            raise
        raise errors.StorageError(f"{place} cannot be read or written: {reason}") from error
    except PySparkException as error:
        found = own_error(error)
        if found is None:
            raise
        raise found from error


def _file_error(error: Any) -> str | None:
    """Return the message of an IOException in the JVM, None if the error has another cause."""
    while error is not None:
        kind = error.getClass()
        while kind is not None and kind.getName() != "java.io.IOException":
            kind = kind.getSuperclass()
        if kind is not None:
            return str(error.toString())
        error = error.getCause()
    return None
