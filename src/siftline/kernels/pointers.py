"""Passing arrays to kernels by their addresses.

Calling a kernel with numbers takes half the time of a call with a few arrays, and a fraction of the time of a call with
twenty arrays or a tuple of them. The owner of the addresses must keep the arrays alive. Interpreted kernels
(`not IS_COMPILED`) take the arrays themselves.

So a kernel that is called for every event takes the *handle* of a NamedTuple of arrays, and begins with `arrays_at`:

    Python    layout = handle_of(Layout(starts, postings))      a table of addresses; interpreted, the Layout itself
    kernel    layout = arrays_at(handle, Layout)                costs nothing once the code is compiled
              ... layout.postings[layout.starts[k]] ...
"""

from __future__ import annotations

import functools
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

from siftline.kernels.compiler import direct, kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

IS_COMPILED = not config.DISABLE_JIT

_ANNOTATION = re.compile(r"(?:Annotated\[)?NDArray\[np\.(\w+)\](?:, (\w+)\])?")


def table_of(arrays: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Return address and length of each array, one after the other."""
    assert all(array.flags.c_contiguous for array in arrays)
    return np.array([number for array in arrays for number in (array.ctypes.data, len(array))], dtype=np.int64)


def handle_of(arrays: Any) -> Any:
    """Return the handle of a NamedTuple of arrays, from which `arrays_at` makes one of the same class in a kernel.

    It is a table of their addresses; for interpreted kernels, the NamedTuple itself. A field can be a NamedTuple of
    arrays itself.
    """
    return table_of(_checked_arrays(arrays)) if IS_COMPILED else arrays


def _checked_arrays(arrays: Any) -> list[NDArray[Any]]:
    """Return the arrays of a NamedTuple, one after the other, each of the type that its annotation names."""
    found = []
    for array, shape in zip(arrays, _shapes(arrays.__class__), strict=True):
        if isinstance(shape, type):
            found += _checked_arrays(array)
            continue
        dtype, columns = shape
        assert array.dtype == dtype
        assert array.shape[1:] == (() if columns is None else (columns,))
        assert array.flags.aligned
        found.append(array)
    return found


def address_of(handle: Any) -> Any:
    """Return what a kernel takes that is called with the address of a handle; interpreted, the handle itself."""
    return handle.ctypes.data if IS_COMPILED else handle


def empty_handle(arrays: tuple[NDArray[Any], ...]) -> Any:
    """Return a handle for a kernel to fill in (`describe`), which takes less time than `handle_of`."""
    return np.empty(2 * len(arrays), dtype=np.int64) if IS_COMPILED else arrays


def no_arrays(kind: type) -> Any:
    """Return a NamedTuple of empty arrays of the types that it names, for `compiler.direct`."""
    return kind(*(no_arrays(shape) if isinstance(shape, type) else _no_array(*shape) for shape in _shapes(kind)))


def _no_array(dtype: Any, columns: int | None) -> NDArray[Any]:
    return np.empty(0 if columns is None else (0, columns), dtype)


def _arrays_at(typing_context: Any, table: Any, kind: Any) -> Any:
    """Return the arrays whose addresses and lengths stand in a table (`table_of`), as a NamedTuple of class `kind`.

    The table comes as an array, or as its address. The annotations of the class give the type of each array:
    `NDArray[np.int32]`, or with the number of its columns `Annotated[NDArray[np.int32], N_COLUMNS]`. A field can be a
    NamedTuple of arrays itself; the table has its arrays one after the other.
    """
    is_array = isinstance(table, types.Array)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers = ir.IntType(64).as_pointer()
        at = make_array(signature.args[0])(context, builder, arguments[0]).data if is_array else arguments[0]
        at = builder.bitcast(at, numbers) if is_array else builder.inttoptr(at, numbers)
        made, _ = _made_tuple(context, builder, signature.return_type, at, 0)
        return made

    return _type_of(kind.instance_class)(table if is_array else types.int64, kind), code


def _type_of(kind: type) -> Any:
    """Return the type of a NamedTuple of arrays."""
    items = [_type_of(shape) if isinstance(shape, type) else _array_type(*shape) for shape in _shapes(kind)]
    return types.NamedTuple(items, kind)


def _array_type(dtype: str, columns: int | None) -> Any:
    return types.Array(from_dtype(np.dtype(dtype)), 1 if columns is None else 2, "C")


def _made_tuple(context: Any, builder: Any, made: Any, table: Any, place: int) -> tuple[Any, int]:
    """Return a NamedTuple of the arrays in a table from a place on, and the place after them."""
    number = ir.IntType(64)
    values = []
    for item, shape in zip(made.types, _shapes(made.instance_class), strict=True):
        if isinstance(shape, type):
            value, place = _made_tuple(context, builder, item, table, place)
            values.append(value)
            continue
        start, length = (builder.load(builder.gep(table, [number(2 * place + k)])) for k in range(2))
        place += 1
        data_type, columns = context.get_data_type(item.dtype), shape[1]
        n_bytes = context.get_abi_sizeof(data_type)
        array = make_array(item)(context, builder)
        populate_array(
            array,
            data=builder.inttoptr(start, data_type.as_pointer()),
            shape=[length] if columns is None else [length, number(columns)],
            strides=[number(n_bytes)] if columns is None else [number(n_bytes * columns), number(n_bytes)],
            itemsize=number(n_bytes),
            meminfo=None,
        )
        values.append(array._getvalue())
    return context.make_tuple(builder, made, values), place


@functools.cache
def _shapes(kind: type) -> list[Any]:
    """Return for each field of a NamedTuple the type of its array and its number of columns, None if it has none.

    For a field that is a NamedTuple itself, return its class. The annotations are forward references: classes and
    numbers of columns are looked up in the module of the class.
    """
    names = vars(sys.modules[kind.__module__])
    shapes: list[Any] = []
    for annotation in kind.__annotations__.values():
        text = getattr(annotation, "__forward_arg__", str(annotation))
        found = _ANNOTATION.fullmatch(text)
        if found is not None:
            shapes.append((found[1], None if found[2] is None else int(names[found[2]])))
        else:
            shapes.append(names[text])
    return shapes


def _arrays_themselves(table: Any, kind: Any) -> Any:
    return table


def _describe(typing_context: Any, arrays: Any, table: Any) -> Any:
    """Write the addresses and lengths of the arrays of a NamedTuple to a table, for `arrays_at`."""
    shapes = _shapes(arrays.instance_class)
    for item, shape in zip(arrays.types, shapes, strict=True):
        wanted = _array_type(*shape)
        same = (item.dtype, item.ndim, item.layout) == (wanted.dtype, wanted.ndim, wanted.layout)
        assert same, f"{arrays.instance_class.__name__} wants {wanted}, not {item}"

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(64)
        numbers = make_array(signature.args[1])(context, builder, arguments[1]).data
        for place, item in enumerate(signature.args[0].types):
            array = make_array(item)(context, builder, builder.extract_value(arguments[0], place))
            length = cgutils.unpack_tuple(builder, array.shape, item.ndim)[0]
            builder.store(builder.ptrtoint(array.data, number), builder.gep(numbers, [number(2 * place)]))
            builder.store(length, builder.gep(numbers, [number(2 * place + 1)]))
        return context.get_dummy_value()

    return types.void(arrays, table), code


def _describe_nothing(arrays: Any, table: Any) -> None:
    pass


def _fetch(typing_context: Any, array: Any, place: Any) -> Any:
    """Prefetch the cache line of array[place]."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        items = make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(items, [arguments[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        to_fetch = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, to_fetch, "llvm.prefetch.p0")
        builder.call(function, [address, number(0), number(3), number(1)])  # to read, into the nearest cache, data
        return context.get_dummy_value()

    return types.void(array, place), code


def _fetch_nothing(array: NDArray[Any], place: Any) -> None:
    pass


def _part_of(typing_context: Any, array: Any, begin: Any, end: Any) -> Any:
    """Return array[begin:end] without counting a reference to it; both must lie within its bounds.

    The caller must keep the array alive. Counting is atomic, and takes longer than most uses of a small part.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = make_array(signature.args[0])(context, builder, arguments[0])
        part = make_array(signature.return_type)(context, builder)
        begin, end = (builder.bitcast(argument, ir.IntType(64)) for argument in arguments[1:])
        populate_array(
            part,
            data=builder.gep(whole.data, [begin]),
            shape=[builder.sub(end, begin)],
            strides=cgutils.unpack_tuple(builder, whole.strides, 1),
            itemsize=whole.itemsize,
            meminfo=None,
        )
        return part._getvalue()

    return array(array, begin, end), code


def _slice_of(array: NDArray[Any], begin: Any, end: Any) -> NDArray[Any]:
    return array[begin:end]


def _octets_of(typing_context: Any, data: Any) -> Any:
    """Return the bytes of a `bytes` object as an array, without counting a reference; the caller keeps it alive."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = make_array(signature.args[0])(context, builder, arguments[0])
        octets = make_array(signature.return_type)(context, builder)
        populate_array(
            octets,
            data=source.data,
            shape=cgutils.unpack_tuple(builder, source.shape, 1),
            strides=cgutils.unpack_tuple(builder, source.strides, 1),
            itemsize=source.itemsize,
            meminfo=None,
        )
        return octets._getvalue()

    return types.Array(types.uint8, 1, "C", readonly=True)(data), code


def _octets_from(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8)


# Interpreted kernels get the arrays instead of a table (`handle_of`).
arrays_at = intrinsic(_arrays_at) if IS_COMPILED else _arrays_themselves
describe = intrinsic(_describe) if IS_COMPILED else _describe_nothing
fetch = intrinsic(_fetch) if IS_COMPILED else _fetch_nothing
part_of = intrinsic(_part_of) if IS_COMPILED else _slice_of
octets_of = intrinsic(_octets_of) if IS_COMPILED else _octets_from


class EventValues(NamedTuple):
    """The values of one event."""

    attributes: NDArray[np.int32]
    codes: NDArray[np.int32]


# Words of an event's header, which is a table of `EventValues`.
HEADER_SIZE = 2 * len(EventValues._fields)


@kernel
def describe_event(attributes: NDArray[np.int32], codes: NDArray[np.int32], header: NDArray[np.int64]) -> int:
    """Write the addresses of an event's arrays, and their lengths, to a header; return its address."""
    describe(EventValues(attributes, codes), header)
    return header.ctypes.data


@functools.cache
def event_describer() -> Callable[[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]], int]:
    """Return `describe_event` for callers that pass arguments of the right types."""
    return direct(describe_event, np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64))
