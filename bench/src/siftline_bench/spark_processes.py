"""What a job costs in all processes together: this one, the JVM below it, and the Python workers below that."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

JAVA, PYTHON = "java", "python"


@dataclass(frozen=True)
class Spent:
    """A result, and the seconds that it took: on the wall clock, and of the processors, by kind of process."""

    result: Any
    seconds: float
    processor: dict[str, float]

    @property
    def processor_seconds(self) -> float:
        """Of all processes together."""
        return sum(self.processor.values())


def spent(work: Callable[[], Any]) -> Spent:
    """Run `work` once."""
    before, begin = processor_seconds(), time.perf_counter()
    result = work()
    seconds, after = time.perf_counter() - begin, processor_seconds()
    return Spent(result, seconds, {kind: max(0.0, after[kind] - before[kind]) for kind in after})


def processor_seconds() -> dict[str, float]:
    """Return the processor seconds so far of this process and of all below it; of ended ones too, if waited for."""
    found = {JAVA: 0.0, PYTHON: 0.0}
    known = _processes()
    for pid in _below(os.getpid(), known):
        found[JAVA if known[pid].name == JAVA else PYTHON] += known[pid].ticks / os.sysconf("SC_CLK_TCK")
    return found


def processes_below(root: int) -> list[int]:
    """Return a process, if it is there, and all that descend from it."""
    known = _processes()
    return _below(root, known) if root in known else []


class _Process(NamedTuple):
    name: str
    parent: int
    ticks: int


def _processes() -> dict[int, _Process]:
    """Return all processes; none where the system does not tell."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            content = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has just ended
        name, fields = content[content.index("(") + 1 : content.rindex(")")], content[content.rindex(")") + 2 :].split()
        found[int(file.parent.name)] = _Process(name, int(fields[1]), sum(map(int, fields[11:15])))
    return found


def _below(root: int, known: dict[int, _Process]) -> list[int]:
    """Return a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for pid, process in known.items():
        children.setdefault(process.parent, []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def mapped_bytes(folder: str) -> tuple[int, int]:
    """Return how many bytes of the files below a folder are resident here, and this process's share of them.

    The second (PSS) divides each page by the number of processes that have it.
    """
    resident, share = 0, 0
    is_inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            is_inside = len(words) > 5 and words[5].startswith(folder)
        elif is_inside and words[0] == "Rss:":
            resident += int(words[1]) << 10
        elif is_inside and words[0] == "Pss:":
            share += int(words[1]) << 10
    return resident, share


def resident_bytes() -> tuple[int, int]:
    """Return how many bytes are resident in this process, and its share of them."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) << 10 for line in lines[1:]}
    return sizes["Rss:"], sizes["Pss:"]
