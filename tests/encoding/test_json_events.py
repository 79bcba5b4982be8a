from __future__ import annotations

import gc
import json
import threading
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import N_EXAMPLES
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba.core import config

from siftline.encoding import domain_tables, json_events
from siftline.encoding.domain_tables import tables_of
from siftline.encoding.domains import Domains
from siftline.encoding.events import DictSource
from siftline.encoding.flat_domains import flatten
from siftline.encoding.json_events import JsonSource, json_lines, load_object, one_json
from siftline.errors import EventError
from siftline.model import Event

if TYPE_CHECKING:
    from siftline.encoding.events import Source

EXAMPLES = 25 if config.DISABLE_JIT else 3 * N_EXAMPLES // 2
relaxed = settings(max_examples=EXAMPLES, deadline=None)

# Without a constant per event nothing is ever worth laying out, so that all goes through Python's parser.
WAITING = 0
PATHS = ["a", "b", "a.b", "b.a", "", "é", "a.b.a"]

scalars = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, -1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 10**400])
    | st.sampled_from([0.5, -0.0, 1e16, 1e300, float("nan"), float("inf"), 0.1])
    | st.sampled_from(["", "a", "abcdefgh", "abcdefghi", 'quote " \\ \n', "é\U0001f600", "\ud800", "1"])
)
keys = st.sampled_from(["a", "b", "a.b", "", "é", "other"])


def objects_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(keys, inner, max_size=3)


values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | objects_of(inner), max_leaves=6)

objects = objects_of(values)
constants = st.dictionaries(
    st.sampled_from(PATHS),
    st.sets(st.sampled_from([0, 1, 0.5, 2**53 + 1, 2**63 - 1, 1e16, 1e30, "", "a", "abcdefgh", "é", "\ud800"])),
)


def domains_of(values: dict[str, set[Any]]) -> Domains:
    domains = Domains()
    domains.add(values)
    return domains


def codes_of(source: Source, domains: Domains) -> list[Counter[tuple[int, int]]]:
    starts, attributes, codes = source.encode(domains)
    assert starts.dtype == np.int64
    assert attributes.dtype == codes.dtype == np.int32
    assert len(starts) == len(source) + 1
    assert starts[-1] == len(attributes) == len(codes)
    pairs = list(zip(attributes.tolist(), codes.tolist(), strict=True))
    return [Counter(pairs[start:end]) for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]


def source_of(texts: list[bytes], *, skip_bad: bool = False) -> JsonSource:
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)[: len(texts)]
    return JsonSource(b"".join(texts), starts, ends, skip_bad=skip_bad)


@pytest.fixture(params=["compiled", "waiting"])
def any_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "waiting":
        monkeypatch.setattr(domain_tables, "_CONSTANTS_PER_EVENT", WAITING)


@relaxed
@given(st.lists(objects, max_size=5), constants, st.booleans())
def test_texts_mean_what_dicts_mean(trees: list[dict[str, Any]], values: dict[str, set[Any]], is_ascii: bool) -> None:
    texts = [json.dumps(tree, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass") for tree in trees]
    domains = domains_of(values)
    expected = codes_of(DictSource(trees), domains)
    source = source_of(texts)
    assert codes_of(source, domains) == expected
    again = [source.tree(i) for i in range(len(trees))]
    assert repr(again) == repr([json.loads(text.decode("utf-8", "surrogatepass")) for text in texts])
    assert codes_of(DictSource(again), domains) == expected


@relaxed
@given(st.lists(objects, max_size=5), constants)
def test_waiting_events_get_the_same_codes(trees: list[dict[str, Any]], values: dict[str, set[Any]]) -> None:
    source = source_of([json.dumps(tree).encode() for tree in trees])
    compiled = source.encode(domains_of(values))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(domain_tables, "_CONSTANTS_PER_EVENT", WAITING)
        waiting = source.encode(domains_of(values))
    assert [array.tolist() for array in compiled] == [array.tolist() for array in waiting]


@relaxed
@given(st.lists(objects, min_size=1, max_size=4), st.data())
def test_damaged_texts_are_refused_as_python_refuses_them(trees: list[dict[str, Any]], data: st.DataObject) -> None:
    texts = [json.dumps(tree).encode() for tree in trees]
    for i, text in enumerate(texts):
        if data.draw(st.booleans()):
            place = data.draw(st.integers(0, len(text)))
            texts[i] = text[:place] + data.draw(st.binary(max_size=2)) + text[place + data.draw(st.integers(0, 2)) :]
    source = source_of(texts, skip_bad=True)
    domains = domains_of({path: {1, "a"} for path in PATHS})
    found = codes_of(source, domains)
    for i, text in enumerate(texts):
        expected, reason = codes_or_reason(text, domains)
        assert found[i] == expected
        assert source.errors.get(i, "").endswith(reason)
        assert (i in source.errors) == bool(reason)


def codes_or_reason(text: bytes, domains: Domains) -> tuple[Counter[tuple[int, int]], str]:
    try:
        return codes_of(DictSource([load_object(text)]), domains)[0], ""
    except EventError as error:
        return Counter(), str(error)


@pytest.mark.usefixtures("any_way")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not a JSON object: expecting value at byte 0"),
        (b"[1]", "not a JSON object: an array"),
        (b"1.5", "not a JSON object: a number"),
        (b'"x"', "not a JSON object: a string"),
        (b"null", "not a JSON object: null"),
        (b"true", "not a JSON object: true"),
        ('{"é": 1 2}'.encode(), "not a JSON object: expecting ',' delimiter at byte 9"),
        (b'\xef\xbb\xbf{"a": 1 2}', "not a JSON object: expecting ',' delimiter at byte 11"),
        (b'{"a": "\xff"}', "not a JSON object: invalid UTF-8 at byte 7"),
        (b'{"a": 1}x', "not a JSON object: extra data at byte 8"),
        (b'{"a":' * 120 + b"1" + b"}" * 120, "the event nests deeper than 100 levels"),
        (b"[" * 200_000, "the event nests deeper than 100 levels"),
        ('{"a": 1}'.encode("utf-16"), "not a JSON object: invalid UTF-8 at byte 0"),
    ],
    ids=lambda value: str(value[:20]),
)
def test_bad_events_say_what_is_wrong(text: bytes, reason: str) -> None:
    domains = domains_of({"a": {1}, "b": {1}})
    with pytest.raises(EventError) as caught:
        one_json(text).encode(domains)
    assert str(caught.value) == reason
    texts = [b'{"a": 1}', text, b'{"b": 2}']
    with pytest.raises(EventError) as caught:
        source_of(texts).encode(domains)
    assert str(caught.value) == f"event 1: {reason}"
    source = source_of(texts, skip_bad=True)
    assert codes_of(source, domains) == codes_of(DictSource([{"a": 1}, {}, {"b": 2}]), domains)
    assert source.errors == {1: f"event 1: {reason}"}


@pytest.mark.usefixtures("any_way")
def test_what_only_python_knows_is_put_in_its_place() -> None:
    texts = [
        b'{"a": 1, "b": 2}',
        b'{"a": 1, "a": 3}',
        b'{"a": %d}' % 2**64,
        b"{}",
        b'{"a": -%s, "b": [true, null]}' % (b"9" * 4300),
        b'{"b": "x"}',
        b'{"a": 5, "a": {}}',
    ]
    trees: list[dict[str, Any]]
    trees = [{"a": 1, "b": 2}, {"a": 3}, {"a": 2**64}, {}, {"a": -(10**4299), "b": [True, None]}, {"b": "x"}, {"a": {}}]
    domains = domains_of({"a": {1, 3, 2.0**64, -1e308}, "b": {"x"}})
    assert codes_of(source_of(texts), domains) == codes_of(DictSource(trees), domains)


def test_unused_attributes_leave_no_trace_however_odd() -> None:
    text = b'{"other": %s, "a": 1}' % (b"9" * 4300)
    domains = domains_of({"a": {1}})
    source = one_json(text)
    assert codes_of(source, domains) == codes_of(DictSource([{"a": 1}]), domains)
    assert Event(source.tree(0)).leaves["a"] == [1]


def test_blocks_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_events, "_BLOCK_BYTES", 40)
    trees = [{"a": i, "b": ["x"] * (i % 3)} for i in range(50)]
    texts = [json.dumps(tree).encode() for tree in trees]
    texts[20] = b'{"a": 0, "a": 20, "b": ["x", "x"]}'
    texts[30] = b"{" + b" " * 200 + texts[30][1:]
    domains = domains_of({"a": {7, 20}, "b": {"x"}})
    assert codes_of(source_of(texts), domains) == codes_of(DictSource(trees), domains)
    assert codes_of(json_lines(b"\n" * 100), domains) == []
    texts[40] = b"?"
    with pytest.raises(EventError, match="event 40: not a JSON object"):
        source_of(texts).encode(domains)


def test_texts_in_any_order_from_an_array() -> None:
    data = np.frombuffer(b'{"a": 1}{"a": 2}', dtype=np.uint8)
    starts, ends = np.array([8, 0, 8], dtype=np.int64), np.array([16, 8, 16], dtype=np.int64)
    domains = domains_of({"a": {1}})
    trees = [{"a": 2}, {"a": 1}, {"a": 2}]
    assert codes_of(JsonSource(data, starts, ends), domains) == codes_of(DictSource(trees), domains)
    outside = JsonSource(data, starts, ends + 1)
    with pytest.raises(ValueError, match="outside the 16 bytes"):
        outside.encode(domains)
    with pytest.raises(ValueError, match="outside the 16 bytes"):
        outside.tree(0)


@given(st.lists(st.sampled_from([b'{"a": 1}', b' {"a": 2}', b"", b" \t", b"\r"]), max_size=6), st.booleans())
@example([], True)
def test_lines(lines: list[bytes], has_bom: bool) -> None:
    data = (b"\xef\xbb\xbf" if has_bom else b"") + b"\n".join(lines)
    full = [line for line in lines if line.strip()]
    source = json_lines(data)
    assert [source.tree(i) for i in range(len(source))] == [json.loads(line) for line in full]


def test_errors_name_the_line() -> None:
    source = json_lines(b'{"a": 1}\r\n\n  \n{"a": }\n[]', skip_bad=True)
    source.encode(domains_of({"a": {1}}))
    assert source.errors == {
        1: "line 4: not a JSON object: expecting value at byte 6",
        2: "line 5: not a JSON object: an array",
    }
    with pytest.raises(EventError, match="line 4: not a JSON object"):
        json_lines(b'\n\n\n{"a": }').encode(Domains())


def test_arrow_texts_are_not_copied() -> None:
    array = pa.array(['{"a": 0}', '{"a": 1}', '{"a": 2}']).slice(1)
    source = JsonSource.from_arrow(array)
    assert source._data.ctypes.data == array.buffers()[2].address
    assert JsonSource.from_arrow(pa.chunked_array([array]))._data.ctypes.data == array.buffers()[2].address
    assert [source.tree(i) for i in range(len(source))] == [{"a": 1}, {"a": 2}]
    assert len(JsonSource.from_arrow(pa.array([], pa.string()))) == 0


def test_null_texts() -> None:
    array = pa.array(['{"a": 1}', None])
    with pytest.raises(EventError, match="event 1: it is null"):
        JsonSource.from_arrow(array)
    source = JsonSource.from_arrow(array, skip_bad=True)
    source.encode(domains_of({"a": {1}}))
    assert list(source.errors) == [1]


def test_tables_are_kept_for_a_version() -> None:
    domains = domains_of({"a": {1, 2}, "b.c": {"x"}})
    tables = tables_of(domains)
    assert tables_of(domains) is tables
    assert tables.base is tables.base
    assert tables.prefixes == {"b"}
    assert tables.line_of(0) == (tables.base, 0)
    domains.add({"a": {3}})
    renewed = tables_of(domains)
    assert renewed is not tables
    alone, attribute = renewed.line_of(0)
    assert attribute == 0
    assert alone.flat.numbers.tolist() == [1.0, 2.0, 3.0]
    assert renewed.line_of(0)[0] is alone
    assert renewed.line_of(1)[1] == 1
    flattened = flatten(list(domains.domains)).flat
    assert [array.tolist() for array in renewed.base.flat] == [array.tolist() for array in flattened]
    assert tables_of(domains.copied()) is not renewed


def test_merging_waits_for_enough_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_tables, "_CONSTANTS_PER_EVENT", 10)
    domains = domains_of({"a": set(range(99))})
    domains.merge()
    domains.add({"a": {1000}})
    source = one_json(b'{"a": 5}')
    for _ in range(9):
        source.encode(domains)
    assert domains.lines[1]
    source.encode(domains)
    assert not domains.lines[1]


def test_tables_do_not_keep_domains_alive() -> None:
    domains = domains_of({"a": {1}})
    tables_of(domains).line_of(0)
    assert tables_of(domains).base.flat.numbers.tolist() == [1.0]
    reference = weakref.ref(domains)
    del domains
    gc.collect()
    assert reference() is None


def test_threads_share_tables_while_constants_come() -> None:
    domains = domains_of({"a": set(range(0, 100, 2))})
    trees = [{"a": i} for i in range(50)]
    source_texts = [json.dumps(tree).encode() for tree in trees]
    for constant in (1, 3, 5):
        domains.add({"a": {constant}})
        expected = codes_of(DictSource(trees), domains)
        results: list[Any] = []
        threads = [
            threading.Thread(target=lambda: results.append(codes_of(source_of(source_texts), domains)))  # noqa: B023
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [expected] * 4
