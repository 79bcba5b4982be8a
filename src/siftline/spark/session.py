"""session: a local Spark session that suits Siftline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from siftline.spark.runtime.sessions import DEFAULT_MEMORY, DEFAULT_NAME, local_session
from siftline.spark.runtime.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SETTINGS", "session"]


def session(
    cores: int | None = None,
    *,
    memory: str = DEFAULT_MEMORY,
    name: str = DEFAULT_NAME,
    short_lived: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Any:
    """Return the Spark session that is running, or start one on this machine.

    Parameters
    ----------
    cores : int, optional
        How many tasks run at a time; by default all cores.
    memory : str
        The memory of the JVM only. Indexes are mapped files, which the workers share.
    name : str
        The name of the application.
    short_lived : bool
        Start quickly, for tests and jobs of a few seconds.
    settings : mapping, optional
        More settings of Spark; they override those of Siftline (`SETTINGS`).
    """
    return local_session(cores, memory=memory, name=name, short_lived=short_lived, settings=settings)
