"""Arrays by their addresses: what a kernel makes of a handle is what went into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import pytest
from numba import njit

from siftline.kernels import compiler
from siftline.kernels.pointers import IS_COMPILED, arrays_at, describe, empty_handle, handle_of, table_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

N_COLUMNS = 3

needs_compiler = pytest.mark.skipif(not IS_COMPILED, reason="interpreted kernels are given the arrays themselves")


class Some(NamedTuple):
    """Arrays of several types, one of them with columns."""

    numbers: NDArray[np.float64]
    rows: Annotated[NDArray[np.int32], N_COLUMNS]
    flags: NDArray[np.bool_]
    bytes: NDArray[np.uint8]


def some(n: int) -> Some:
    rows = np.arange(n * N_COLUMNS, dtype=np.int32).reshape(n, N_COLUMNS)
    return Some(np.arange(n) / 2, rows, np.arange(n) % 2 == 1, np.arange(n, dtype=np.uint8))


@njit  # type: ignore[untyped-decorator]
def summed(handle: NDArray[np.int64]) -> Any:
    arrays = arrays_at(handle, Some)
    total = 0.0
    for i in range(len(arrays.numbers)):
        total += arrays.numbers[i] + (1000.0 if arrays.flags[i] else 0.0) + arrays.bytes[i]
    for i in range(arrays.rows.shape[0]):
        for k in range(arrays.rows.shape[1]):
            total += arrays.rows[i, k] * (k + 1)
    return total


@njit  # type: ignore[untyped-decorator]
def doubled(handle: NDArray[np.int64]) -> None:
    arrays = arrays_at(handle, Some)
    for i in range(len(arrays.rows)):
        arrays.rows[i, 1] *= 2


class Both(NamedTuple):
    """Arrays, and a group of them before and after."""

    some: Some
    others: NDArray[np.int64]
    more: Some


@njit  # type: ignore[untyped-decorator]
def summed_of_both(handle: NDArray[np.int64]) -> Any:
    both = arrays_at(handle, Both)
    return both.some.numbers.sum() + 10 * both.others.sum() + 100 * both.more.rows[-1, 2] + len(both.some.rows)


@njit  # type: ignore[untyped-decorator]
def written(arrays: Some, handle: NDArray[np.int64]) -> None:
    describe(arrays, handle)


def expected(arrays: Some) -> float:
    weights = np.arange(1, N_COLUMNS + 1)
    return float(arrays.numbers.sum() + 1000 * arrays.flags.sum() + arrays.bytes.sum() + (arrays.rows * weights).sum())


@pytest.mark.parametrize("n", [0, 1, 7])
def test_a_kernel_reads_what_a_handle_names(n: int) -> None:
    arrays = some(n)
    assert summed(handle_of(arrays)) == expected(arrays)


def test_a_kernel_writes_to_the_arrays_themselves() -> None:
    arrays = some(4)
    doubled(handle_of(arrays))
    assert arrays.rows[:, 1].tolist() == [2, 8, 14, 20]
    assert arrays.rows[:, 2].tolist() == [2, 5, 8, 11]


def test_a_kernel_can_write_the_handle() -> None:
    arrays = some(5)
    handle = empty_handle(arrays)
    written(arrays, handle)
    assert summed(handle) == expected(arrays)


def test_groups_of_arrays_stand_one_after_the_other() -> None:
    both = Both(some(3), np.array([4, 5]), some(2))
    table = table_of([*both.some, both.others, *both.more]) if IS_COMPILED else both
    assert summed_of_both(table) == 1.5 + 90 + 500 + 3


@needs_compiler
def test_a_handle_needs_arrays_of_the_types_that_are_named() -> None:
    arrays = some(4)
    with pytest.raises(AssertionError):
        handle_of(arrays._replace(numbers=arrays.numbers.astype(np.float32)))
    with pytest.raises(AssertionError):
        handle_of(arrays._replace(rows=arrays.rows[:, :2].copy()))
    with pytest.raises(AssertionError):
        handle_of(arrays._replace(rows=arrays.rows[:, ::-1]))
    with pytest.raises(AssertionError):
        handle_of(arrays._replace(bytes=arrays.bytes[::2]))
    unaligned = np.frombuffer(bytes(33), dtype=np.uint8)[1:].view(np.float64)
    with pytest.raises(AssertionError):
        handle_of(arrays._replace(numbers=unaligned))


@needs_compiler
def test_a_kernel_that_writes_a_handle_needs_them_too() -> None:
    arrays = some(4)
    with pytest.raises(Exception, match="Some wants"):
        written(arrays._replace(numbers=arrays.numbers.astype(np.float32)), empty_handle(arrays))


def test_kernels_are_compiled_anew_when_the_arrays_change_that_they_import_for_types_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "package_of_types"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "layouts.py").write_text("class Layout: a, b")
    (package / "users.py").write_text("if TYPE_CHECKING:\n    from package_of_types.layouts import Layout\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = compiler._checksum.__wrapped__("package_of_types.users")
    (package / "layouts.py").write_text("class Layout: b, a")
    assert compiler._checksum.__wrapped__("package_of_types.users") != before
