"""How much memory the rules take: measured in a process of their own.

    python -m siftline_bench.real_rules.memory FILE

FILE has pickled statistics, pairs of id and expression, and events. The process prints, as JSON, the bytes that it has
resident after its imports, after kernels were loaded by a small engine, and with all rules; and the most that it had.
"""

from __future__ import annotations

import ctypes
import gc
import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline.encoding.statistics import Statistics

_SMALL: Final = 50


def measured(rules: Sequence[Any], statistics: Statistics | None, lines: Sequence[bytes]) -> dict[str, int]:
    """Return the bytes of a process that matches events: `imported`, `warm`, `loaded` and `peak`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "work.pickle"
        path.write_bytes(pickle.dumps((statistics, list(rules), list(lines))))
        command = [sys.executable, "-m", __spec__.name, str(path)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, int] = json.loads(output.splitlines()[-1])
    return found


def main(path: str) -> None:
    """Measure this process."""
    found = {"imported": _resident()}
    statistics, rules, lines = pickle.loads(Path(path).read_bytes())
    small = Engine(statistics=statistics)
    small.add_many(rules[:_SMALL])
    _match(small, lines)
    del small
    found["warm"] = _resident()
    engine = Engine(statistics=statistics)
    engine.add_many(rules)
    engine.settle()
    del rules, statistics
    _match(engine, lines)
    found["loaded"] = _resident()
    found["peak"] = _status("VmHWM")
    print(json.dumps(found))


def _match(engine: Engine, lines: Sequence[bytes]) -> None:
    engine.match_batch(list(lines), threads=1)
    for line in lines:
        engine.match(line)


def _resident() -> int:
    """Return the bytes in use, without those that the allocator has kept for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise ValueError(f"the system does not tell {name}")


if __name__ == "__main__":
    main(sys.argv[1])
