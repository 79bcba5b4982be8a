"""fail_above: the limit above which refused input fails a job: a number, or a share of all input."""

from __future__ import annotations


def check_fail_above(limit: object) -> None:
    """Raise ValueError if a limit is neither a number nor a share nor None.

    >>> check_fail_above(100), check_fail_above(0.01), check_fail_above(None)
    (None, None, None)
    >>> check_fail_above(1.5)
    Traceback (most recent call last):
        ...
    ValueError: fail_above must be a number (an int from 0 on) or a share (a float from 0.0 to 1.0), not 1.5
    """
    is_number = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
    is_share = isinstance(limit, float) and 0.0 <= limit <= 1.0
    if limit is not None and not is_number and not is_share:
        raise ValueError(
            f"fail_above must be a number (an int from 0 on) or a share (a float from 0.0 to 1.0), not {limit!r}"
        )


def is_above(limit: int | float | None, n_bad: int, n_all: int) -> bool:
    """Return whether more was refused than a limit allows.

    >>> is_above(2, 3, 1000), is_above(0.01, 3, 1000), is_above(None, 3, 3)
    (True, False, False)
    """
    if limit is None:
        return False
    return n_bad > (limit * n_all if isinstance(limit, float) else limit)
