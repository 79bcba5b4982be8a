"""`pb-tree`: predicates in B+trees on disk, one for each attribute; then clauses by counting theirs.

Paper
-----
PB+tree: B. Wang, W. Zhang, M. Kitsuregawa, "Design of Secondary Storage Predicate Index for Publish/Subscribe System".
Numbers below are its sections and figures.

Idea
----
The constants of all predicates on an attribute are the keys of one B+tree. Below its leaves run three lists in key
order: greater-than (`>`, `>=`), less-than (`<`, `<=`) and inequality. What a value satisfies is a beginning of the
first, an end of the second, nearly all of the third, and the ids at its own key. A leaf item has entry pointers into
the lists it is in. Each pointer inside the tree has three flags, which tell whether any item below has an entry in that
list, so a search for the nearest entry never takes a wrong path.

Worked example (Fig. 7, as far as the text tells it)
----------------------------------------------------
                         Root
              Nonleaf 1            Nonleaf 2             flags of the pointer to leaf 2: GT, NEQ, no LT
        leaf 1        leaf 2           leaf 3
        1    2      4   5   6        8   9
        =    <      !=  >=  >        <   =               GT list: 5 6      LT list: 2 8      NEQ list: 4

    value 5     equality     Root, Nonleaf 1, leaf 2: key 5, the `>=` is satisfied by its id there
                inequality   the whole list, for 5 has no entry in it
                GT           leaf 2, entry item 5: from the head up to there, 5 itself not: nothing
                LT           leaf 2 has none, so Nonleaf 1 is the branch node; leaf 1, entry item 2: what follows it, 8
    value 7     GT           leaf 2, entry item 6, the largest: 5 and 6

Pages
-----
All trees and lists are in one file of pages (storage/pages.py); indexes/pb_tree/kernels.py shows a page.
leaf item : key -> flags, page of its node in the GT, LT and NEQ list, ids
list node : key -> flags, ids; a page of a list holds many, and knows the pages before and behind
id : uint64, clause (32 bits), how many predicates it needs (15), is it exact (1), number of the predicate (16)
hits : uint32[n_clauses], the only array in memory: event (16 bits), predicates of the clause satisfied so far (16)
Beside them: subscriptions by the number of their first clause (weight, id, expression as text), numbers by id, free
numbers: plain B+trees in the same file.

Cost
----
A search reads at most four paths, O(log n), and then the pages of what it reports: log_B n + L/B pages, L = satisfied
predicates. Inserting and deleting take O(log n) pages each; splitting or merging a page of a list moves at most a page
of entry pointers, which that many insertions pay for.

Departures
----------
D1  Keys are values, not codes: the engine renumbers codes when a domain grows, and pages on disk could not follow.
    Numbers and strings of one attribute have a tree each, and so have booleans and tests of presence (terms.py).
D2  GetGTEntryItem contradicts itself in the text. The entry item is the nearest flagged one; which nodes of the list
    count is decided by their keys: strictly below the value for GT (`>=` with equality is found in the leaf), strictly
    above for LT.
D3  The inequality list is in key order too: one way to split, merge and find pages for all three.
D4  A pointer leads to the page of a list; the node in it is found by its key. So only keys that change pages need new
    pointers.
D5  Ids that would take more than a fifth of a page are a B+tree of their own instead of chained pages: deleting one
    stays logarithmic.
D6  Heads of nodes are computed from their items after each change, not counted up and down.
D7  The paper leaves out deletion and the second stage. Pages a quarter full are merged; clauses are found by counting,
    with the number that they need in each id, so that nothing else is read for clauses that do not match.
D8  Crash safety, checksums, and subscriptions beside their predicates are ours. To remove a subscription, its
    predicates are derived again from its expression.
D9  Several values for an attribute: ids are collected for all of them, each counts once, and what is found is checked
    on the event itself. So is all that terms cannot express: patterns, `is null`, `any`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from siftline.encoding.terms import EVERY, probes
from siftline.errors import StorageError
from siftline.indexes.pb_tree.bulk import load_predicates
from siftline.indexes.pb_tree.kernels import count
from siftline.indexes.pb_tree.nodes import largest_key
from siftline.indexes.pb_tree.predicates import PredicateTree
from siftline.indexes.pb_tree.rows import Row, Rows
from siftline.storage.pages import PageFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from siftline.encoding.terms import Terms
    from siftline.indexes.pb_tree.rows import Id
    from siftline.model import Leaf

    TermsOf = Callable[[str], list[Terms]]

# The version of how expressions become terms. To remove a subscription, its terms are derived again, so it must match.
_TERMS: Final = 1
# From this many subscriptions on, an addition is sorted, and fills empty trees page by page.
_BULK: Final = 64
# A checkpoint is made when the log has this many bytes; replaying that after a crash takes seconds.
_LONG_LOG: Final = 1 << 20
# A change of more rows is not logged, but made durable by a checkpoint.
_MANY_ROWS: Final = 4096


class Found(NamedTuple):
    """The numbers of clauses whose terms hold, and which of them need no check."""

    clauses: NDArray[np.int64]
    is_sure: NDArray[np.bool_]


class PbTree:
    """Subscriptions and their predicates in a file of pages.

    Parameters
    ----------
    path : str or Path, optional
        The file, and beside it PATH-log. What is there is opened. Without a path: a temporary file.
    buffer_mb : float
        How much of the file may be in memory.
    page_bytes : int
        The size of a page of a new file, a power of two.

    Examples
    --------
    >>> from siftline import Engine
    >>> engine = Engine("pb-tree", buffer_mb=16)
    >>> engine.add("company = 'Yahoo' and price < 1000", id=1)
    1
    >>> engine.match({"company": "Yahoo", "price": 500, "change": 0.1})
    [1]
    """

    name: ClassVar[str] = "pb-tree"

    def __init__(self, *, path: Any = None, buffer_mb: float = 64, page_bytes: int = 8192) -> None:
        if type(buffer_mb) not in (int, float) or not 0 < buffer_mb < 2**30:
            raise ValueError(f"buffer_mb must be a positive number, not {buffer_mb!r}")
        self.pages = PageFile(path, page_bytes=page_bytes, buffer_mb=buffer_mb)
        self.longest_key = largest_key(self.pages.page_bytes)
        self._restore(json.loads(self.pages.state or b"{}"))
        self._hits = np.zeros(self.rows.n_slots + 64, dtype=np.uint32)
        self._epoch = 0
        self._terms_of: TermsOf | None = None
        self._counters = dict.fromkeys(("events", "candidates_examined", "predicates_evaluated", "lists_scanned"), 0)

    def _restore(self, state: dict[str, Any]) -> None:
        """Load the state that a checkpoint saved."""
        if state.get("terms", _TERMS) != _TERMS:
            raise StorageError(f"{self.pages.path} was written by another version, which indexed in another way")
        self._trees: dict[str, dict[str, PredicateTree]] = {}
        for attribute, kind, *numbers in state.get("trees", []):
            self._trees.setdefault(attribute, {})[kind] = PredicateTree(self.pages, numbers)
        self.rows = Rows(self.pages, state)
        self.n_subscriptions: int = state.get("n_subscriptions", 0)
        self.n_clauses: int = state.get("n_clauses", 0)
        self.are_ids_text: bool | None = state.get("are_ids_text")
        self._largest_id: int = state.get("largest_id", -1)

    def _state(self) -> bytes:
        trees = [
            [attribute, kind, *tree.state]
            for attribute, kinds in self._trees.items()
            for kind, tree in kinds.items()
            if tree.n_predicates
        ]
        state = {
            "terms": _TERMS,
            "trees": trees,
            **self.rows.state,
            "n_subscriptions": self.n_subscriptions,
            "n_clauses": self.n_clauses,
            "are_ids_text": self.are_ids_text,
            "largest_id": self._largest_id,
        }
        return json.dumps(state).encode("ascii")

    # durability

    def recover(self, terms_of: TermsOf) -> None:
        """Set how an expression becomes terms, and replay the changes since the last checkpoint."""
        self._terms_of = terms_of
        for payload in self.pages.replay():
            change = json.loads(payload)
            self._apply(change["remove"], [Row(*row) for row in change["add"]])

    def change(self, removed: Sequence[Id], rows: Sequence[Row]) -> None:
        """Remove and add subscriptions atomically and durably; the caller has checked the ids."""
        if not removed and not rows:
            return
        is_logged = len(removed) + len(rows) <= _MANY_ROWS
        if is_logged and self.pages.is_durable:
            payload = {"remove": removed, "add": rows}
            self.pages.append(json.dumps(payload).encode("ascii"))
        self._apply(removed, rows)
        if not is_logged or self.pages.n_log_bytes > _LONG_LOG:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Bring the file up to date."""
        self.pages.checkpoint(self._state())

    def close(self) -> None:
        """Bring the file up to date, and release it for other processes."""
        if self.pages.is_usable:
            self.checkpoint()
        self.pages.close_files()

    # subscriptions

    def slot(self, id: Id) -> int | None:
        """Return the number of the first clause of a subscription; None if there is no such id."""
        if type(id) not in (int, str) or self.are_ids_text is not isinstance(id, str):
            return None
        return self.rows.slot(id)

    def next_id(self) -> int:
        """Return a number that no subscription has had."""
        return max(self._largest_id + 1, 0)

    # changes

    def _apply(self, removed: Sequence[Id], rows: Sequence[Row]) -> None:
        """Change the pages; during a change of many rows, pages may leave the pool."""
        with self.pages.changing():
            for id in removed:
                self._remove(id)
                self.pages.settle()
            if len(rows) >= _BULK:
                self._add_many(rows)
            else:
                for row in rows:
                    self._add(row)
                    self.pages.settle()
        n_slots = self.rows.n_slots
        if not n_slots <= len(self._hits) <= 4 * n_slots + 64:
            self._hits = np.zeros(n_slots + n_slots // 4 + 64, dtype=np.uint32)

    def _clauses_of(self, text: str) -> list[Terms]:
        assert self._terms_of is not None
        return self._terms_of(text)

    def _add(self, row: Row) -> None:
        clauses = self._clauses_of(row.text)
        slot = self.rows.new_slot(max(1, len(clauses)))
        for attribute, kind, key, op, posting in _entries(slot, clauses):
            self._tree(attribute, kind).add(key, op, posting)
        self.rows.put(slot, row, len(clauses))
        self._entered(row.id, len(clauses))

    def _entered(self, id: Id, n_clauses: int) -> None:
        self.n_subscriptions += 1
        self.n_clauses += n_clauses
        self.are_ids_text = isinstance(id, str)
        if isinstance(id, int):
            self._largest_id = max(self._largest_id, id)

    def _add_many(self, rows: Sequence[Row]) -> None:
        """Add to one tree after the other, in the order of keys, so that adjacent pages are in the pool together."""
        is_first = not self.n_subscriptions
        entries: dict[tuple[str, str], list[tuple[bytes, str, int]]] = {}
        numbered = []
        for row in rows:
            clauses = self._clauses_of(row.text)
            slot = self.rows.new_slot(max(1, len(clauses)))
            for attribute, kind, key, op, posting in _entries(slot, clauses):
                entries.setdefault((attribute, kind), []).append((key, op, posting))
            numbered.append((slot, row, len(clauses)))
            self._entered(row.id, len(clauses))
        for (attribute, kind), group in entries.items():
            group.sort()
            self._add_sorted(self._tree(attribute, kind), group)
        if is_first:
            self.rows.load(numbered)
            return
        for slot, row, n_clauses in numbered:
            self.rows.put(slot, row, n_clauses)
            self.pages.settle()

    def _add_sorted(self, tree: PredicateTree, group: list[tuple[bytes, str, int]]) -> None:
        if not tree.n_predicates:
            load_predicates(tree, group)
            return
        for key, op, posting in group:
            tree.add(key, op, posting)
            self.pages.settle()

    def _remove(self, id: Id) -> None:
        slot = self.rows.slot(id)
        assert slot is not None
        row, n_clauses = self.rows.row(slot)
        clauses = self._clauses_of(row.text)
        assert len(clauses) == n_clauses
        for attribute, kind, key, op, posting in _entries(slot, clauses):
            tree = self._trees[attribute][kind]
            tree.remove(key, op, posting)
            if not tree.n_predicates:
                self._forget(attribute, kind)
        self.rows.remove(slot)
        self.n_subscriptions -= 1
        self.n_clauses -= n_clauses

    def _tree(self, attribute: str, kind: str) -> PredicateTree:
        kinds = self._trees.setdefault(attribute, {})
        if kind not in kinds:
            kinds[kind] = PredicateTree(self.pages)
        return kinds[kind]

    def _forget(self, attribute: str, kind: str) -> None:
        del self._trees[attribute][kind]
        if not self._trees[attribute]:
            del self._trees[attribute]

    # matching

    def match(self, leaves: Mapping[str, Sequence[Leaf]], now: int) -> Found:
        """Return the clauses whose terms an event satisfies, in ascending order."""
        self._epoch += 1
        if self._epoch == 1 << 16:
            self._hits[:] = 0
            self._epoch = 1
        found: list[NDArray[np.uint64]] = []
        is_single = True
        if "" in self._trees and EVERY in self._trees[""]:
            for ids in self._trees[""][EVERY].search(b""):
                self._count(ids, found)
        for attribute, values in leaves.items():
            trees = self._trees.get(attribute)
            if trees is None:
                continue
            satisfied = self._satisfied(trees, values, now)
            if len(values) > 1:
                # D9: the same predicate may be satisfied by several values.
                is_single = False
                satisfied = iter([np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *satisfied]))])
            for ids in satisfied:
                self._count(ids, found)
        self._counters["events"] += 1
        postings = np.concatenate([np.empty(0, dtype=np.uint64), *found])
        self._counters["candidates_examined"] += len(postings)
        clauses = (postings & np.uint64(0xFFFFFFFF)).astype(np.int64)
        order = np.argsort(clauses)
        is_exact = (postings >> np.uint64(47)) & np.uint64(1) == 1
        return Found(clauses[order], is_exact[order] & is_single)

    def _satisfied(
        self, trees: Mapping[str, PredicateTree], values: Sequence[Leaf], now: int
    ) -> Iterator[NDArray[np.uint64]]:
        for kind, key in probes(values, now):
            if kind in trees:
                yield from trees[kind].search(key)

    def _count(self, ids: NDArray[np.uint64], found: list[NDArray[np.uint64]]) -> None:
        """Count the ids of one page (the second stage)."""
        complete = np.empty(len(ids), dtype=np.uint64)
        n = count(ids, len(ids), self._hits, self._epoch, complete)
        if n:
            found.append(complete[:n])
        self._counters["predicates_evaluated"] += len(ids)
        self._counters["lists_scanned"] += 1

    # looking in

    def stats(self) -> dict[str, Any]:
        """Return sizes, page reads and writes, and the work that matching has done so far."""
        pages = self.pages.counters()
        return {
            "bytes": {"pages": pages["pages"] * pages["page_bytes"], "hits": self._hits.nbytes},
            "trees": sum(map(len, self._trees.values())),
            "predicates": self._n_predicates(),
            **pages,
            **self._counters,
        }

    def _n_predicates(self) -> int:
        return sum(tree.n_predicates for kinds in self._trees.values() for tree in kinds.values())

    @property
    def attributes(self) -> list[str]:
        """The attributes that predicates are about."""
        return [attribute for attribute, kinds in self._trees.items() if kinds.keys() != {EVERY}]

    def describe(self) -> str:
        """Return a few lines that show the structure."""
        pages = self.pages.counters()
        where = self.pages.path or "a temporary file"
        lines = [
            f"pb-tree: {self.n_subscriptions:,} subscriptions, {self.n_clauses:,} clauses, "
            f"{self._n_predicates():,} predicates in {pages['pages']:,} pages of {pages['page_bytes']:,} bytes, {where}"
        ]
        largest = sorted(
            (
                (tree.n_predicates, attribute, kind)
                for attribute, of in self._trees.items()
                for kind, tree in of.items()
            ),
            reverse=True,
        )
        lines += [f"  {attribute or 'every event'}, {kind}: {n:,} predicates" for n, attribute, kind in largest[:10]]
        return "\n".join(lines)

    def check(self) -> None:
        """Assert every invariant."""
        self.pages.check()
        for kinds in self._trees.values():
            for tree in kinds.values():
                assert tree.n_predicates
                tree.check()
        self.rows.check(self.n_subscriptions)
        assert self.n_clauses == sum(n for _, _, n in self.rows)
        assert all(len(self._clauses_of(row.text)) == n for _, row, n in self.rows)
        assert self.rows.n_slots <= len(self._hits)


def _entries(slot: int, clauses: list[Terms]) -> Iterable[tuple[str, str, bytes, str, int]]:
    """Yield attribute, kind, key, operator and id of all predicates of a subscription."""
    for clause, (terms, needed, is_exact) in enumerate(clauses, slot):
        for number, attribute, kind, op, key in terms:
            yield attribute, kind, key, op, clause | needed << 32 | is_exact << 47 | number << 48
