"""Prints how many of the lines of each folder the tests have run; `make coverage` runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Print a table: folder, lines, share that was run."""
    command = [sys.executable, "-m", "coverage", "json", "-q", "-o", "-"]
    files = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)["files"]
    lines: Counter[str] = Counter()
    run: Counter[str] = Counter()
    for name, found in files.items():
        folder = (*Path(name).relative_to("src/siftline").parts[:-1], "")[0] or "(front door)"
        for key in (folder, "all"):
            lines[key] += found["summary"]["num_statements"]
            run[key] += found["summary"]["covered_lines"]
    print(f"{'folder':16}{'lines':>8}{'run':>8}")
    for folder in sorted(lines, key=lambda each: (each == "all", each)):
        print(f"{folder:16}{lines[folder]:>8,}{run[folder] / max(1, lines[folder]):>8.1%}")


if __name__ == "__main__":
    main()
