"""The PB+tree: the paper's example, trees of tiny pages against brute force, and engines that are opened again."""

from __future__ import annotations

import operator
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from conftest import N_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import events, subscriptions

from siftline import Engine
from siftline.encoding.terms import key_of, terms_of
from siftline.engine.paged import PagedEngine
from siftline.errors import StorageError, UnknownIndexError
from siftline.indexes.pb_tree.bulk import load_predicates
from siftline.indexes.pb_tree.index import PbTree
from siftline.indexes.pb_tree.kernels import GT, LT, NEQ, insert, recount
from siftline.indexes.pb_tree.nodes import INNER, LEAF, Tree, child_value, key_at, link_behind, new_page
from siftline.indexes.pb_tree.predicates import PredicateTree, leaf_value
from siftline.language.normal_form import cover
from siftline.language.text import parse
from siftline.storage.pages import PageFile

if TYPE_CHECKING:
    from pathlib import Path

    from siftline.model import Expression

OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def key(number: float) -> bytes:
    return key_of(number)[1]


def found(tree: PredicateTree, value: float) -> list[int]:
    return sorted(id for ids in tree.search(key(value)) for id in ids.tolist())


def expected(predicates: dict[int, tuple[str, float]], value: float) -> list[int]:
    return sorted(id for id, (op, constant) in predicates.items() if OPERATORS[op](value, constant))


# Figure 7, as far as the text tells it: the tree of the example in pb_tree.py, page by page.
FIGURE_7 = {1: ("=", 1.0), 2: ("<", 2.0), 4: ("!=", 4.0), 5: (">=", 5.0), 6: (">", 6.0), 8: ("<", 8.0), 9: ("=", 9.0)}
LEAVES = [[1, 2], [4, 5, 6], [8, 9]]


def figure_7() -> tuple[PredicateTree, dict[str, int]]:
    """Return the tree with three small leaves, and the numbers of its nodes by name."""
    pages = PageFile(page_bytes=512)
    tree = PredicateTree(pages)
    with pages.changing():
        lists = {}
        for flag, ids in ((GT, [5, 6]), (LT, [2, 8]), (NEQ, [4])):
            lists[flag], page = new_page(pages, LEAF)
            for position, id in enumerate(ids):
                insert(page, position, key(id), tree.with_ids(b"", bytes(1), [id]))
        tree.set_heads(lists)
        leaves = [new_page(pages, LEAF) for _ in LEAVES]
        for (number, page), (right_number, right) in pairwise(leaves):
            link_behind(pages, number, page, right_number, right)
        for (_, page), ids in zip(leaves, LEAVES, strict=True):
            for position, id in enumerate(ids):
                op = FIGURE_7[id][0]
                flags = {"=": 0, "<": LT, ">": GT, ">=": GT, "!=": NEQ}[op]
                value = leaf_value({flags: lists[flags]} if flags else {})
                insert(page, position, key(id), tree.with_ids(b"", value, [id] if op in ("=", ">=") else []))
        nodes = [new_page(pages, INNER) for _ in range(3)]
        below = [(0, leaves[:2]), (1, leaves[2:]), (2, nodes[:2])]
        for node, children in below:
            for position, (number, page) in enumerate(children):
                first = b"" if position == 0 else key(4) if node == 0 else key(8)
                insert(nodes[node][1], position, first, child_value(recount(page), number))
            recount(nodes[node][1])
        tree.tree.root = nodes[2][0]
    tree.n_predicates = len(FIGURE_7)
    names = {f"leaf {i + 1}": number for i, (number, _) in enumerate(leaves)}
    return tree, names | {"nonleaf 1": nodes[0][0], "nonleaf 2": nodes[1][0], "root": nodes[2][0]}


def test_figure_7() -> None:
    tree, node = figure_7()
    tree.check()
    for value in range(11):
        assert found(tree, value) == expected(FIGURE_7, value)
    place = tree.tree.place(key(5))
    assert [number for number, _ in place.path] == [node["root"], node["nonleaf 1"]]
    assert (place.number, place.is_found) == (node["leaf 2"], True)

    def entry(value: float, flag: int) -> tuple[int, int, bytes]:
        entry = tree.entry(tree.tree.place(key(value)), flag)
        assert entry is not None
        return entry.branch, entry.node, key_at(tree.pages.read(entry.node), entry.position)

    # GT path of 5: the same leaf, no branch node. LT path: leaf 1, item 2, and nonleaf 1 is the branch node.
    assert entry(5, GT) == (0, node["leaf 2"], key(5))
    assert entry(5, LT) == (node["nonleaf 1"], node["leaf 1"], key(2))
    assert entry(7, GT) == (0, node["leaf 2"], key(6))


def test_the_stock_example() -> None:
    """Section 2: the event matches the conjunction of two predicates, and not the one of three."""
    engine = Engine("pb-tree")
    engine.add("CompanyName = 'Yahoo' and Price > 1000 and ChangeRatio < 0.05", id=1)
    engine.add("CompanyName = 'Yahoo' and Price < 1000", id=2)
    assert engine.match({"CompanyName": "Yahoo", "Price": 500, "ChangeRatio": 0.1}) == [2]
    assert engine.match({"CompanyName": "Intel", "Price": 5000, "ChangeRatio": 0.03}) == []
    assert engine.match({"CompanyName": "Yahoo", "Price": 5000, "ChangeRatio": 0.03}) == [1]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n_values", [3, 60, 2000])
def test_one_tree_against_brute_force(seed: int, n_values: int) -> None:
    """Grow and shrink a tree of tiny pages that do not fit into the pool."""
    rng = random.Random(seed)
    pages = PageFile(page_bytes=512, buffer_mb=0.001)
    tree, live = PredicateTree(pages), dict[int, tuple[str, float]]()
    if seed % 2:
        live = {id: (rng.choice(list(OPERATORS)), rng.randrange(n_values)) for id in range(rng.choice([30, 600]))}
        with pages.changing():
            load_predicates(tree, sorted((key(constant), op, id) for id, (op, constant) in live.items()))
    for step in range(600):
        with pages.changing():
            if live and rng.random() < (0.2 if step < 300 else 0.7):
                id, (op, constant) = live.popitem() if rng.random() < 0.5 else pop_any(live, rng)
                tree.remove(key(constant), op, id)
            else:
                live[10_000 + step] = op, constant = rng.choice(list(OPERATORS)), rng.randrange(n_values)
                tree.add(key(constant), op, 10_000 + step)
        if step % 60 == 0:
            tree.check()
            pages.check()
            value = rng.randrange(-1, n_values + 1)
            assert found(tree, value) == expected(live, value)
    for id, (op, constant) in live.items():
        with pages.changing():
            tree.remove(key(constant), op, id)
    assert tree.state == [0, 0, 0, 0, 0]
    assert pages.counters()["pages"] == 0


def pop_any(live: dict[int, tuple[str, float]], rng: random.Random) -> tuple[int, tuple[str, float]]:
    id = rng.choice(list(live))
    return id, live.pop(id)


def test_many_ids_at_one_key() -> None:
    """Ids that fill more than a page are a tree of their own, and come back from it."""
    pages = PageFile(page_bytes=512)
    tree = PredicateTree(pages)
    ids = list(range(1000))
    for id in ids:
        with pages.changing():
            tree.add(key(5), ">=", id)
    tree.check()
    assert found(tree, 5) == found(tree, 6) == ids
    assert found(tree, 4) == []
    random.Random(1).shuffle(ids)
    while ids:
        with pages.changing():
            tree.remove(key(5), ">=", ids.pop())
        if len(ids) % 100 == 3:
            tree.check()
            assert found(tree, 5) == sorted(ids)
    assert pages.counters()["pages"] == 0


def test_long_and_short_keys() -> None:
    pages = PageFile(page_bytes=512, buffer_mb=0.001)
    tree, rng = Tree(pages), random.Random(5)
    known: dict[bytes, bytes] = {}
    for step in range(3000):
        name = bytes(rng.choices(b"ab", k=rng.randrange(1, 42)))
        with pages.changing():
            if name in known and rng.random() < (0.3 if step < 1500 else 0.9):
                tree.delete(name)
                del known[name]
            elif step < 2500:
                known[name] = rng.randbytes(rng.randrange(0, 50))
                tree.put(name, known[name])
        if step % 200 == 0:
            assert tree.check() == len(known)
    assert dict(tree.items()) == known
    for name in known:
        low = tree.floor(name + b"\0")
        assert low == (name, known[name])


def test_numbers_are_in_order() -> None:
    constants = [0, -0.0, 1, -1.5, 2**53, 2**53 + 1, -(2**53) - 1, float(2**53), 2**63 - 1, float(2**63), 1e300, 5e-324]
    for constant in constants:
        for value in (*constants, 2**63, 2**64 + 1, 10**30, 10**400, -(10**400)):
            assert (key(constant) < key(value)) == (constant < value)
            assert (key(constant) == key(value)) == (constant == value)


def test_terms() -> None:
    def shown(text: str) -> list[tuple[list[str], int, bool]]:
        clauses = terms_of(cover(parse(text)), 40)
        return [([f"{t.number} {t.kind} {t.op}" for t in terms], n, exact) for terms, n, exact in clauses]

    assert shown("a between 1 and 2") == [(["0 number >=", "1 number <="], 2, True)]
    assert shown("a between 2 and 1") == []
    assert shown("a not between 1 and 2") == [(["0 number <", "0 number >"], 1, True)]
    assert shown("a in (1, 'x', true)") == [(["0 boolean =", "0 number =", "0 string ="], 1, True)]
    assert shown("a not in (1, 2)") == [(["0 number !=", "1 number !="], 2, True)]
    assert shown("a not in (1, 'x')") == [(["0 presence =", "0 presence ="], 1, False)]
    assert shown("not (a < 3)") == [(["0 number >="], 1, True)]
    assert shown("a contains 'x'") == [(["0 presence ="], 1, False)]
    assert shown("a is null") == [(["0 every ="], 1, False)]
    assert shown(f"a > '{'x' * 50}'") == [(["0 string >="], 1, False)]
    assert shown(f"a in ('{'x' * 50}', 'y')") == [(["0 presence =", "0 string ="], 1, False)]


@settings(max_examples=min(60, N_EXAMPLES))
@given(expressions=st.lists(subscriptions, min_size=1, max_size=40), trees=st.lists(events, min_size=1, max_size=3))
def test_tiny_pages_against_scan(expressions: list[Expression], trees: list[dict[str, Any]]) -> None:
    oracle, engine = Engine("scan"), Engine("pb-tree", page_bytes=512, buffer_mb=0.001)
    for engine_of in (oracle, engine):
        engine_of.add_many(enumerate(expressions[: len(expressions) // 2]))
        for number in range(len(expressions) // 2, len(expressions)):
            engine_of.add(expressions[number], id=number)
        for number in range(0, len(expressions), 3):
            engine_of.remove(number)
    engine._check()
    for tree in trees:
        assert sorted(engine.match(tree)) == sorted(oracle.match(tree))


def test_a_large_engine_of_tiny_pages() -> None:
    rng = random.Random(6)
    texts = [
        f"a{rng.randrange(4)} {rng.choice(list(OPERATORS))} {rng.randrange(300)} and b = '{'x' * rng.randrange(60)}'"
        for _ in range(1500)
    ]
    oracle, engine = Engine("fast-scan"), Engine("pb-tree", page_bytes=512, buffer_mb=0.01)
    for each in (oracle, engine):
        each.add_many(enumerate(texts[:700]))
        for number in range(700, 1500):
            each.add(texts[number], id=number)
        each.remove_many(range(0, 1500, 2))
    engine._check()
    for _ in range(100):
        event = {f"a{i}": rng.randrange(-1, 301) for i in range(4)} | {"b": "x" * rng.randrange(60)}
        assert sorted(engine.match(event)) == sorted(oracle.match(event))
    engine.remove_many(engine.ids())
    engine._check()
    assert engine.stats()["pages"] == 0


def opened(path: Path, **options: Any) -> PagedEngine:
    engine = Engine("pb-tree", path=path, page_bytes=512, **options)
    assert isinstance(engine, PagedEngine)
    return engine


def test_an_engine_opens_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "subscriptions"
    long_id, long_text = "id" * 500, "name = '" + "long" * 2000 + "'"
    with opened(path) as engine:
        engine.add("price < 1000 and name starts with 'a'", id="ann", weight=2.5)
        engine.add(long_text, id=long_id)
        engine.add("a = 1", id="gone")
        engine.remove("gone")
        engine.replace(long_id, long_text + " or a = 2")
    with opened(path) as engine:
        engine._check()
        assert sorted(engine.ids()) == ["ann", long_id]
        assert engine.match({"price": 5, "name": "abc"}) == ["ann"]
        assert engine.match({"a": 2, "price": 5, "name": "abc"}, top=1) == ["ann"]
        assert engine.match({"name": "long" * 2000}) == [long_id]
        assert "gone" not in engine
    with pytest.raises(StorageError, match="is closed"):
        engine.add("a = 1", id="late")


def test_without_closing_the_log_brings_it_back(tmp_path: Path) -> None:
    engine = opened(tmp_path / "s")
    engine.add_many([(i, f"a > {i}") for i in range(100)])
    engine.remove_many(range(50))
    engine.add("a = 7")
    del engine
    again = opened(tmp_path / "s")
    again._check()
    assert sorted(again.match({"a": 60})) == list(range(50, 60))
    assert again.match({"a": 7}) == [100]
    assert again.add("b = 1") == 101


def test_two_engines_cannot_share_a_file(tmp_path: Path) -> None:
    with opened(tmp_path / "s"), pytest.raises(StorageError, match="one writer at a time"):
        opened(tmp_path / "s")


def test_many_rows_make_a_checkpoint(tmp_path: Path) -> None:
    engine = opened(tmp_path / "s", buffer_mb=0.1)
    engine.add_many([(i, f"a = {i}") for i in range(5000)])
    assert (tmp_path / "s-log").stat().st_size < 100
    del engine
    assert opened(tmp_path / "s").match({"a": 4999}) == [4999]


@pytest.mark.parametrize("options", [{"buffer_mb": 0}, {"buffer_mb": "x"}, {"page_bytes": 1000}, {"paht": "x"}])
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownIndexError):
        Engine("pb-tree", **options)


def test_page_reads_are_counted() -> None:
    engine = Engine("pb-tree", page_bytes=512, buffer_mb=0.001)
    engine.add_many([(i, f"a = {i}") for i in range(3000)])
    before = engine.stats()["page_reads"]
    assert engine.match({"a": 1234}) == [1234]
    assert 1 <= engine.stats()["page_reads"] - before <= 12


def test_describe() -> None:
    engine = Engine("pb-tree")
    engine.add("price < 1 and b is null", id=1)
    assert "1 predicates" in engine.describe()
    assert PbTree.name in engine.describe()
