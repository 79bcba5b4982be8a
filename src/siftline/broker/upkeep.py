"""The background thread of a broker: every second it follows the store, purges, compacts and tends the log."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_TICK_SECONDS: Final = 1.0


class Upkeep:
    """A thread that runs steps every second until it is stopped.

    Parameters
    ----------
    steps : callable
        Returns the steps of one round, in order.
    """

    def __init__(self, steps: Callable[[], Iterable[Callable[[], object]]]) -> None:
        self._steps = steps
        self._failures: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="siftline-broker", daemon=True)
        self._thread.start()

    @property
    def is_stopping(self) -> bool:
        """Whether the thread is about to end; long steps check it."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Finish the round under way, and end the thread."""
        self._stopping.set()
        self._thread.join()

    def failures(self) -> list[str]:
        """Return the errors of the steps whose last run failed."""
        return list(self._failures.values())

    def _tick(self) -> None:
        while not self._stopping.wait(_TICK_SECONDS):
            for step in self._steps():
                # A full disk must not end this thread, and one failing step must not prevent the others: a revoked
                # key, for example, must stop working even if nothing can be written.
                try:
                    step()
                except Exception as error:
                    self._failures[step.__name__] = str(error) or repr(error)
                else:
                    self._failures.pop(step.__name__, None)
