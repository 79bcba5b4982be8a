"""Operators for tests on Spark, as a module that workers load; calls leave a line in a file that events name."""

from __future__ import annotations

from typing import Any

import siftline


def _note(path: Any, line: str) -> None:
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")


@siftline.operator("spark_multiple", cost=0.1, replace=True)
def spark_multiple(event: dict[str, Any], of: int) -> bool:
    """Whether `n` is a multiple."""
    _note(event.get("log"), f"multiple {of}")
    return bool(event["n"] % of == 0)


@siftline.operator("spark_digits", binds=["digit"], replace=True)
def spark_digits(event: dict[str, Any]) -> list[int]:
    """Bind the digits of `n`."""
    return [int(digit) for digit in str(event["n"])]


@siftline.operator("spark_fails", replace=True)
def spark_fails(event: dict[str, Any]) -> bool:
    """Fail for odd numbers."""
    if event["n"] % 2:
        raise ValueError("odd")
    return True


@siftline.operator("spark_above", batch=True, replace=True)
def spark_above(events: Any, least: int) -> list[bool]:
    """Whether `n` is above a number, for a whole batch."""
    numbers = events["n"].to_pylist()
    log = events["log"].to_pylist()[0] if "log" in events.column_names else None
    _note(log, f"above {least} {len(numbers)}")
    return [n > least for n in numbers]
