"""Sigma rules over a folder of logs: what fires, how often, and which rules can never fire on these logs.

    python examples/sigma_logs.py [rules] [logs.jsonl]

Without arguments it writes three rules and some generated logs into a temporary folder, and uses those.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import siftline
from siftline.sigma import read_rules

RULES = {
    "shell.yml": """
title: Shell started by an office program
id: 1f1e7b1e-3f8c-4f35-9a3b-3c7b5c1f0a01
level: high
logsource: {category: process_creation, product: windows}
detection:
  shell:
    Image|endswith: ['\\cmd.exe', '\\powershell.exe']
    ParentImage|endswith: ['\\winword.exe', '\\excel.exe']
  known: {CommandLine|contains: ' /c ver'}
  condition: shell and not known
""",
    "download.yml": """
title: Download by a script
id: 1f1e7b1e-3f8c-4f35-9a3b-3c7b5c1f0a02
level: medium
logsource: {category: process_creation, product: windows}
detection:
  tool: {Image|endswith: '\\powershell.exe'}
  words: {CommandLine|contains|all: [http, '-outfile']}
  condition: all of them
""",
    "driver.yml": """
title: Driver without a signature
id: 1f1e7b1e-3f8c-4f35-9a3b-3c7b5c1f0a03
level: low
logsource: {category: driver_load, product: windows}
detection:
  unsigned: {Signed: 'false'}
  condition: unsigned
""",
}
IMAGES = ("C:\\Windows\\System32\\cmd.exe", "C:\\Windows\\System32\\WindowsPowerShell\\v1.0\\PowerShell.exe")
PARENTS = ("C:\\Windows\\explorer.exe", "C:\\Program Files\\Office\\WINWORD.EXE", "C:\\Windows\\System32\\svchost.exe")
COMMANDS = ("cmd.exe /c ver", "whoami", "iwr HTTP://files.example/a -OutFile a.ps1", "dir")


def write_samples(folder: Path, n_events: int = 2000) -> tuple[Path, Path]:
    """Write rules and logs into a folder, and return their paths."""
    rules, logs = folder / "rules", folder / "logs.jsonl"
    rules.mkdir()
    for name, text in RULES.items():
        (rules / name).write_text(text, encoding="utf-8")
    draw = random.Random(7)
    with logs.open("w", encoding="utf-8") as file:
        for _ in range(n_events):
            file.write(json.dumps(process_event(draw)) + "\n")
    return rules, logs


def process_event(draw: random.Random) -> dict[str, Any]:
    """Return an event as Sysmon writes it when a process starts."""
    return {
        "Channel": "Microsoft-Windows-Sysmon/Operational",
        "EventID": 1,
        "Image": draw.choice(IMAGES),
        "ParentImage": draw.choice(PARENTS),
        "CommandLine": draw.choice(COMMANDS),
    }


def report(rules_folder: Path, logs: Path) -> None:
    """Match the logs with the rules, and print which rules fired."""
    rules = read_rules(rules_folder)
    parts = ", ".join(f"{part} {seconds:.2f} s" for part, seconds in rules.seconds.items())
    print(f"{len(rules)} rules read ({parts}), {len(rules.refused)} refused")
    for problem in rules.refused:
        print(f"  {problem}")
    engine = siftline.Engine()
    engine.add_many(zip(rules.ids, rules.expressions, rules.weights, strict=True))
    lines = logs.read_bytes().splitlines()
    start = time.perf_counter()
    fired = Counter(engine.match_batch(lines)["subscription"].to_pylist())
    print(f"{len(lines)} events matched in {time.perf_counter() - start:.2f} s")
    about = dict(zip(rules.ids, zip(rules.levels, rules.titles, strict=True), strict=True))
    for id, n in fired.most_common(20):
        print(f"  {n:>6}  {about[id][0]:<13}  {about[id][1]}")
    print(f"{len(rules) - len(fired)} rules did not fire; `siftline check --sigma` says which of them never can")


def main() -> None:
    """Report on what the arguments name, or on samples."""
    if len(sys.argv) == 3:
        report(Path(sys.argv[1]), Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        report(*write_samples(Path(folder)))


if __name__ == "__main__":
    main()
