"""What encoding whole batches needs beside the domains, made when needed and kept while the domains do not change."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, ref

import numpy as np

from siftline.encoding.domains import ANY_STRING, Domains, prefixes_of
from siftline.encoding.flat_domains import flatten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from siftline.encoding.flat_domains import Base
    from siftline.encoding.path_hash import Paths

# Encoding an event from Python objects takes as long as merging this many constants into flat arrays.
_CONSTANTS_PER_EVENT: Final = 512


class DomainTables:
    """What encoding needs of some domains at one version; each part is made when it is first asked for.

    New constants are merged into the flat arrays for a batch of many events. For a small one that would take longer
    than the events: then they are looked for on their own (`is_worth_merging`, `line_of`).
    """

    def __init__(self, domains: Domains) -> None:
        self.version = domains.version
        self.ids = domains.ids
        # Weak, because the domains are the weak key under which this object is kept.
        self._domains = ref(domains)
        self._lock = threading.Lock()
        self._path_attributes: NDArray[np.int32] | None = None
        self._prefixes: frozenset[str] | None = None
        self._alone: dict[int, Base] = {}
        self._n_waiting = 0

    @property
    def domains(self) -> Domains:
        """The domains."""
        domains = self._domains()
        assert domains is not None
        return domains

    @property
    def base(self) -> Base:
        """All attributes as flat arrays."""
        with self._lock:
            domains = self.domains
            if domains.lines[1] or domains.lines[0].n_attributes < len(domains):
                domains.merge()
            return domains.lines[0]

    @property
    def path_hash(self) -> Paths:
        """The paths of all attributes, for the JSON parser; `path_attributes` says which attribute each of them is."""
        with self._lock:
            return self.domains.paths()

    @property
    def path_attributes(self) -> NDArray[np.int32]:
        """The attribute at each path of `path_hash`; pattern attributes are between them and have none.

        One behind the last is for strings at other paths.
        """
        with self._lock:
            if self._path_attributes is None:
                self._path_attributes = np.array([*self.ids.values(), ANY_STRING], dtype=np.int32)
            return self._path_attributes

    @property
    def prefixes(self) -> frozenset[str]:
        """What stands before a dot in the path of an attribute."""
        with self._lock:
            if self._prefixes is None:
                self._prefixes = prefixes_of(self.ids)
            return self._prefixes

    def is_worth_merging(self, n_events: int) -> bool:
        """Tell whether `base` is there, or would take no longer than the events since the last change did without."""
        domains = self.domains
        with self._lock:
            self._n_waiting += n_events
            return not domains.lines[1] or self._n_waiting * _CONSTANTS_PER_EVENT >= domains.n_constants

    def line_of(self, attribute: int) -> tuple[Base, int]:
        """Return flat arrays that have all constants of an attribute, and its number in them."""
        base, changed = self.domains.lines
        if attribute not in changed and attribute < base.n_attributes:
            return base, attribute
        alone = self._alone.get(attribute)
        if alone is None:
            # Two threads may both come here: they make the same, and one of them is kept.
            alone = self._alone[attribute] = flatten([self.domains.domains[attribute]])
        return alone, 0

    def several(self, attributes: Sequence[int]) -> Base:
        """Return the lines of some attributes, numbered as they are given."""
        domains = self.domains.domains
        return flatten([domains[attribute] for attribute in attributes])


_tables: WeakKeyDictionary[Domains, DomainTables] = WeakKeyDictionary()
_tables_lock = threading.Lock()


def tables_of(domains: Domains) -> DomainTables:
    """Return the tables for the domains as they are now; as long as they do not change, the same ones."""
    with _tables_lock:
        tables = _tables.get(domains)
        if tables is None or tables.version != domains.version:
            tables = _tables[domains] = DomainTables(domains)
        return tables
