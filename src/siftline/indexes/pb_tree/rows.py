"""The subscriptions of `pb-tree`: rows by the number of their first clause, numbers by id, and free numbers.

    rows     12 -> 2.5, 2 clauses, "ann", "a = 1 or b = 2"        its clauses are 12 and 13
    ids      "ann" -> 12
    free     (2 clauses, 40)                                      numbers 40 and 41 are reused together

These are three plain B+trees in the same file as the predicates. A clause belongs to the last row at or before it.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from siftline.indexes.pb_tree.bulk import load_tree
from siftline.indexes.pb_tree.kernels import find
from siftline.indexes.pb_tree.nodes import Tree, key_at, largest_item, largest_key, n_items, value_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from siftline.storage.pages import Page, PageFile

Id = int | str

_SLOT: Final = struct.Struct(">I")
_FREE: Final = struct.Struct(">II")
# Of a row: weight, number of clauses, is its id text, has it a tenant, does the rest stand in a blob, lengths of both.
_HEAD: Final = struct.Struct("<dI???II")
_BLOB: Final = struct.Struct("<IQ")
_INTEGERS: Final = 2**63


class Row(NamedTuple):
    """A subscription as it is kept."""

    id: Id
    weight: float
    text: str
    tenant: str | None = None


class Rows:
    """All subscriptions; `state` has the numbers that open them again."""

    def __init__(self, pages: PageFile, state: dict[str, int]) -> None:
        self._pages = pages
        self._largest_item = largest_item(pages.page_bytes)
        self._longest_id = largest_key(pages.page_bytes)
        self._rows = Tree(pages, state.get("rows", 0))
        self._ids = Tree(pages, state.get("ids", 0))
        self._free = Tree(pages, state.get("free", 0))
        self.n_slots: int = state.get("n_slots", 0)

    @property
    def state(self) -> dict[str, int]:
        """Roots, and how many numbers were given out."""
        return {
            "rows": self._rows.root,
            "ids": self._ids.root,
            "free": self._free.root,
            "n_slots": self.n_slots,
        }

    # looking up

    def slot(self, id: Id) -> int | None:
        """Return the number of the first clause of a subscription; None if there is no such id."""
        if isinstance(id, int) and not -_INTEGERS <= id < _INTEGERS:
            return None
        value = self._ids.get(self._id_key(id))
        return None if value is None else int(_SLOT.unpack(value)[0])

    def row(self, slot: int) -> tuple[Row, int]:
        """Return a subscription and how many clauses it has."""
        value = self._rows.get(_SLOT.pack(slot))
        assert value is not None
        return self._unpacked(value)[:2]

    def __iter__(self) -> Iterator[tuple[int, Row, int]]:
        """Yield slot, subscription and number of clauses of all, in the order of slots."""
        for key, value in self._rows.items():
            yield int(_SLOT.unpack(key)[0]), *self._unpacked(value)[:2]

    def owners(self, clauses: NDArray[np.int64]) -> Iterator[tuple[int, Row]]:
        """Yield the subscription of each clause, with its slot; clauses ascend, so that most are on the same page."""
        page: Page = None
        for clause in clauses.tolist():
            key = _SLOT.pack(clause)
            position = -1 if page is None else _last_below(page, key)
            if position < 0:
                place = self._rows.place(key)
                page = self._pages.read(place.number)
                position = place.position if place.is_found else place.position - 1
            if position >= 0:
                slot, value = key_at(page, position), value_at(page, position)
            else:
                floor = self._rows.floor(key)
                assert floor is not None
                slot, value = floor
            yield int(_SLOT.unpack(slot)[0]), self._unpacked(value)[0]

    # changes

    def new_slot(self, n: int) -> int:
        """Return the first of n consecutive numbers, reused ones if possible."""
        found = self._free.floor(_FREE.pack(n, 0xFFFFFFFF))
        if found is not None:
            size, slot = _FREE.unpack(found[0])
            if size == n:
                self._free.delete(found[0])
                return int(slot)
        slot, self.n_slots = self.n_slots, self.n_slots + n
        return slot

    def put(self, slot: int, row: Row, n_clauses: int) -> None:
        """Keep a subscription."""
        self._rows.put(_SLOT.pack(slot), self._packed(row, n_clauses))
        self._ids.put(self._id_key(row.id), _SLOT.pack(slot))

    def load(self, rows: list[tuple[int, Row, int]]) -> None:
        """Keep many subscriptions, given in the order of their slots; there must be none before."""
        self._free.clear()
        load_tree(self._rows, ((_SLOT.pack(slot), self._packed(row, n)) for slot, row, n in rows))
        load_tree(self._ids, sorted((self._id_key(row.id), _SLOT.pack(slot)) for slot, row, _ in rows))

    def remove(self, slot: int) -> None:
        """Remove a subscription, and free its numbers."""
        value = self._rows.get(_SLOT.pack(slot))
        assert value is not None
        row, n_clauses, blob = self._unpacked(value)
        self._rows.delete(_SLOT.pack(slot))
        self._ids.delete(self._id_key(row.id))
        if blob:
            self._pages.free_blob(blob)
        self._free.put(_FREE.pack(max(1, n_clauses), slot), b"")
        if not self._rows.root:
            self._free.clear()
            self.n_slots = 0

    # bytes

    def _id_key(self, id: Id) -> bytes:
        """Return the key of an id; for a long id, its hash."""
        if isinstance(id, int):
            return struct.pack(">Q", id + _INTEGERS)
        text = _bytes(id)
        if len(text) < self._longest_id:
            return b"\0" + text
        return b"\1" + hashlib.sha256(text).digest()

    def _packed(self, row: Row, n_clauses: int) -> bytes:
        id = _bytes(row.id) if isinstance(row.id, str) else struct.pack("<q", row.id)
        tenant = _bytes(row.tenant or "")
        body = id + tenant + _bytes(row.text)
        is_long = _HEAD.size + len(body) + 16 > self._largest_item
        kinds = isinstance(row.id, str), row.tenant is not None, is_long
        head = _HEAD.pack(row.weight, n_clauses, *kinds, len(id), len(tenant))
        return head + (_BLOB.pack(self._pages.write_blob(body), len(body)) if is_long else body)

    def _unpacked(self, value: bytes) -> tuple[Row, int, int]:
        """Return a subscription, how many clauses it has, and the first page of its blob, or 0."""
        weight, n_clauses, is_text, has_tenant, is_long, n_id, n_tenant = _HEAD.unpack_from(value)
        body, blob = value[_HEAD.size :], 0
        if is_long:
            blob, n_bytes = _BLOB.unpack(body)
            body = self._pages.read_blob(blob, n_bytes)
        id: Id = _string(body[:n_id]) if is_text else struct.unpack("<q", body[:n_id])[0]
        tenant = _string(body[n_id : n_id + n_tenant]) if has_tenant else None
        return Row(id, weight, _string(body[n_id + n_tenant :]), tenant), n_clauses, blob

    def check(self, n_subscriptions: int) -> None:
        """Assert that the three trees agree."""
        assert self._rows.check() == self._ids.check() == n_subscriptions
        n_used = 0
        for slot, row, n in self:
            assert self.slot(row.id) == slot
            n_used += max(1, n)
        self._free.check()
        n_free = sum(_FREE.unpack(key)[0] for key, _ in self._free.items())
        assert n_used + n_free == self.n_slots


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _string(text: bytes) -> str:
    return text.decode("utf-8", "surrogatepass")


def _last_below(page: Page, key: bytes) -> int:
    """Return the last item not above a key; -1 if it may be on another page."""
    position, is_found = find(page, key)
    if is_found:
        return position
    return -1 if position == n_items(page) else position - 1
