"""What a running broker does by itself, every second: hear of other processes, purge, compact, tend the log."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_TICK_SECONDS: Final = 1.0


class Upkeep:
    """A thread that takes steps until it is stopped.

    Parameters
    ----------
    steps : callable
        Returns what is to be done each time, in order.
    """

    def __init__(self, steps: Callable[[], Iterable[Callable[[], object]]]) -> None:
        self._steps = steps
        self._failures: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="siftline-broker", daemon=True)
        self._thread.start()

    @property
    def is_stopping(self) -> bool:
        """Whether it is about to end: long steps look at it."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Finish the step that is under way, and take no more."""
        self._stopping.set()
        self._thread.join()

    def failures(self) -> list[str]:
        """Return why steps went wrong when they were last taken."""
        return list(self._failures.values())

    def _tick(self) -> None:
        while not self._stopping.wait(_TICK_SECONDS):
            for step in self._steps():
                # A full disk must not end this thread, nor one step keep the others from their turn: a key that was
                # revoked must not live on because nothing can be written.
                try:
                    step()
                except Exception as error:
                    self._failures[step.__name__] = str(error) or repr(error)
                else:
                    self._failures.pop(step.__name__, None)
