"""Runs a command and notes how many seconds it took, for the table of `make structure`.

Usage: `python tools/timed.py check make check-parts`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

# `tools/structure.py` reads this file.
TIMES = Path(__file__).parent.parent / ".venv" / "times.json"


def main() -> int:
    """Run the command; note its time only if it succeeds."""
    name, *command = sys.argv[1:]
    begin = time.monotonic()
    status = subprocess.run(command, check=False).returncode
    if status == 0:
        times = json.loads(TIMES.read_text(encoding="utf-8")) if TIMES.exists() else {}
        TIMES.write_text(json.dumps(times | {name: round(time.monotonic() - begin)}), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
