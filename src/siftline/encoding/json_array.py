"""A JSON array as the texts of its elements: nothing is parsed, so it costs as little as reading the bytes once.

>>> array_elements(b' [{"a": "],"}, {"b": [1, 2]} , {}]', most=9)
[b'{"a": "],"}', b'{"b": [1, 2]}', b'{}']
"""

from __future__ import annotations

from typing import Final

import numpy as np

from siftline.errors import EventError, LimitError
from siftline.kernels.json_array import MORE_AFTER, NO_ARRAY, NO_END, NO_VALUE, TOO_MANY, split_array

_REASONS: Final = {
    NO_ARRAY: "expecting an array",
    NO_END: "the array has no end",
    NO_VALUE: "expecting value",
    MORE_AFTER: "extra data",
}


def array_elements(data: bytes | bytearray, most: int) -> list[bytes | bytearray]:
    """Return the texts of the elements, of which at most this many may be; each is for the caller to parse.

    Raises
    ------
    EventError
        If it is no array; it says where.
    LimitError
        If there are more elements.
    """
    # An element and its comma have two bytes.
    spans = np.empty((min(most, len(data) // 2 + 1), 2), dtype=np.int64)
    n_elements, position = split_array(np.frombuffer(data, dtype=np.uint8), spans)
    if n_elements == TOO_MANY:
        raise LimitError(f"more than {most:,} elements in an array")
    if n_elements < 0:
        raise EventError(f"not a JSON array: {_REASONS[n_elements]} at byte {position}")
    return [data[first:end] for first, end in spans[:n_elements].tolist()]
