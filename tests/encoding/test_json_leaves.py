"""The compiled parser against `json.loads` and `Event`: the same leaves, the same refusals."""

from __future__ import annotations

import codecs
import json
import math
import random
import re
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from conftest import N_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import config

from siftline.encoding.json_leaves import BAD, FALSE, NULL, NUMBER, OK, SLOW, STRING, TRUE, Leaves, parse_json
from siftline.encoding.path_hash import Paths, build_path_hash
from siftline.errors import EventError
from siftline.model import MAX_EVENT_DEPTH, Event

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Interpreted kernels are some hundred times slower.
EXAMPLES = 150 if config.DISABLE_JIT else 2 * N_EXAMPLES

KEYS = ["a", "b", "", "a.b", ".", "é", "\U0001f600", "\ud800", "x" * 7, "x" * 8, "x" * 9, "long key name " * 3, "\x00"]
PATHS = [
    *["a", "b", "", ".", "..", "a.b", "a.a", "a.b.a", "b.a.b", "a.", ".a", "a..a", "é", "é.a", "a.é.\U0001f600"],
    *["\ud800", "\ud800.\ud800", "\U0001f600", "x" * 7, "x" * 8, "x" * 9, "a." + "x" * 7, "b." + "x" * 8],
    *["long key name " * 3, "a.b." + "long key name " * 3, "\x00", "a.\x00", "a.b.a.b.a.b.a.b.a.b.a.b"],
]
PATH_HASH = Paths(PATHS)


def parse_one(event: bytes, path_hash: Paths = PATH_HASH, before: bytes = b"", behind: bytes = b"") -> Leaves:
    """Parse one event that stands between other bytes."""
    start = len(before)
    return parse_json(before + event + behind, np.array([start]), np.array([start + len(event)]), path_hash)


def leaf_values(leaves: Leaves, event: int, paths: list[str]) -> dict[str, list[Any]]:
    """Return the leaves of an event as `Event.leaves` has them, integers exact."""
    values: dict[str, list[Any]] = {}
    for i in range(leaves.event_starts[event], leaves.event_starts[event + 1]):
        values.setdefault(paths[leaves.attributes[i]], []).append(leaf_value(leaves, i))
    return values


def leaf_value(leaves: Leaves, i: int) -> Any:
    kind = leaves.kinds[i]
    number, residual = float(leaves.numbers[i]), int(leaves.residuals[i])
    text = leaves.texts[leaves.text_starts[i] : leaves.text_ends[i]].tobytes()
    if kind == STRING:
        assert (number, residual) == (0.0, 0)
        return text.decode("utf-8", "surrogatepass")
    assert text == b""
    if kind == NUMBER:
        assert math.isfinite(number)
        assert math.copysign(1.0, number) == 1.0 or number != 0.0
        return int(number) + residual if number.is_integer() else number
    assert (number, residual) == (0.0, 0)
    return {NULL: None, FALSE: False, TRUE: True}[int(kind)]


def expected_values(event: bytes, paths: list[str]) -> dict[str, list[Any]] | None:
    """Return what Python makes of an event; None if it is not a JSON object."""
    try:
        tree = json.loads(event)
    except (ValueError, RecursionError):
        return None
    if not isinstance(tree, dict):
        return None
    leaves = Event(tree).leaves
    return {path: leaves[path] for path in paths if leaves.get(path)}


def typed(values: dict[str, list[Any]]) -> dict[str, list[tuple[type, Any]]]:
    """Make 1 and True differ, but not 1 and 1.0, which are the same number."""
    return {
        path: [(bool if isinstance(v, bool) else type(v) if isinstance(v, str | None) else float, v) for v in leaves]
        for path, leaves in values.items()
    }


def check(event: bytes, path_hash: Paths = PATH_HASH, paths: list[str] = PATHS) -> int:
    """Compare the parser with Python on one event; return its status."""
    leaves = parse_one(event, path_hash)
    status = int(leaves.statuses[0])
    assert 0 <= leaves.positions[0] <= len(event)
    if status != OK:
        assert leaves.event_starts.tolist() == [0, 0]
        assert [len(column) for column in leaves.columns] == [0] * 7
    try:
        expected = expected_values(event, paths)
    except EventError:
        assert status == SLOW
        return status
    if status == OK:
        assert expected is not None
        assert typed(leaf_values(leaves, 0, paths)) == typed(expected)
    elif status == BAD:
        assert expected is None or is_utf_16_or_32(event)
    return status


def is_utf_16_or_32(event: bytes) -> bool:
    return json.detect_encoding(event) not in ("utf-8", "utf-8-sig")


@pytest.mark.parametrize(
    "event",
    [
        b"{}",
        b" {\t} \r\n",
        b'{"a":1}',
        b'{"a": [], "b": {}}',
        b'{"a": [[], {}, [1, [2, {"b": 3}]], 4], "b": [{"a": 1}, {"a": 2}]}',
        b'{"a": true, "b": [false, null, "x", 0, -0, -0.0, 1e0]}',
        b'{"a": NaN, "b": [Infinity, -Infinity, 1e999, -1e999]}',
        b'{"a": [9007199254740993, -9007199254740993, 9223372036854775807, -9223372036854775808]}',
        b'{"a": {"b": 1}}',
        b'{"a.b": 1, "a": {"b": 2}}',
        b'{"a": [{"b": 1}, {"b": 2}], "b": {"a": {"b": "c"}}}',
        b'{"": 1, ".": 2, "a": {"": 3}}',
        b'{"": {"": 1, "a": 2}}',
        b'{"\\u0061": 1, "\\u0062": {"\\u0061.\\u0062": 2}}',
        b'{"a": "\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20AC\\ud83d\\ude00"}',
        b'{"a": ["\\ud800", "\\udc00\\ud800", "\\ud800\\ud83d\\ude00", "\\ud83d\\n", "\\ud83dx"]}',
        '{"é": {"a": "ünï"}, "😀": "日本語, 8 or more bytes"}'.encode(),
        b"\xef\xbb\xbf{}",
        b'\xef\xbb\xbf {"a": 1}',
        b'{"unknown": {"a": 1, "a": [1, "x", {"b": 12345678901234567890, "b": 0.1e-5}]}, "unknown": 2}',
        b'{"a": {"xxxxxxx": 1}, "xxxxxxx": 2, "xxxxxxxx": 3, "xxxxxxxxx": 4, "b": {"xxxxxxxx": 5}}',
        b'{"a": 0.1, "b": [123456.789e3, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308]}',
        b'{"a":"\x7f"}',
        b'{"\\u0000": 1, "a": {"\\u0000": "\\u0000"}}',
    ],
)
def test_what_is_read(event: bytes) -> None:
    assert check(event) == OK


@pytest.mark.parametrize(
    "event",
    [
        b"", b" ", b"{", b"}", b"[]", b"1", b'"a"', b"null", b"{]", b"{}}", b"{} x", b"{}{}", b"x{}", b"\x00{}",
        b"{}\x00", b"{,}", b'{"a"}', b'{"a":}', b'{"a" 1}', b'{"a":1,}', b'{,"a":1}', b'{"a":1 "b":2}',
        b'{"a":1;"b":2}', b"{a:1}", b"{'a':1}", b'{"a":1', b'{"a":1,', b'{"a', b'{"a\\', b'{"a":"', b'{"a":"x',
        b'{"a":[', b'{"a":[1', b'{"a":[1,', b'{"a":[1,]}', b'{"a":[,1]}', b'{"a":[1 2]}', b'{"a":[1}', b'{"a":{]}',
        b'{"a":[1]]}', b'{"a":1]', b'{"a"::1}', b'{"a":tru}', b'{"a":truE}', b'{"a":truex}', b'{"a":nul',
        b'{"a":nullx}', b'{"a":fals}', b'{"a":nan}', b'{"a":NaNx}', b'{"a":Infinit}', b'{"a":-Infinit}',
        b'{"a":+Infinity}', b'{"a":-NaN}', b'{"a":inf}', b'{"a":01}', b'{"a":-01}', b'{"a":00}', b'{"a":1.}',
        b'{"a":.5}', b'{"a":+1}', b'{"a":-}', b'{"a":1e}', b'{"a":1e+}', b'{"a":1.e5}', b'{"a":1.5e}', b'{"a":0x10}',
        b'{"a":1_0}', b'{"a":--1}', b'{"a":1.2.3}', b'{"a":1e5.5}', b'{"a":12345678901}x',
        b'{"a":00000000000000000000001}', b'{"a":000000001.5}', b'{"a":"\x1f"}', b'{"a":"\n"}', b'{"a":"\x00"}',
        b'{"a\x01":1}', b'{"a":"\\x"}', b'{"a":"\\u12"}', b'{"a":"\\u12g4"}', b'{"a":"\\ud83d\\u12"}',
        b'{"a":"\\U00e9"}', b'{"a":"\\"}', b'{"a":"\\u00e"}', b'{"a":"\x80"}', b'{"a":"\xc3"}', b'{"a":"\xc3("}',
        b'{"a":"\xc0\xaf"}', b'{"a":"\xc1\xbf"}', b'{"a":"\xe0\x80\xaf"}', b'{"a":"\xe2\x82"}',
        b'{"a":"\xf0\x80\x80\xaf"}', b'{"a":"\xf4\x90\x80\x80"}', b'{"a":"\xf5\x80\x80\x80"}', b'{"a":"\xff"}',
        b'{"\xff":1}', b'{"unknown":"\xff"}', b'{"unknown":{"\xff":1}}', b'{"a":"\xed\xa0"}', b'{"a":1\xc2\xa0}',
        b"\xef\xbb{}", b"\xef\xbb\xbf\xef\xbb\xbf{}", b"\xef\xbb\xbf", b" \xef\xbb\xbf{}", b'{"a":\x0b1}',
        b'{"unknown":01}', b'{"unknown":[1,}', b'{"unknown":1.}', b'{"unknown":-}', b'{"unknown":"\\x"}',
        b'{"unknown":tru}',
    ],
)  # fmt: skip
def test_what_is_refused(event: bytes) -> None:
    assert check(event) == BAD


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_other_encodings_are_refused(encoding: str) -> None:
    assert check('{"a": 1}'.encode(encoding)) == BAD


@pytest.mark.parametrize(
    "event",
    [
        b'{"a": 1, "a": 2}',
        b'{"a": 1, "\\u0061": 2}',
        b'{"a": {"b": 1}, "a": 2}',
        b'{"b": {"a": 1, "a": 2}}',
        b'{"a": [{"b": 1, "b": 2}]}',
        b'{"a.b": 1, "a": {"b": 2}, "a.b": 3}',
        b'{"a": {"b": 1}, "a.b": 2}',
        b'{"a": 9223372036854775808}',
        b'{"a": -9223372036854775809}',
        b'{"a": 18446744073709551616}',
        b'{"a": 100000000000000000000000000000000000000000}',
        b'{"unknown": ' + b"1" * 5000 + b"}",
        b'{"a": "\xed\xa0\x80"}',
        b'{"unknown": "\xed\xbf\xbf"}',
        b'{"a": 9007199254740993.00000000000000000000000000000000000000000001}',
    ],
)
def test_what_is_left_to_python(event: bytes) -> None:
    assert check(event) == SLOW


@pytest.mark.parametrize("inner", ["[", '{"a":', '{"unknown":', '{"":'])
def test_depth(inner: str) -> None:
    closing = "]" if inner == "[" else "}"

    def nested(depth: int) -> bytes:
        return ('{"a":' + inner * (depth - 1) + "1" + closing * (depth - 1) + "}").encode()

    assert check(nested(MAX_EVENT_DEPTH)) == OK
    assert check(nested(MAX_EVENT_DEPTH + 1)) == SLOW
    assert check(nested(MAX_EVENT_DEPTH)[:-1]) == BAD
    assert check(('{"a":' + inner * 3000).encode()) == SLOW


keys = st.sampled_from(KEYS) | st.text(st.sampled_from('ab.é\ud800\U0001f600"\\\n'), max_size=12) | st.text(max_size=20)
texts = (
    st.text()
    | st.text(st.sampled_from('ab"\\/\n\x1f\x7fé€\U0001f600\ud800\udc00'), max_size=30)
    | st.characters(categories=["Cs"])
)
integers = st.integers() | st.integers(-(2**53) - 3, 2**53 + 3) | st.integers(-(2**64), 2**64)
scalars = st.none() | st.booleans() | integers | st.floats() | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5), max_leaves=20
)
objects = st.dictionaries(keys, values, max_size=8)


@given(objects, st.booleans(), st.sampled_from([None, 0, 2, "\t"]), st.sampled_from([(",", ":"), (", ", ": ")]))
@settings(max_examples=EXAMPLES, deadline=None)
def test_documents(
    tree: dict[str, Any], ensure_ascii: bool, indent: int | str | None, separators: tuple[str, str]
) -> None:
    text = json.dumps(tree, ensure_ascii=ensure_ascii, indent=indent, separators=separators)
    status = check(text.encode("utf-8", "surrogatepass"))
    assert status != BAD
    has_raw_surrogates = not ensure_ascii and any("\ud800" <= c <= "\udfff" for c in text)
    has_big_integers = any(not -(2**63) <= int(digits) < 2**63 for digits in re.findall(r"-?\d{19,}", text))
    if not (has_raw_surrogates or has_big_integers or "." in "".join(map(str, all_keys(tree)))):
        assert status == OK  # shortest decimals are never too hard


def all_keys(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [*node, *(key for value in node.values() for key in all_keys(value))]
    return [key for value in node for key in all_keys(value)] if isinstance(node, list) else []


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    """Spell JSON in every way there is, with repeated keys, long decimals, escapes and white space anywhere."""
    space = st.sampled_from(["", "", "", " ", "\n", "\t\r ", "  "])

    def spelled(text: str) -> str:
        return '"' + "".join(draw(st.sampled_from(spellings(c))) for c in text) + '"'

    def value(depth: int) -> str:
        shape = draw(st.integers(0, 5 if depth < 4 else 3))
        if shape == 0:
            return draw(decimals)
        if shape == 1:
            return spelled(draw(st.text(max_size=12)))
        if shape <= 3:
            return draw(
                st.sampled_from(["null", "true", "false", "0", "17", "-3", '"abc"', "NaN", "-Infinity", "[]", "{}"])
            )
        items = draw(st.integers(0, 4))
        if shape == 4:
            return "[" + ",".join(spaced(value(depth + 1)) for _ in range(items)) + "]"
        return "{" + ",".join(member(depth) for _ in range(items)) + draw(space) + "}"

    def member(depth: int) -> str:
        return spaced(spelled(draw(st.sampled_from(KEYS)))) + ":" + spaced(value(depth + 1))

    def spaced(text: str) -> str:
        return draw(space) + text + draw(space)

    return spaced("{" + ",".join(member(0) for _ in range(draw(st.integers(0, 5)))) + draw(space) + "}")


decimals = st.from_regex(r"\A-?(0|[1-9][0-9]{0,22})(\.[0-9]{1,25})?([eE][-+]?[0-9]{1,4})?\Z")


def spellings(character: str) -> list[str]:
    """Return the ways to write a character in a JSON string; surrogates only as escapes."""
    short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
    escape = json.dumps(character)[1:-1] if ord(character) > 0xFFFF else f"\\u{ord(character):04X}"
    ways = [escape, escape.lower() if escape[1] == "u" else escape]
    if character in short:
        ways.append(short[character])
    if character not in '"\\' and character >= " " and not "\ud800" <= character <= "\udfff":
        ways += [character] * 3
    return ways


@given(json_texts(), st.binary(max_size=12), st.binary(max_size=12))
@settings(max_examples=EXAMPLES, deadline=None)
def test_spellings_between_other_bytes(text: str, before: bytes, behind: bytes) -> None:
    event = text.encode()
    status = check(event)
    assert status != BAD
    alone, between = parse_one(event), parse_one(event, before=before, behind=behind)
    for one, other in zip(alone, between, strict=True):
        np.testing.assert_array_equal(one, other)


@given(json_texts(), st.data())
@settings(max_examples=2 * EXAMPLES, deadline=None)
def test_damaged_bytes(text: str, data: st.DataObject) -> None:
    event = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(event)))
        replaced = data.draw(st.integers(0, 2))
        event[place : place + replaced] = data.draw(
            st.sampled_from([b"", b"", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b".", b"e", b"-", b" "])
            | st.binary(min_size=1, max_size=3)
        )
    cut = data.draw(st.integers(0, len(event)) | st.just(len(event)))
    check(bytes(event[:cut]))


@given(st.binary(max_size=40))
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_bytes_in_a_string(content: bytes) -> None:
    check(b'{"a": "' + content + b'"}')


def test_all_short_sequences_of_bytes() -> None:
    """Every lead byte with every second byte, and the borders of the third and fourth."""
    borders = [b"", b"\x7f", b"\x80", b"\xbf", b"\xc0", b"\x80\x80", b"\xbf\xbf", b"\x80\x7f", b"\x80\xc0"]
    step = 37 if config.DISABLE_JIT else 1
    sequences = [bytes([lead, second]) for lead in range(0x80, 0x100) for second in range(0x100)]
    events = [b'{"a":"' + s + end + b'"}' for s in sequences[::step] for end in borders]
    leaves = parse_many(events, PATH_HASH)
    for event, status in zip(events, leaves.statuses, strict=True):
        expected = expected_values(event, PATHS)
        is_raw_surrogate = event[6] == 0xED and 0xA0 <= event[7] <= 0xBF and 0x80 <= event[8] <= 0xBF
        assert (status == SLOW) == is_raw_surrogate, event
        assert (status == OK) == (expected is not None and not is_raw_surrogate), event


def parse_many(events: list[bytes], path_hash: Paths) -> Leaves:
    ends = np.cumsum([len(event) for event in events], dtype=np.int64)
    starts = ends - np.array([len(event) for event in events], dtype=np.int64)
    return parse_json(b"".join(events), starts, ends, path_hash)


@given(st.lists(json_texts().map(str.encode) | st.just(b'{"a": "x", "a"') | st.just(b'{"b": "yy", "a": 1, "a": 2}')))
@settings(max_examples=EXAMPLES // 4, deadline=None)
def test_many_events_are_as_one_by_one(events: list[bytes]) -> None:
    leaves = parse_many(events, PATH_HASH)
    for i, event in enumerate(events):
        one = parse_one(event)
        assert leaves.statuses[i] == one.statuses[0]
        assert leaves.positions[i] == one.positions[0]
        assert leaf_values(leaves, i, PATHS) == leaf_values(one, 0, PATHS)


def test_arrays_grow() -> None:
    """Events with more leaves than expected, and paths and texts longer than the workspace."""
    n = 500 if config.DISABLE_JIT else 50_000
    dense = b'{"a":[' + b"1," * n + b"2]}"
    deep = b'{"' + b"k" * (2 * n) + b'":{"' + b"l" * n + b'":"' + b"t" * n + b'"}}'
    paths = ["a", "k" * (2 * n) + "." + "l" * n]
    leaves = parse_many([dense, deep, b'{"a":1,"a":1}', dense], Paths(paths))
    assert leaves.statuses.tolist() == [OK, OK, SLOW, OK]
    assert np.diff(leaves.event_starts).tolist() == [n + 1, 1, 0, n + 1]
    assert leaf_values(leaves, 1, paths) == {paths[1]: ["t" * n]}
    overlapping = parse_json(deep, np.zeros(9, np.int64), np.full(9, len(deep)), Paths(paths))
    assert overlapping.texts.size == 9 * n


def test_input_arrays_of_other_kinds() -> None:
    data = np.frombuffer(b'{"a": 1} {"a": 2} ', dtype=np.uint8).copy()
    starts, ends = np.array([0, 9], dtype=np.int32), np.array([8, 17], dtype=np.int32)
    assert parse_json(data, starts, ends, PATH_HASH).numbers.tolist() == [1.0, 2.0]
    assert data.flags.writeable
    spread = np.repeat(data, 2)[::2]
    assert parse_json(spread, starts, ends, PATH_HASH).numbers.tolist() == [1.0, 2.0]
    nothing = parse_json(b"", starts[:0], ends[:0], PATH_HASH)
    assert [column.size for column in nothing] == [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(("starts", "ends"), [([-1], [2]), ([2], [1]), ([0], [10]), ([0, 0], [2])])
def test_events_outside_the_data(starts: list[int], ends: list[int]) -> None:
    with pytest.raises(ValueError, match=r"outside the 9 bytes|starts of events"):
        parse_json(b'{"a": 1} ', np.array(starts), np.array(ends), PATH_HASH)
    with pytest.raises(ValueError, match="one-dimensional"):
        parse_json(b"{}", np.zeros((1, 1), np.int64), np.ones(1, np.int64), PATH_HASH)


def test_threads_do_not_share_their_workspace() -> None:
    rng = random.Random(7)
    events = [json.dumps({f"a{rng.randrange(50)}": i for _ in range(10)}).encode() for i in range(20)]
    path_hash = Paths([f"a{i}" for i in range(50)])
    expected: tuple[NDArray[Any], ...] = parse_many(events, path_hash)
    wrong: list[int] = []

    def work() -> None:
        for i in range(3 if config.DISABLE_JIT else 200):
            leaves: tuple[NDArray[Any], ...] = parse_many(events, path_hash)
            if not all(a.tobytes() == b.tobytes() for a, b in zip(leaves, expected, strict=True)):
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@given(st.lists(st.text(st.sampled_from("ab.é"), max_size=24) | keys, unique=True, max_size=60), keys)
@settings(max_examples=EXAMPLES // 4, deadline=None)
def test_path_hash_finds_every_path(paths: list[str], other: str) -> None:
    path_hash = Paths(paths)
    for i, path in enumerate(paths):
        leaves = parse_one(json.dumps({path: 1}).encode(), path_hash)
        assert leaves.attributes.tolist() == [i]
        nested = 1
        for key in reversed(path.split(".")):
            nested = {key: nested}  # type: ignore[assignment]
        assert parse_one(json.dumps(nested).encode(), path_hash).attributes.tolist() == [i]
    if other not in paths:
        assert parse_one(json.dumps({other: 1}).encode(), path_hash).attributes.size == 0


OTHERS = "all other strings"


def check_strings(event: bytes) -> int:
    """Compare the parser with Python on one event, of which it keeps all strings; return its status."""
    data = event, np.array([0]), np.array([len(event)]), PATH_HASH
    leaves, without = parse_json(*data, keeps_strings=True), parse_json(*data)
    status = int(leaves.statuses[0])
    assert (status == BAD) == (without.statuses[0] == BAD)
    assert status >= without.statuses[0] or status == BAD
    if status == OK:
        all_leaves = Event(json.loads(event)).leaves
        expected = {path: all_leaves[path] for path in PATHS if all_leaves.get(path)}
        found = leaf_values(leaves, 0, [*PATHS, OTHERS])
        others = found.pop(OTHERS, [])
        assert typed(found) == typed(expected)
        wanted = [leaf for path in all_leaves.keys() - PATHS for leaf in all_leaves[path] if isinstance(leaf, str)]
        assert sorted(others) == sorted(wanted)
    return status


@given(json_texts())
@settings(max_examples=2 * EXAMPLES, deadline=None)
def test_all_strings_are_kept_if_asked_for(text: str) -> None:
    check_strings(text.encode())


@given(objects)
@settings(max_examples=EXAMPLES, deadline=None)
def test_all_strings_of_documents(tree: dict[str, Any]) -> None:
    text = json.dumps(tree)
    status = check_strings(text.encode())
    has_big_integers = any(not -(2**63) <= int(digits) < 2**63 for digits in re.findall(r"-?\d{19,}", text))
    if not has_big_integers and "." not in "".join(map(str, all_keys(tree))):
        assert status == OK


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (b'{"x": "p", "y": ["q", 1, {"z": "r"}], "a": "s", "b": 2}', OK),
        (b'{"x": "p", "x": "q"}', SLOW),
        (b'{"x": "p", "\\u0078": "q"}', SLOW),
        (b'{"x": {"y": "p"}, "x": 1}', SLOW),
        (b'{"a": {"x": "p", "y": 1, "x": 2}}', SLOW),
        (b'{"x": [{"y": "p"}, {"y": "q"}, ["r", {"y": {"y": "s"}}]]}', OK),
        (b'{"x": [{"y": "p"}, {"y": "q", "z": "r", "y": "s"}]}', SLOW),
        (b'{"x": {"y": {"z": "p"}}, "y": {"z": "q"}, "z": "r"}', OK),
        (b'{"": {"": {"": "p"}}, "longer than eight bytes": "q", "longer than eight": "r"}', OK),
        (b'{"x": "\xff"}', BAD),
    ],
)
def test_keys_of_unknown_paths(event: bytes, status: int) -> None:
    assert check_strings(event) == status


def test_many_unknown_keys_fit_in_their_table() -> None:
    """One-letter keys fill the table more than any others; a second event finds nothing that the first one left."""
    n = 200 if config.DISABLE_JIT else 20_000
    letters = [chr(c) for c in range(0x100, 0x100 + n) if not 0xD800 <= c < 0xE000]
    wide = {"unknown": dict.fromkeys(letters, 1), "last": "x"}
    text = json.dumps(wide, ensure_ascii=False, separators=(",", ":")).encode()
    small = b'{"last":"y","unknown":"z"}'
    data = text + small + text
    starts = np.array([0, len(text), len(text) + len(small)])
    leaves = parse_json(data, starts, np.array([*starts[1:], len(data)]), PATH_HASH, keeps_strings=True)
    assert leaves.statuses.tolist() == [OK, OK, OK]
    assert [leaf_values(leaves, i, [*PATHS, OTHERS]) for i in range(3)] == [
        {OTHERS: ["x"]},
        {OTHERS: ["y", "z"]},
        {OTHERS: ["x"]},
    ]
    repeated = text[:-1] + b',"last":"y"}'
    status = parse_json(repeated, np.array([0]), np.array([len(repeated)]), PATH_HASH, keeps_strings=True).statuses
    assert status.tolist() == [SLOW]


def test_path_hash_refuses_repeated_paths() -> None:
    with pytest.raises(ValueError, match="'b' occurs twice"):
        build_path_hash(["a", "b", "b.c", "b"])


def test_path_hash_is_at_most_half_full() -> None:
    n = 300 if config.DISABLE_JIT else 30_000
    path_hash = build_path_hash([f"group.of{i % 7}.attribute{i}" for i in range(n)])
    n_used = int(np.count_nonzero(path_hash.slots[1::4] != np.uint64(2**64 - 1)))
    assert n_used == n + 8
    assert 2 * n_used <= path_hash.slots.size // 4 < 4 * n_used
    assert build_path_hash([]).slots.size == 16


def test_byte_order_mark_is_the_one_that_python_knows() -> None:
    assert check(codecs.BOM_UTF8 + b'{"a": 1}') == OK


@pytest.mark.slow
@given(json_texts(), st.data())
@settings(max_examples=5 * EXAMPLES, deadline=None)
def test_cut_anywhere(text: str, data: st.DataObject) -> None:
    event = text.encode()
    for cut in range(len(event) + 1):
        check(event[:cut])
    check(event[data.draw(st.integers(0, len(event))) :])
