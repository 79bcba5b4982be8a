"""Collects the attributes of a sample of events, with their types and values."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from siftline.language.printer import to_text
from siftline.language.tokens import quoted, write_path
from siftline.model import POSITIVE_OF, Predicate, instant_of_text, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from siftline.model import Event

# Distinct strings that are kept per attribute: enough to find the right spelling of a typo.
_MAX_STRINGS: Final = 1000


@dataclass
class SeenAttribute:
    """The values of one attribute."""

    n_events: int = 0
    kinds: set[str] = field(default_factory=set)
    strings: dict[str, None] = field(default_factory=dict)
    smallest: float | int | None = None
    largest: float | int | None = None

    @property
    def has_values(self) -> bool:
        """Whether there were values other than nulls and empty arrays."""
        return bool(self.kinds)

    def take(self, value: Any) -> None:
        """Add one value that is not null."""
        kind = kind_of(value)
        self.kinds.add(kind)
        if kind == "number":
            self.smallest = value if self.smallest is None else min(self.smallest, value)
            self.largest = value if self.largest is None else max(self.largest, value)
        elif kind == "string":
            if len(self.strings) < _MAX_STRINGS:
                self.strings[value] = None
            if instant_of_text(value) is not None:
                self.kinds.add("timestamp")  # as well


class Seen:
    """All attributes of a sample of events."""

    def __init__(self) -> None:
        self.attributes: dict[str, SeenAttribute] = {}
        self.compared: set[str] = set()  # attributes on the right of comparisons, where quotes are easily forgotten
        self.n_events = 0
        self._close = lru_cache(maxsize=65536)(self._close_string)
        self._meant = lru_cache(maxsize=65536)(self._meant_path)

    def take(self, event: Event) -> None:
        """Add one event."""
        self.n_events += 1
        for path, leaves in event.leaves.items():
            attribute = self.attributes.get(path)
            if attribute is None:
                attribute = self.attributes[path] = SeenAttribute()
            attribute.n_events += 1
            for leaf in leaves:
                if leaf is not None:
                    attribute.take(leaf)

    def reason(self, predicate: Predicate) -> Finding:
        """Return why a condition on an attribute is true for none of the events."""
        path = predicate.attribute or ""
        name = write_path(path)
        attribute = self.attributes.get(path)
        if predicate.operand is None and attribute is not None:
            return Finding("never-true", f"no event satisfies {to_text(predicate)}")
        if attribute is None or not attribute.has_values:
            return self._unseen(path, name, attribute)
        wanted = {kind_of(constant) for constant in predicate.constants()}
        if not wanted & attribute.kinds:
            return _wrong_kind(name, attribute, sorted(wanted))
        return self._unseen_value(predicate, name, attribute)

    def unseen(self, paths: Iterable[str]) -> tuple[Finding, ...]:
        """Return a finding for each attribute that no event has."""
        absent = (path for path in dict.fromkeys(paths) if path not in self.attributes)
        return tuple(self._unseen(path, write_path(path), None) for path in absent)

    def _unseen(self, path: str, name: str, attribute: SeenAttribute | None) -> Finding:
        below = next((other for other in self.attributes if other.startswith(f"{path}.")), None)
        if below is not None:
            return Finding("unseen-attribute", f"{name} is an object in these events", f"did you mean {below!r}?")
        if attribute is not None:
            return Finding("unseen-attribute", f"{name} has no value in any event")
        meant = self._meant(path)
        hint = f"did you mean {meant!r}?" if meant else None
        if path in self.compared:
            hint = f"a string needs quotes: {quoted(path, chr(39))}"
        return Finding("unseen-attribute", f"no event has the attribute {name}", hint)

    def _meant_path(self, path: str) -> str | None:
        longer = next((other for other in self.attributes if other.endswith(f".{path}")), None)
        return longer or _closest(path, tuple(self.attributes))

    def _unseen_value(self, predicate: Predicate, name: str, attribute: SeenAttribute) -> Finding:
        text = _shortened(to_text(predicate))
        constants = [value for value in predicate.constants() if isinstance(value, str)]
        if constants and POSITIVE_OF.get(predicate.op, predicate.op) in ("=", "in"):
            for constant in constants[:20]:
                close = self._close(predicate.attribute or "", constant)
                if close is not None:
                    hint = f"did you mean {quoted(close, chr(39))}?"
                    return Finding("likely-typo", f"{name} is never {_shortened(quoted(constant, chr(39)))}", hint)
        if not constants and attribute.smallest is not None:
            seen = f"{attribute.smallest!r} to {attribute.largest!r}"
            return Finding("never-true", f"no event satisfies {text}: {name} is seen from {seen}")
        return Finding("never-true", f"no event satisfies {text}")

    def _close_string(self, path: str, text: str) -> str | None:
        return _closest(text, tuple(self.attributes[path].strings))


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a subscription can never match, or what is suspicious about it: a kind, a sentence, and a hint."""

    kind: str
    reason: str
    hint: str | None = None

    def __str__(self) -> str:
        return self.reason + (f"; {self.hint}" if self.hint else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as a JSON document."""
        return {"kind": self.kind, "reason": self.reason, "hint": self.hint}


def _wrong_kind(name: str, attribute: SeenAttribute, wanted: list[str]) -> Finding:
    needed = " or ".join(f"a {kind}" for kind in wanted)
    found = " or ".join(f"a {kind}" for kind in sorted(attribute.kinds - {"timestamp"}))
    hint = None
    if wanted == ["number"] and attribute.kinds == {"string"}:
        hint = "constants in quotes are strings"
    elif wanted == ["timestamp"] and attribute.kinds == {"string"}:
        return Finding("wrong-kind", f"{name} is never a time", "a time is written as 2026-01-31T10:00:00Z")
    elif wanted == ["string"]:
        hint = "constants without quotes are numbers and booleans"
    return Finding("wrong-kind", f"{name} is always {found}, never {needed}", hint)


def _closest(word: str, candidates: tuple[str, ...]) -> str | None:
    """Return the candidate that is probably meant, None if there is none."""
    folded = word.casefold()
    for candidate in candidates:
        if candidate != word and candidate.casefold() == folded:
            return candidate
    if len(word) > 100:  # the time of a comparison grows with the square of the length
        return None
    close = difflib.get_close_matches(word, [c for c in candidates if len(c) <= 100], n=1, cutoff=0.75)
    return close[0] if close else None


def _shortened(text: str, width: int = 80) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
