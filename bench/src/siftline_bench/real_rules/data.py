"""Where rules and events are found, and how events are split.

Events are lines of JSON. The first ones are for statistics, the others for times.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import tarfile
import tempfile
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from siftline.files.formats import open_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RULES_ARCHIVE: Final = "sigma-rules.tar.xz"
EVENT_FILES: Final = ("windows-events.jsonl.xz", "process-events.jsonl.xz", "sigma-regression.tar.xz")
COMMAND_LINE: Final = "CommandLine"
KIND: Final = "EventID"
# Statistics come from at most so many events, and from at most the first half of a file.
MOST_SEEN: Final = 10_000
_ARCHIVES: Final = (".tar", ".tar.xz", ".tar.gz", ".tgz")


@dataclass(frozen=True)
class EventFile:
    """The events of one file, as lines of JSON.

    Attributes
    ----------
    name : str
        The name of the file without its extensions.
    seen, timed : list of bytes
        What statistics come from, and what is timed.
    is_regression : bool
        Whether these are events that rules are tested with, so that each fires one.
    """

    name: str
    seen: list[bytes]
    timed: list[bytes]
    is_regression: bool

    def kinds(self, at_most: int, at_least: int) -> dict[str, list[bytes]]:
        """Return the timed events of the kinds (by EventID) that have most of them, largest kind first."""
        named = [str(json.loads(line).get(KIND, "none")) for line in self.timed]
        largest = [kind for kind, n in Counter(named).most_common(at_most) if n >= at_least]
        return {kind: [line for line, name in zip(self.timed, named, strict=True) if name == kind] for kind in largest}

    def with_command_line(self) -> list[bytes]:
        """Return the timed events that have a command line."""
        key = f'"{COMMAND_LINE}"'.encode()
        return [line for line in self.timed if key in line and json.loads(line).get(COMMAND_LINE) is not None]


@contextlib.contextmanager
def rules_folder(path: Path) -> Iterator[Path]:
    """Give a folder of rules; an archive, or the one in a folder, is unpacked for as long as it is needed."""
    archive = path / RULES_ARCHIVE if path.is_dir() else path
    if not archive.is_file():
        if not path.is_dir():
            raise ValueError(f"{path}: no such folder; --rules names a folder of Sigma rules, or of {RULES_ARCHIVE}")
        yield path
        return
    if not _is_archive(archive):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        with _whole(archive), tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        yield Path(folder)


def event_files(rules: Path) -> list[Path]:
    """Return the files of events that lie beside the archive of rules."""
    found = [rules / name for name in EVENT_FILES if (rules / name).is_file()]
    if not found:
        raise ValueError(f"--events says which events are matched; {rules} has none of {', '.join(EVENT_FILES)}")
    return found


def check_events(path: Path) -> None:
    """Refuse before the work begins a file that is not there."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file of events")


def read_events(path: Path, limit: int | None = None) -> EventFile:
    """Read JSON Lines, compressed or not, or an archive of JSON documents, of which each is an event of Windows."""
    is_archive = _is_archive(path)
    with _whole(path):
        lines = list(islice(_archived(path) if is_archive else _lines(path), limit))
    if len(lines) < 2:
        raise ValueError(f"{path}: {len(lines)} events; some are for statistics, and others are timed")
    n_seen = min(MOST_SEEN, len(lines) // 2)
    return EventFile(path.name.partition(".")[0], lines[:n_seen], lines[n_seen:], is_archive)


def sample(items: Sequence[Any], n: int) -> list[Any]:
    """Return at most so many items, evenly spaced.

    >>> sample(range(10), 4)
    [0, 2, 5, 7]
    """
    return list(items) if len(items) <= n else [items[i * len(items) // n] for i in range(n)]


def _is_archive(path: Path) -> bool:
    return path.name.lower().endswith(_ARCHIVES)


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Say of a damaged file which one it is."""
    try:
        yield
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise ValueError(f"{path}: cannot be unpacked: {error}") from None


def _lines(path: Path) -> Iterator[bytes]:
    with _open_lines(path) as lines:
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if text:
                _check_object(text, f"{path}, line {number}")
                yield text


def _open_lines(path: Path) -> contextlib.AbstractContextManager[IO[bytes]]:
    return lzma.open(path) if path.suffix == ".xz" else open_bytes(str(path))


def _check_object(text: bytes, place: str) -> None:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{place}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{place}: an event is a JSON object")


def _archived(path: Path) -> Iterator[bytes]:
    with tarfile.open(path) as archive:
        members = sorted(archive.getmembers(), key=lambda member: member.name)
        for member in members:
            file = archive.extractfile(member) if member.name.endswith(".json") else None
            if file is not None:
                yield from _flattened(file.read(), f"{path}, {member.name}")


def _flattened(content: bytes, place: str) -> Iterator[bytes]:
    try:
        for document in documents(content.decode()):
            yield json.dumps(flat(document), ensure_ascii=False).encode()
    except ValueError as error:
        raise ValueError(f"{place}: not JSON: {error}") from None
    except (LookupError, TypeError, AttributeError):
        raise ValueError(f"{place}: an event of Windows has Event.System with EventID and Provider") from None


def documents(text: str) -> Iterator[Any]:
    """Yield JSON documents that stand one after the other."""
    decoder, start = json.JSONDecoder(), 0
    while text[start:].strip():
        start += len(text[start:]) - len(text[start:].lstrip())
        document, start = decoder.raw_decode(text, start)
        yield document


def flat(document: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an event of Windows as rules name them: without their section, and without spaces.

    >>> flat({"Event": {"System": {"EventID": 1, "Provider": {"#attributes": {"Name": "p"}}}, "EventData": {"A B": 2}}})
    {'EventID': 1, 'Provider_Name': 'p', 'AB': 2}
    """
    system = document["Event"]["System"]
    event = {name: value for name, value in system.items() if not isinstance(value, dict)}
    event["Provider_Name"] = system["Provider"]["#attributes"]["Name"]
    if isinstance(system["EventID"], dict):
        event["EventID"] = system["EventID"]["#text"]
    sections = [document["Event"].get("EventData") or {}, *(document["Event"].get("UserData") or {}).values()]
    for section in sections:
        event |= {name.replace(" ", ""): value for name, value in section.items() if not isinstance(value, dict)}
    return event
