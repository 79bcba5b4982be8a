"""What went wrong in a worker, as an error of ours: Spark hands it on as the text of a traceback."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from siftline import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

_OURS: Final = re.compile(r"^siftline\.errors\.(\w+): (.+)$", re.MULTILINE)


def own_error(error: Exception) -> errors.SiftlineError | None:
    """Return the error of ours that made a job of Spark fail, None if it was another one."""
    found = _OURS.findall(str(error))
    if not found:
        return None
    name, message = found[-1]
    kind = getattr(errors, name, errors.SparkError)
    own: errors.SiftlineError = kind(message)
    return own


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise errors of ours as what they are, whichever process they come from."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        found = own_error(error)
        if found is None:
            raise
        raise found from error
