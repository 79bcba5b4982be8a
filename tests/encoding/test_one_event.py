"""One event at a time: the short way gives what the careful way gives, or gives up."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import json
import threading
import uuid
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pytest
from conftest import N_EXAMPLES
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba.core import config
from strategies import TIMES

from siftline import Engine
from siftline.encoding import domain_tables, one_event
from siftline.encoding.domains import AGE, ANY_STRING, INSTANT, Domains, MomentOf, Pattern
from siftline.encoding.events import DictSource
from siftline.encoding.json_events import one_json
from siftline.encoding.one_event import EventEncoder, Workspace, encoder_of, plain_json
from siftline.errors import EventError
from siftline.model import instant_of_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.encoding.events import Source

EXAMPLES = 25 if config.DISABLE_JIT else 3 * N_EXAMPLES
relaxed = settings(max_examples=EXAMPLES, deadline=None)

too_much_for_python = pytest.mark.skipif(config.DISABLE_JIT, reason="takes minutes if kernels are interpreted")

PATHS = ["a", "b", "a.b", "b.a", "", "é", "a.b.a"]
CONSTANTS: Final = [0, 1, 0.5, 2**53 + 1, 2**63 - 1, 1e16, 1e30, "", "a", "abcdefgh", "é", "\ud800"]
PATTERNS: Final = [
    Pattern(0, "contains", "a"),
    Pattern(0, "ends with", "gh"),
    Pattern(0, "matches", "^a.*h$"),
    Pattern(0, "matches", "abc.*h"),
    Pattern(0, "ilike", "%É%"),
    Pattern(0, "cidr", "10.0.0.0/8"),
    Pattern(0, "like", "%"),
]


class Plain(enum.Enum):
    ONE = 1
    MANY = (1, 2)


class Number(enum.IntEnum):
    ONE = 1


class Name(str):
    __slots__ = ()


@dataclasses.dataclass
class Point:
    a: int = 1


Pair = collections.namedtuple("Pair", ["a", "b"])

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([0, 1, -1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30])
    | st.sampled_from(["", "a", "abcdefgh", "abcdefghi", 'quote " \\ \n', "aé\U0001f600", "\ud800", "1", "10.1.2.3"])
)
odd = st.sampled_from(
    [
        *(Plain.ONE, Plain.MANY, Number.ONE, Name("a"), Point(), Pair(1, "a"), {1, "a"}, frozenset(), (1, ("a",))),
        *(decimal.Decimal("0.5"), decimal.Decimal(1), uuid.UUID(int=5), b"a", 1j, object()),
        *(datetime.datetime(2026, 1, 31), datetime.date(2026, 1, 31), datetime.time(1), datetime.timedelta(1)),
        *(np.float64(0.5), np.int64(1), np.str_("a"), np.bool_(True), np.array([1]), np.datetime64("2026-01-31")),
        *(
            collections.OrderedDict(a=1),
            {1: 2},
            {Name("a"): 1},
            {None: 1},
            orjson.Fragment(b'"a"'),
            orjson.Fragment(b"x"),
        ),
    ]
)
keys = st.sampled_from(["a", "b", "a.b", "", "é", "other", "long key of an attribute"])


def objects_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(keys, inner, max_size=3)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    arrays_and_objects: Callable[[Any], Any] = lambda inner: st.lists(inner, max_size=3) | objects_of(inner)  # noqa: E731
    return objects_of(st.recursive(leaves, arrays_and_objects, max_leaves=6))


plain_objects = nested(scalars)
any_objects = nested(scalars | scalars | odd)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Draw JSON texts with white space, escapes, repeated keys and damage."""
    members = draw(
        st.lists(st.tuples(keys, st.recursive(scalars, lambda inner: st.lists(inner, max_size=2))), max_size=4)
    )
    space = draw(st.sampled_from(["", " ", "\n\t ", "\r\n"]))
    dumped = functools.partial(json.dumps, ensure_ascii=draw(st.booleans()))
    written = [space.join(["", dumped(key), ":", dumped(value), ""]) for key, value in members]
    numbers = draw(
        st.sampled_from(["", "1e5", "-0.0", "1.5E-3", "123456789012345678901234567890.5", "1e400", "-Infinity"])
    )
    written += [f'"a": {numbers}'] if numbers else []
    text = f"{space}{{{','.join(written)}}}{space}".encode("utf-8", "surrogatepass")
    text = b"\xef\xbb\xbf" + text if draw(st.integers(0, 9)) == 0 else text
    if draw(st.integers(0, 3)) == 0:
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.binary(max_size=2)) + text[place + draw(st.integers(0, 2)) :]
    return text


@st.composite
def some_domains(draw: st.DrawFn) -> Domains:
    """Draw domains, with patterns between the attributes, and patterns of all strings."""
    domains = Domains()
    domains.add({path: draw(st.sets(st.sampled_from(CONSTANTS))) for path in draw(st.sets(st.sampled_from(PATHS)))})
    for pattern in draw(st.lists(st.sampled_from(PATTERNS), unique=True)):
        owner = domains.intern(draw(st.sampled_from(PATHS)))
        domains.pattern_attribute(pattern._replace(attribute=draw(st.sampled_from([owner, ANY_STRING]))))
    return domains


def codes_of(source: Source, domains: Domains) -> collections.Counter[tuple[int, int]] | None:
    """Return what the careful way gives; None if it refuses the event."""
    try:
        starts, attributes, codes = source.encode(domains)
    except EventError:
        return None
    assert len(starts) == 2
    return collections.Counter(zip(attributes.tolist(), codes.tolist(), strict=True))


def encoder_for(domains: Domains) -> EventEncoder:
    encoder = encoder_of(domains)
    while encoder is None:  # until enough events have waited for it
        encoder = encoder_of(domains)
    return encoder


def located(event: object, domains: Domains) -> collections.Counter[tuple[int, int]] | None:
    """Return what the short way gives; None if it gives up."""
    encoder = encoder_for(domains)
    workspace = encoder.locate(event)
    if workspace is None:
        return None
    encoded = workspace.encoded(event)
    attributes, codes = encoded.attributes, encoded.codes
    assert attributes.dtype == codes.dtype == np.int32
    assert encoded.is_single
    assert encoded.fits(domains)
    return collections.Counter(zip(attributes.tolist(), codes.tolist(), strict=True))


@relaxed
@given(texts(), some_domains())
@example(b"", Domains())
@example(b"{}", Domains())
@example(b'{"a": 1, "a": [2]}', Domains())
@example(b'{"a": "\xff"}', Domains())
def test_a_text_has_the_codes_that_a_batch_gives_it(text: bytes, domains: Domains) -> None:
    found, expected = located(text, domains), codes_of(one_json(text), domains)
    assert found is None or found == expected


@relaxed
@given(plain_objects, some_domains())
def test_plain_dicts_have_the_codes_of_the_model(tree: dict[str, Any], domains: Domains) -> None:
    expected = codes_of(DictSource([tree]), domains)
    assert located(tree, domains) in (None, expected)
    text = json.dumps(tree).encode()
    assert located(text, domains) in (None, expected)
    assert located(text.decode(), domains) in (None, expected)


@relaxed
@given(any_objects, some_domains())
@example({"a": Plain.MANY}, Domains())
@example({"a": [{"b": orjson.Fragment(b'{"a": 1')}]}, Domains())
def test_what_is_not_plain_json_takes_the_careful_way(tree: dict[str, Any], domains: Domains) -> None:
    found, expected = located(tree, domains), codes_of(DictSource([tree]), domains)
    assert found is None or found == expected


@relaxed
@given(st.dictionaries(keys, st.none() | st.integers(-(2**63), 2**63 - 1) | st.text("aé\n"), max_size=3))
def test_usual_events_take_the_short_way(tree: dict[str, Any]) -> None:
    domains = Domains()
    domains.add({path: set(CONSTANTS) for path in PATHS})
    domains.pattern_attribute(Pattern(0, "contains", "a"))
    for event in (tree, json.dumps(tree), json.dumps(tree).encode()):
        assert located(event, domains) == codes_of(DictSource([tree]), domains)


class TestGivingUp:
    def test_an_object_that_contains_itself(self) -> None:
        tree: dict[str, Any] = {"a": []}
        tree["a"].append(tree)
        assert plain_json(tree) is None
        deep: dict[str, Any] = {}
        for _ in range(2000):
            deep = {"a": deep}
        assert plain_json(deep) is None

    @pytest.mark.parametrize("event", [None, 5, [], bytearray(b"{}"), memoryview(b"{}"), collections.OrderedDict()])
    def test_what_is_neither_text_nor_dict(self, event: object) -> None:
        assert encoder_for(Domains()).locate(event) is None


@relaxed
@given(
    st.dictionaries(
        keys, st.sampled_from(TIMES) | st.lists(st.sampled_from([*TIMES, "a"]), max_size=3) | st.booleans()
    ),
    st.sets(st.tuples(st.sampled_from(PATHS), st.sampled_from([INSTANT, AGE]))),
    st.booleans(),
)
def test_times_have_instants_and_ages(tree: dict[str, Any], asked: set[tuple[str, str]], are_beside: bool) -> None:
    domains = Domains()
    ages: set[Any] = {0, 3_600 * 10**9, instant_of_text("2026-01-31T10:00:00Z")}
    domains.add({MomentOf(path, op): ages for path, op in asked})
    if not are_beside:
        domains.merge()
    now = instant_of_text("2026-01-31T11:00:00Z")
    assert now is not None
    workspace = encoder_for(domains).locate(tree, now)
    assert workspace is not None
    encoded = workspace.encoded(tree)
    starts, attributes, codes = DictSource([tree]).encode(domains, now)
    assert len(starts) == 2
    found = zip(encoded.attributes.tolist(), encoded.codes.tolist(), strict=True)
    assert collections.Counter(found) == collections.Counter(zip(attributes.tolist(), codes.tolist(), strict=True))
    assert encoded.now == now


def test_ages_are_of_the_time_of_the_match() -> None:
    engine = Engine()
    engine.add("at > now() - interval '1 day'", id=1)
    for event in ({"at": "2026-01-31"}, b'{"at": "2026-01-31"}', '{"at": "2026-01-31"}'):
        for _ in range(3):
            assert engine.match(event, now="2026-01-31T10:00:00Z") == [1]
            assert engine.match(event, now="2026-03-31T10:00:00Z") == []
        encoded = engine.encode(event)
        assert engine.match(encoded, now="2026-01-31T10:00:00Z") == [1]
        assert engine.match(encoded, now="2026-03-31T10:00:00Z") == []
    assert engine.match({"at": datetime.datetime.now(datetime.UTC).isoformat()}) == [1]
    text = json.dumps({"at": datetime.datetime.now(datetime.UTC).isoformat()})
    assert engine.match(text) == engine.match(text) == [1]
    assert engine.match(engine.encode({"at": "2020-01-31"})) == []


def beside(constants: dict[str, set[Any]], more: dict[str, set[Any]]) -> Domains:
    """Return domains with constants beside the flat arrays, unless there are none."""
    domains = Domains()
    domains.add(constants)
    domains.merge()
    domains.pattern_attribute(Pattern(domains.intern("a"), "contains", "a"))
    domains.pattern_attribute(Pattern(ANY_STRING, "contains", "b"))
    domains.add(more)
    return domains


some_constants = st.dictionaries(st.sampled_from(PATHS), st.sets(st.sampled_from(CONSTANTS)), max_size=4)


@relaxed
@given(plain_objects, some_constants, some_constants)
def test_constants_beside_the_flat_arrays_count(tree: dict[str, Any], constants: Any, more: Any) -> None:
    domains = beside(constants, more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(domain_tables, "_CONSTANTS_PER_EVENT", 0)
        assert located(tree, domains) in (None, codes_of(DictSource([tree]), domains))
        encoder = domains.encoder
        assert encoder is not None
        assert encoder.needs_lock == bool(domains.lines[1])


def test_constants_beside_the_flat_arrays_are_merged_when_enough_events_came() -> None:
    domains = beside({"a": set(range(2000))}, {"a": {0.5}})
    assert encoder_for(domains).needs_lock
    for i in range(10):
        domains.add({"a": {i + 0.25}})
        for event in ({"a": i + 0.25}, {"a": 0.5}, {"a": "b"}, {"a": i}):
            assert located(event, domains) == codes_of(DictSource([event]), domains)
    domains.merge()
    assert not encoder_for(domains).needs_lock


def test_new_attributes_wait_for_a_table_of_paths() -> None:
    domains = Domains()
    domains.add({f"a{i}": {1} for i in range(1000)})
    assert encoder_of(domains) is None
    assert encoder_for(domains) is domains.encoder


@too_much_for_python
def test_events_of_all_sizes_fit() -> None:
    domains = Domains()
    domains.add({"a": {1}, "b": {"x" * 5000}})
    domains.pattern_attribute(Pattern(0, "contains", "é"))
    for n in (0, 1, 100, 5000, 20_000, 10, one_event._MOST_BYTES, 5):
        for tree in ({"a": ["aé"] * (n // 8)}, {"b": "x" * n, "a": "É" * (n // 4)}, {"é" * (n // 2): 1, "a": 1}):
            expected = codes_of(DictSource([tree]), domains)
            assert located(tree, domains) == (
                expected if len(plain_json(tree) or b"") <= one_event._MOST_BYTES else None
            )


@too_much_for_python
def test_more_patterns_than_there_was_room_for() -> None:
    domains = Domains()
    for i in range(20_000):
        domains.pattern_attribute(Pattern(domains.intern("a"), "contains", f"{i:05}"))
    text = "".join(f"{i:05}" for i in range(9_000))
    tree = {"a": [text, "00007"]}
    assert located({"a": "00001"}, domains) == codes_of(DictSource([{"a": "00001"}]), domains)
    found = located(tree, domains)
    assert found == codes_of(DictSource([tree]), domains)
    assert found is not None
    assert len(found) > 9_000


def test_room_for_patterns_takes_none_from_values() -> None:
    """Every leaf of an event has a place among its values before patterns are looked for."""
    workspace = Workspace()
    n_leaves = len(workspace.scratch.leaves.attributes)
    workspace.make_room_for_values(1)
    assert len(workspace.scratch.codes) >= n_leaves <= len(workspace.scratch.attributes)


def test_many_regular_expressions_left_open() -> None:
    domains = Domains()
    for i in range(50):
        domains.pattern_attribute(Pattern(domains.intern("a"), "matches", f"lit[a-z]{i % 7}.*q{i}|literal.*z{i}"))
        domains.pattern_attribute(Pattern(domains.intern("a"), "matches", f"literal.*z{i}$"))
    tree = {"a": [f"literal z{i}" for i in range(200)]}
    assert located(tree, domains) == codes_of(DictSource([tree]), domains)


def test_layers_that_were_merged_make_a_new_encoder() -> None:
    domains = Domains()
    domains.pattern_attribute(Pattern(domains.intern("a"), "contains", "x"))
    first = encoder_for(domains)
    assert encoder_for(domains) is first
    matcher = domains.matcher
    assert matcher is not None
    domains.matcher = matcher.merged(matcher.layers, matcher.layers[0])
    assert encoder_for(domains) is not first


@too_much_for_python
def test_threads_do_not_share_what_they_write_to() -> None:
    engine = Engine()
    engine.add_many((i, f"a = {i} and b contains '{i}'") for i in range(50))
    wrong = []

    def match(first: int) -> None:
        for i in range(first, 4000):
            n = i % 50
            event = {"a": n, "b": f"-{n}-"}
            if engine.match(event if i % 2 else json.dumps(event).encode()) != [n]:
                wrong.append(n)

    threads = [threading.Thread(target=match, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    "event",
    [
        b'{"a": 1, "zz": 2, "zz": "\\ud800"}',
        b'{"a": 0, "a": 1}',
        b'{"a": 0, "a": {"b": 1}, "a": 1, "a": [1, 1]}',
        b'\xef\xbb\xbf {"a": 1}\n',
        '{"a": 1}',
        {"a": np.int64(1)},
        {"a": Number.ONE},
        {"a": (1,)},
    ],
)
def test_engines_match_events_of_every_kind_each_time(event: Any) -> None:
    engine = Engine()
    engine.add_many([(1, "a = 1"), (2, "a != 1"), (3, "a is null")])
    for _ in range(3):
        assert engine.match(event) == [1]
        assert engine.match(event, top=1) == [1]
        assert engine.match(event, first=True) == 1


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (b'{"a": 1', "not a JSON object: expecting ',' delimiter at byte 7"),
        (b'{"zz": tru}', "not a JSON object: expecting value at byte 7"),
        (b'{"a": 1} x', "not a JSON object: extra data at byte 9"),
        (b"[1]", "not a JSON object: an array"),
        (b'{"zz": "\xff"}', "not a JSON object: invalid UTF-8 at byte 8"),
        ("events.json", "events.json looks like the path of a file; give what it holds: open(path, 'rb').read()"),
        ({"zz": 10**5000}, "attribute 'zz': an integer has more than 4,300 digits"),
        (
            {"a": b"x"},
            "attribute 'a': a value of type bytes has no meaning in an event; send value.decode() if it is text",
        ),
        ({1: 2}, "a key of an event must be a string, not int: 1"),
        ({"a": Plain.MANY}, "attribute 'a': a value of type tuple has no meaning in an event; send list(value)"),
    ],
)
def test_errors_are_those_of_the_careful_way_each_time(event: Any, reason: str) -> None:
    engine = Engine()
    engine.add("a = 1", id=1)
    for _ in range(3):
        with pytest.raises(EventError) as raised:
            engine.match(event)
        assert str(raised.value) == reason
        assert engine.match({"a": 1}) == [1]
