"""Arrays that grow inside a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from siftline.kernels.compiler import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def with_room(array: NDArray[Any], n: Any, n_more: Any) -> Any:
    """Return the array, or a larger copy of its first n elements if n_more would not fit after them."""
    if n + n_more <= len(array):
        return array
    larger = np.empty(2 * (n + n_more), dtype=array.dtype)
    larger[:n] = array[:n]
    return larger
