"""Domains as tables for encoding whole batches, made when needed and kept while the domains do not change."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from siftline.encoding.domains import Domains, prefixes_of
from siftline.encoding.flat_domains import flatten
from siftline.encoding.path_hash import build_path_hash
from siftline.kernels.locate import FlatDomains

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from siftline.encoding.domain import Domain
    from siftline.encoding.path_hash import PathHash

# Encoding an event from Python objects takes as long as laying this many constants into flat arrays.
_CONSTANTS_PER_EVENT: Final = 64


class DomainTables:
    """What encoding needs of some domains at one version; each part is made when it is first asked for.

    Laying out 30,000 attributes with 100 constants each takes one to two seconds, and every new constant makes it
    necessary again. So the lines of single attributes are kept apart, and carried over from version to version if they
    are still the same; and after a change `is_worth_flattening` waits until enough events have come.
    """

    def __init__(self, domains: Domains, previous: DomainTables | None) -> None:
        # Not the domains themselves: they are the weak key under which this object is kept.
        self.version = domains.version
        self.ids = domains.ids
        self._domains = domains.domains
        self._lock = threading.Lock()
        self._flat: FlatDomains | None = None
        self._path_hash: PathHash | None = None
        self._path_attributes: NDArray[np.int32] | None = None
        self._prefixes: frozenset[str] | None = None
        self._singles: dict[int, _Single] = previous._singles if previous else {}
        self._n_constants: int = previous._n_constants if previous else sum(map(_size, self._domains))
        self._n_waiting = 0

    @property
    def flat(self) -> FlatDomains:
        """All attributes as flat arrays."""
        with self._lock:
            if self._flat is None:
                self._flat = _flattened(self._domains)
                self._n_constants = self._flat.numbers.size + self._flat.heads.size
            return self._flat

    @property
    def path_hash(self) -> PathHash:
        """The paths of all attributes, for the JSON parser; `path_attributes` says which attribute each of them is."""
        with self._lock:
            if self._path_hash is None:
                self._path_hash = build_path_hash(list(self.ids))
            return self._path_hash

    @property
    def path_attributes(self) -> NDArray[np.int32]:
        """The attribute at each path of `path_hash`; pattern attributes are between them and have none."""
        with self._lock:
            if self._path_attributes is None:
                self._path_attributes = np.fromiter(self.ids.values(), dtype=np.int32, count=len(self.ids))
            return self._path_attributes

    @property
    def prefixes(self) -> frozenset[str]:
        """What stands before a dot in the path of an attribute."""
        with self._lock:
            if self._prefixes is None:
                self._prefixes = prefixes_of(self.ids)
            return self._prefixes

    def is_worth_flattening(self, n_events: int) -> bool:
        """Tell whether `flat` is there, or would take no longer than the events since the last change did without."""
        with self._lock:
            self._n_waiting += n_events
            return self._flat is not None or self._n_waiting * _CONSTANTS_PER_EVENT >= self._n_constants

    def single(self, attribute: int) -> FlatDomains:
        """Return the lines of one attribute, as attribute 0."""
        domain = self._domains[attribute]
        single = self._singles.get(attribute)
        if single is None or not single.is_current(domain, self.version):
            # Two threads may both come here: they make the same, and one of them is kept.
            single = self._singles[attribute] = _Single(domain, self.version)
        return single.flat

    def several(self, attributes: Sequence[int]) -> FlatDomains:
        """Return the lines of some attributes, numbered as they are given."""
        return _flattened([self._domains[attribute] for attribute in attributes])


class _Single:
    """The lines of one attribute as flat arrays, with what they were made from."""

    __slots__ = ("_lines", "_version", "flat")

    def __init__(self, domain: Domain, version: int) -> None:
        self._version = version
        self._lines = _copied_lines(domain)
        self.flat = _flattened([domain])

    def is_current(self, domain: Domain, version: int) -> bool:
        if self._version != version:
            if self._lines != _copied_lines(domain):
                return False
            self._version = version
        return True


def _copied_lines(domain: Domain) -> tuple[list[Any], list[int], list[Any], list[int]]:
    numbers, strings = domain.numbers, domain.strings
    return numbers.keys.copy(), numbers.labels.copy(), strings.keys.copy(), strings.labels.copy()


def _size(domain: Domain) -> int:
    return len(domain.numbers.keys) + len(domain.strings.keys)


def _flattened(domains: list[Domain]) -> FlatDomains:
    part = Domains()
    part.domains = domains
    return FlatDomains(*(read_only(array) for array in flatten(part)))


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view: to the compiler a writable array is another type, for which it compiles again."""
    view = array.view()
    view.flags.writeable = False
    return view


_tables: WeakKeyDictionary[Domains, DomainTables] = WeakKeyDictionary()
_tables_lock = threading.Lock()


def tables_of(domains: Domains) -> DomainTables:
    """Return the tables for the domains as they are now; as long as they do not change, the same ones."""
    with _tables_lock:
        tables = _tables.get(domains)
        if tables is None or tables.version != domains.version:
            tables = _tables[domains] = DomainTables(domains, tables)
        return tables
