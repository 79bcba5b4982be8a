from __future__ import annotations

import datetime
import decimal
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import N_EXAMPLES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba.core import config

from siftline.encoding import domain_tables
from siftline.encoding.arrow_events import ArrowSource
from siftline.encoding.domains import Domains, Pattern
from siftline.encoding.events import DictSource, Source
from siftline.errors import EventError, TableError
from siftline.kernels.arrange import arrange
from siftline.model import Event, iso_text

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = 25 if config.DISABLE_JIT else 5 * N_EXAMPLES // 4
relaxed = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Codes = list[Counter[tuple[int, int]]]


def codes_of(source: Source, domains: Domains) -> Codes:
    starts, attributes, codes = source.encode(domains)
    assert starts.dtype == np.int64
    assert attributes.dtype == codes.dtype == np.int32
    assert len(starts) == len(source) + 1
    assert starts[0] == 0
    assert starts[-1] == len(attributes) == len(codes)
    pairs = list(zip(attributes.tolist(), codes.tolist(), strict=True))
    return [Counter(pairs[start:end]) for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]


def check(source: Source, trees: list[Any], domains: Domains) -> None:
    """Assert that the source means the same as the trees do, encoded and given back."""
    expected = codes_of(DictSource(trees), domains)
    assert codes_of(source, domains) == expected
    assert codes_of(DictSource([source.tree(i) for i in range(len(source))]), domains) == expected


def domains_of(constants: dict[str, set[Any]]) -> Domains:
    domains = Domains()
    domains.add(constants)
    return domains


class Shape(NamedTuple):
    """An Arrow type, values to make an array of, and what they mean."""

    type: Any
    values: st.SearchStrategy[Any]
    meaning: Callable[[Any], Any]


def same(value: Any) -> Any:
    return value


def moment_text(units: int, per_second: int) -> str:
    seconds, fraction = divmod(units, per_second)
    text = iso_text(datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds))
    return f"{text[:20]}{fraction * (10**9 // per_second):09d}Z"


INTEGERS = st.sampled_from([0, 1, 2, -1, 3, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**62 + 1])
UNSIGNED = st.sampled_from([0, 1, 2, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 2**64 - 2048])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, 1.5, 2.0, 2.0**53, 2.0**63, 1e300, math.nan, math.inf, -math.inf])
STRINGS = st.sampled_from(
    ["", "a", "b", "ab", "abcdefgh", "abcdefghi", "é" * 9, "\U0001f600", "a longer one than that"]
)
SMALL = st.integers(0, 4)
DATES = st.dates() | st.sampled_from([datetime.date.min, datetime.date.max, datetime.date(2000, 2, 29)])


def timestamps(unit: str, zone: str | None) -> Shape:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    first, last = -62_135_596_800 * per_second, 253_402_300_800 * per_second - 1
    units = st.integers(max(first, -(2**63) + 1), min(last, 2**63 - 1)) | st.sampled_from([0, 1, -1])
    return Shape(pa.timestamp(unit, zone), units, lambda value: moment_text(value, per_second))


def decimals(type_: Any, values: list[str]) -> Shape:
    # With as many digits behind the point as the type has.
    unit, context = decimal.Decimal(1).scaleb(-type_.scale), decimal.Context(prec=80)
    drawn = st.sampled_from([decimal.Decimal(value) for value in values])
    return Shape(type_, drawn, lambda value: value.quantize(unit, context=context))


FIXED_SHAPES = [
    Shape(pa.null(), st.none(), same),
    Shape(pa.bool_(), st.booleans(), same),
    Shape(pa.int64(), INTEGERS, same),
    Shape(pa.uint64(), UNSIGNED, same),
    *(Shape(type_, SMALL, same) for type_ in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32())),
    Shape(pa.float64(), FLOATS, same),
    Shape(pa.float32(), st.sampled_from([0.5, 1.0, math.nan, math.inf]), same),
    Shape(pa.float16(), st.sampled_from([np.float16(0.5), np.float16(1.0), np.float16(math.nan)]), float),
    *(Shape(type_, STRINGS, same) for type_ in (pa.string(), pa.large_string(), pa.string_view())),
    Shape(pa.date32(), DATES, iso_text),
    Shape(pa.date64(), DATES, iso_text),
    *(timestamps(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Europe/Berlin")),
    decimals(pa.decimal32(7, 2), ["0", "1", "1.5", "-2.25", "19.99"]),
    decimals(pa.decimal64(15, 3), ["0", "19.99", "-0.001"]),
    decimals(pa.decimal128(20, 2), ["0", "1", "19.99", "-2.25", "9007199254740993.00", "1.00"]),
    decimals(pa.decimal128(38, 0), ["0", "1", "9007199254740993", "18446744073709551616", str(2**64 + 1), "-1"]),
    decimals(pa.decimal128(38, 0), ["0", "1", "9007199254740993", "-9007199254740993", "9223372036854775807"]),
    decimals(pa.decimal128(38, 10), ["0.1", str(2**53 + 1), "9007199254740993.0000000001", "1e27"]),
    decimals(pa.decimal128(5, -2), ["100", "200"]),
    decimals(pa.decimal256(76, 1), ["0.5", "0.1", "2", "1" + "0" * 60, "-" + "9" * 70]),
    decimals(pa.decimal256(76, 0), ["5", "1" + "0" * 60, "-" + "9" * 70, "18446744073709551617"]),
    Shape(pa.dictionary(pa.int8(), pa.string()), STRINGS, same),
    Shape(pa.dictionary(pa.int32(), pa.int64()), INTEGERS, same),
    Shape(pa.run_end_encoded(pa.int32(), pa.int64()), SMALL, same),
    Shape(pa.run_end_encoded(pa.int16(), pa.string()), STRINGS, same),
]


def or_null(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def nullable(meaning: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else meaning(value)


def lists_of(inner: Shape, type_: Any, n: int | None = None) -> Shape:
    meaning = nullable(inner.meaning)
    elements = st.lists(or_null(inner.values), min_size=n or 0, max_size=3 if n is None else n)
    return Shape(type_, elements, lambda value: [meaning(element) for element in value])


def list_shapes(inner: Shape) -> st.SearchStrategy[Shape]:
    plain = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]
    shapes = [lists_of(inner, make(inner.type)) for make in plain]
    return st.sampled_from([*shapes, lists_of(inner, pa.list_(inner.type, 2), 2)])


def map_shape(inner: Shape) -> Shape:
    entries = st.lists(st.tuples(st.sampled_from(["x", "y", "x.y", "", "é"]), or_null(inner.values)), max_size=3)
    meaning = nullable(inner.meaning)
    return Shape(pa.map_(pa.string(), inner.type), entries, lambda pairs: [{key: meaning(item)} for key, item in pairs])


def struct_shape(fields: dict[str, Shape]) -> Shape:
    values = st.fixed_dictionaries({name: or_null(shape.values) for name, shape in fields.items()})

    def meaning(value: dict[str, Any]) -> dict[str, Any]:
        return {name: nullable(fields[name].meaning)(item) for name, item in value.items()}

    return Shape(pa.struct([(name, shape.type) for name, shape in fields.items()]), values, meaning)


def nested(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    structs = st.dictionaries(st.sampled_from(["x", "y", "x.y"]), inner, min_size=1, max_size=2).map(struct_shape)
    return inner.flatmap(list_shapes) | inner.map(map_shape) | structs


def is_buildable(shape: Shape) -> bool:
    """pa.array builds runs only where they are not nested."""
    return not pa.types.is_run_end_encoded(shape.type)


plain_shapes = st.sampled_from(FIXED_SHAPES)
shapes = plain_shapes | st.recursive(plain_shapes.filter(is_buildable), nested, max_leaves=3)


def array_of(shape: Shape, values: list[Any], padding: tuple[int, int]) -> Any:
    """Return an array with an offset: a slice of a longer one."""
    before, after = padding
    filler = values[:1] or [None]
    array = pa.array(filler * before + values + filler * after, shape.type)
    return array.slice(before, len(values))


@st.composite
def columns(draw: st.DrawFn, shape: Shape, n: int) -> tuple[Any, list[Any]]:
    values = draw(st.lists(or_null(shape.values), min_size=n, max_size=n))
    cut = draw(st.integers(0, n))
    paddings = draw(st.tuples(*[st.tuples(st.integers(0, 9), st.integers(0, 2))] * 2))
    chunks = [array_of(shape, part, pad) for part, pad in zip((values[:cut], values[cut:]), paddings, strict=True)]
    return pa.chunked_array(chunks, shape.type), [nullable(shape.meaning)(value) for value in values]


@st.composite
def domains_for(draw: st.DrawFn, trees: list[Any]) -> Domains:
    """Draw attributes of the trees, and some that they lack, with constants near their values."""
    constants: dict[str, set[Any]] = {"nobody": {1}}
    for tree in trees:
        for path, leaves in Event(tree).leaves.items():
            constants.setdefault(path, set()).update(
                leaf for leaf in leaves if not isinstance(leaf, (bool, type(None)))
            )
    chosen = {path: values for path, values in constants.items() if draw(st.booleans())}
    for values in chosen.values():
        # An integer beyond int64 is no constant.
        kept = {value for value in values if not isinstance(value, int) or -(2**63) <= value < 2**63}
        values.clear()
        values.update(value for value in sorted(kept, key=repr) if draw(st.booleans()))
        values.update(draw(st.sets(st.sampled_from([0, 1, 1.5, 2**53 + 1, 2.0**63, 1e60, "a", "abcdefgh", "2"]))))
    return domains_of(chosen)


@relaxed
@given(st.data())
def test_table_means_what_its_rows_mean(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 5))
    names = data.draw(st.lists(st.sampled_from(["a", "b", "a.x", "c"]), max_size=4, unique=True))
    drawn = [data.draw(columns(data.draw(shapes), n)) for _ in names]
    trees = [dict(zip(names, row, strict=True)) for row in zip(*(values for _, values in drawn), strict=True)]
    source = ArrowSource(pa.table([column for column, _ in drawn], names=names))
    check(source, trees, data.draw(domains_for(trees)))


@relaxed
@given(st.data())
def test_event_column_of_structs_or_maps(data: st.DataObject) -> None:
    inner = data.draw(shapes.filter(is_buildable))
    shape = data.draw(st.sampled_from([map_shape(inner), struct_shape({"x": inner, "y": FIXED_SHAPES[2]})]))
    values = data.draw(st.lists(shape.values, max_size=4))
    array = array_of(shape, values, data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3))) if values else (0, 0))
    trees = [shape.meaning(value) for value in values]
    trees = [_merged(tree) if isinstance(tree, list) else tree for tree in trees]
    domains = data.draw(domains_for(trees))
    check(ArrowSource(array), trees, domains)
    check(ArrowSource(pa.table({"other": pa.nulls(len(array)), "payload": array}), event="payload"), trees, domains)


def _merged(objects: list[dict[str, Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for single in objects:
        for key, value in single.items():
            tree.setdefault(key, []).append(value)
    return tree


@pytest.mark.parametrize("shape", FIXED_SHAPES, ids=lambda shape: str(shape.type))
@settings(max_examples=3 if config.DISABLE_JIT else 20, deadline=None)
@given(st.data())
def test_every_plain_type(shape: Shape, data: st.DataObject) -> None:
    column, values = data.draw(columns(shape, 6))
    trees = [{"a": value} for value in values]
    check(ArrowSource(pa.table({"a": column})), trees, data.draw(domains_for(trees)))


def test_maps_while_waiting_for_enough_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_tables, "_CONSTANTS_PER_EVENT", 0)
    rows: list[Any] = [[("x", 1.0), ("y", math.nan)], [("y", 2.5), ("z", 3.0), ("y", None)], None, []]
    array = pa.array(rows, pa.map_(pa.string(), pa.float64()))
    trees = [{"m": None if row is None else [{key: item} for key, item in row]} for row in rows]
    domains = domains_of({"q": {1, 2}, "m.y": {2, 3}, "m": {1}, "m.x": {1}})
    check(ArrowSource(pa.table({"m": array})), trees, domains)
    assert domains.lines[1]


def test_maps_with_coded_keys_and_items() -> None:
    keys = pa.array(["x", "y", "x"]).dictionary_encode()
    items = pa.array(["u", None, "v"]).dictionary_encode()
    array = pa.MapArray.from_arrays(pa.array([0, 2, 3], pa.int32()), keys, items)
    trees = [{"m": {"x": "u", "y": None}}, {"m": {"x": "v"}}]
    check(ArrowSource(pa.table({"m": array})), trees, domains_of({"m.x": {"u"}, "m.y": set()}))


def test_what_lies_under_nulls_is_nothing() -> None:
    far = pa.array([2**62, 0, 0], pa.timestamp("s"))
    struct = pa.StructArray.from_arrays([far], names=["t"], mask=pa.array([True, False, False]))
    values = pa.array(["a", "b", "c"]).dictionary_encode()
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3]), values, mask=pa.array([True, False, False]))
    text = "1970-01-01T00:00:00.000000000Z"
    trees = [{"s": None, "l": None}, {"s": {"t": text}, "l": []}, {"s": {"t": text}, "l": ["c"]}]
    domains = domains_of({"s": set(), "s.t": {text}, "l": {"a", "c"}})
    check(ArrowSource(pa.table({"s": struct, "l": lists})), trees, domains)


def test_dictionary_with_null_entries_unused_entries_and_no_entries() -> None:
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.int8()), pa.array(["a", None, "zz"]))
    check(ArrowSource(pa.table({"a": coded})), [{"a": v} for v in ("a", None, None, "a")], domains_of({"a": {"a"}}))
    days = pa.array([datetime.date(2000, 1, 1), None]).dictionary_encode()
    check(ArrowSource(pa.table({"a": days})), [{"a": "2000-01-01"}, {"a": None}], domains_of({"a": {"2000"}}))
    prices = pa.array([decimal.Decimal("0.5"), decimal.Decimal("0.1")])
    coded = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), prices)
    check(ArrowSource(pa.table({"a": coded})), [{"a": 0.5}, {"a": None}, {"a": 0.1}], domains_of({"a": {0.1}}))
    coded = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    check(ArrowSource(pa.table({"a": coded})), [{"a": None}] * 2, domains_of({"a": {"a"}}))


def test_large_dictionary_of_a_small_slice() -> None:
    coded = pa.array([str(i) for i in range(100)]).dictionary_encode().slice(40, 2)
    check(ArrowSource(pa.table({"a": coded})), [{"a": "40"}, {"a": "41"}], domains_of({"a": {"41"}}))


def test_list_views_in_any_order() -> None:
    views = pa.ListViewArray.from_arrays(
        pa.array([2, 0, 1], pa.int32()), pa.array([2, 2, 1], pa.int32()), pa.array([1, 2, 3, 4])
    )
    check(ArrowSource(pa.table({"a": views})), [{"a": [3, 4]}, {"a": [1, 2]}, {"a": [2]}], domains_of({"a": {2, 4}}))


def test_same_name_twice_is_multi_valued() -> None:
    table = pa.table([pa.array([1, 2]), pa.array(["x", None])], names=["a", "a"])
    check(ArrowSource(table), [{"a": [1, "x"]}, {"a": [2, None]}], domains_of({"a": {1, "x"}}))
    struct = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    check(ArrowSource(pa.table({"s": struct})), [{"s": {"x": [1, 2]}}], domains_of({"s.x": {1, 2}}))


def test_runs_sliced_and_under_null_structs() -> None:
    runs = pc.run_end_encode(pa.array([1, 1, 2, None]))
    struct = pa.StructArray.from_arrays([runs], names=["x"], mask=pa.array([False, True, False, False])).slice(1)
    trees = [{"s": None}, {"s": {"x": 2}}, {"s": {"x": None}}]
    check(ArrowSource(pa.table({"s": struct})), trees, domains_of({"s.x": {2}, "s": {0}}))


def test_no_rows_no_columns_no_attributes() -> None:
    domains = domains_of({"a": {1}})
    check(ArrowSource(pa.table({"a": pa.array([], pa.int64())})), [], domains)
    check(ArrowSource(pa.table({"a": [1, 2]}).select([])), [{}, {}], domains)
    check(ArrowSource(pa.table({"a": [1, 2]})), [{"a": 1}, {"a": 2}], Domains())
    check(ArrowSource(pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))), [{"a": 1}], Domains())
    check(ArrowSource(pa.chunked_array([], pa.struct([("a", pa.int64())]))), [], domains)


def test_record_batch_and_many_blocks() -> None:
    n = 200 if config.DISABLE_JIT else 40_000
    numbers = [i % 7 for i in range(n)]
    lists = [[i % 3] * (i % 4) for i in range(n)]
    batch = pa.record_batch({"a": pa.array(numbers), "b": pa.array(lists, pa.list_(pa.int64()))})
    table = pa.Table.from_batches([batch.slice(0, 100), batch.slice(100)])
    trees = [{"a": a, "b": b} for a, b in zip(numbers, lists, strict=True)]
    domains = domains_of({"a": {3, 5}, "b": {1}})
    expected = codes_of(DictSource(trees), domains)
    assert codes_of(ArrowSource(batch), domains) == expected
    assert codes_of(ArrowSource(table), domains) == expected


@pytest.mark.parametrize(
    "type_",
    [pa.binary(), pa.time32("s"), pa.duration("s"), pa.month_day_nano_interval(), pa.binary(4), pa.json_()],
    ids=str,
)
def test_types_without_meaning_are_refused_even_unused(type_: Any) -> None:
    table = pa.table({"good": [1], "bad": pa.nulls(1, type_)})
    with pytest.raises(TableError, match="column 'bad'") as caught:
        ArrowSource(table)
    assert str(type_) in str(caught.value)
    nested_type = pa.struct([("x", pa.list_(type_))])
    with pytest.raises(TableError, match=r"column 's\.x'"):
        ArrowSource(pa.table({"s": pa.nulls(1, nested_type)}))


def test_maps_need_strings_as_keys_and_types_must_not_nest_too_deep() -> None:
    with pytest.raises(TableError, match="column 'm': the keys of a map must be strings, not int64"):
        ArrowSource(pa.table({"m": pa.nulls(1, pa.map_(pa.int64(), pa.int64()))}))
    type_ = pa.int64()
    for _ in range(99):
        type_ = pa.list_(type_)
    ArrowSource(pa.table({"a": pa.nulls(1, type_)}))
    with pytest.raises(TableError, match="column 'a' nests deeper"):
        ArrowSource(pa.table({"a": pa.nulls(1, pa.list_(type_))}))


def test_missing_event_column_names_those_there_are() -> None:
    with pytest.raises(TableError, match="no column 'payload'; there are: 'a', 'b'"):
        ArrowSource(pa.table({"a": [1], "b": [2]}), event="payload")
    with pytest.raises(TableError, match="column 'a': events must be JSON text, structs or maps, not int64"):
        ArrowSource(pa.table({"a": [1]}), event="a")


@pytest.mark.parametrize(
    "type_", [pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64()), pa.string()], ids=str
)
def test_null_events(type_: Any) -> None:
    good = {"a": 1} if not pa.types.is_string(type_) else '{"a": 1}'
    array = pa.array([good, None, good], type_)
    with pytest.raises(EventError, match="event 1"):
        ArrowSource(pa.table({"payload": array}), event="payload")
    source = ArrowSource(array, skip_bad=True)
    assert codes_of(source, domains_of({"a": {1}}))[1] == Counter()
    assert list(source.errors) == [1]


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (pa.array([0, None, 3_000_000], pa.date32()), "a date outside the years 1 to 9999"),
        (pa.array([0, None, -(2**40)], pa.timestamp("s")), "a date outside the years 1 to 9999"),
        (pa.array([0, None, 2**62], pa.timestamp("us", "UTC")), "a date outside the years 1 to 9999"),
    ],
    ids=str,
)
def test_values_without_meaning_are_refused_where_used(array: Any, reason: str) -> None:
    source = ArrowSource(pa.table({"a": array, "b": [1, 2, 3]}))
    with pytest.raises(EventError, match=f"event 2: attribute 'a': {reason}"):
        source.encode(domains_of({"a": {"x"}}))
    check(source, [{"b": 1}, {"b": 2}, {"b": 3}], domains_of({"b": {2}}))
    lists = ArrowSource(pa.table({"l": pa.ListArray.from_arrays(pa.array([0, 0, 3]), array)}))
    with pytest.raises(EventError, match=f"event 1: attribute 'l': {reason}"):
        lists.encode(domains_of({"l": {"x"}}))
    maps = pa.MapArray.from_arrays(pa.array([0, 0, 3], pa.int32()), pa.array(["x", "y", "z"]), array)
    with pytest.raises(EventError, match=rf"event 1: attribute 'm\.z': {reason}"):
        ArrowSource(pa.table({"m": maps})).encode(domains_of({"m.z": {"x"}}))


@pytest.mark.parametrize(
    "type_",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()],
    ids=str,
)
def test_event_column_of_json_text(type_: Any) -> None:
    texts = ['{"a": 1}', '{"a": [2, "é"]}', '{"a": 1, "a": 3}', "{}"]
    array = pa.array([text.encode() if pa.types.is_binary(type_) else text for text in texts], type_)
    trees = [{"a": 1}, {"a": [2, "é"]}, {"a": 3}, {}]
    domains = domains_of({"a": {2, "é"}})
    check(ArrowSource(array.slice(1)), trees[1:], domains)
    chunked = pa.chunked_array([array.slice(0, 1), array.slice(1)])
    check(ArrowSource(pa.table({"payload": chunked}), event="payload"), trees, domains)


def test_event_column_of_coded_or_typed_json() -> None:
    texts = pa.array(['{"a": 1}', '{"a": 1}'])
    for array in (texts.dictionary_encode(), texts.cast(pa.json_()), pa.chunked_array([texts.cast(pa.json_())])):
        check(ArrowSource(array), [{"a": 1}, {"a": 1}], domains_of({"a": {1}}))


def test_text_that_is_not_utf8_does_not_break_the_tree() -> None:
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 2], dtype=np.int32)), pa.py_buffer(b"a\xff"))
    source = ArrowSource(pa.table({"a": broken, "b": [1]}))
    assert source.tree(0) == {"a": "a\ufffd", "b": 1}
    assert codes_of(source, domains_of({"b": {1}})) == codes_of(DictSource([{"b": 1}]), domains_of({"b": {1}}))


def test_dates_over_four_centuries() -> None:
    days = np.arange(-146_100, 146_100, 5_003 if config.DISABLE_JIT else 13, dtype=np.int32)
    texts = [str(day) for day in days.astype("datetime64[D]")]
    source = ArrowSource(pa.table({"a": pa.array(days, pa.date32())}))
    assert [source.tree(i)["a"] for i in range(0, len(days), 100)] == texts[::100]
    domains = domains_of({"a": set(texts)})
    labels = domains.domains[0].strings.labels
    assert source.encode(domains)[2].tolist() == labels


def test_arrange_keeps_rows_apart() -> None:
    codes = np.array([[1, 2], [3, 4]], dtype=np.int32)
    rows = np.array([1, 0, 1], dtype=np.int64)
    more = np.array([7, 8, 9], dtype=np.int32)
    starts, attributes, all_codes = arrange(2, np.array([5, 6], dtype=np.int32), codes, rows, more, more)
    assert starts.tolist() == [0, 3, 7]
    assert attributes.tolist() == [5, 6, 8, 5, 6, 7, 9]
    assert all_codes.tolist() == [1, 3, 8, 2, 4, 7, 9]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_strings_that_are_no_utf8_are_searched_as_what_stands_for_them(kind: pa.DataType) -> None:
    domains = Domains()
    for op, operand in (
        ("contains", "b"),
        ("contains", "\ufffd"),
        ("starts with", "é"),
        ("like", "_"),
        ("matches", "^b.$"),
    ):
        domains.pattern_attribute(Pattern(domains.intern("a"), op, operand))
    values = [b"b\xff", None, b"\xc3\xa9", b"", b"\xed\xa0\x80", b"b", b"\xff", b"abc", "bé".encode(), b"b\xff"]
    array = pa.array(values, kind).view(pa.large_string() if pa.types.is_large_binary(kind) else pa.string())
    for part in (array, array.slice(2), array.slice(1, 4), array.dictionary_encode(), array.slice(0, 0)):
        source = ArrowSource(pa.table({"a": part}))
        trees = [source.tree(i) for i in range(len(source))]
        found, expected = (_patterns_of(each, domains) for each in (source, DictSource(trees)))
        assert found == expected


def _patterns_of(source: Source, domains: Domains) -> list[set[int]]:
    return [{attribute for attribute, _ in event if attribute} for event in codes_of(source, domains)]
