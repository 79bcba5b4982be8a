"""What a package that ships operators looks like."""

from __future__ import annotations

from typing import Any

import siftline


@siftline.operator("tide_at", binds=["metres"])
def tide_at(event: Any, port: str) -> float:
    return 4.5
