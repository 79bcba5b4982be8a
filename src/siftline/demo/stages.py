"""Times the steps of the demo, and prints when each starts and how long it took."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from siftline.demo.figures import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Stages:
    """Times steps, and prints a line about each."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.done: list[Stage] = []
        self._tell = tell
        self._start = time.perf_counter()

    @contextmanager
    def stage(self, name: str, what: str, amount: int = 0, unit: str = "") -> Iterator[Stage]:
        """Time one step; its amount may also be set while it runs."""
        self.tell(f"{name}: {what} ...")
        start = time.perf_counter()
        stage = Stage(name, 0.0, amount, unit)
        yield stage
        stage.seconds = time.perf_counter() - start
        self.done.append(stage)
        rate = f" ({stage.rate:,.0f} {unit}/s)" if stage.rate else ""
        self.tell(f"{name}: {stage.seconds:.1f} s{rate}")

    def tell(self, text: str) -> None:
        """Print a text with the time since the start."""
        self._tell(f"[{time.perf_counter() - self._start:6.1f} s] {text}")
