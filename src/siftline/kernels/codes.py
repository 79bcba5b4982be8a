"""What codes and kinds of literals mean to kernels.

`encoding/domain.py` has a drawing of the codes, `encoding/clauses.py` one of the literals. The constants have the types
of the arrays that they are compared with: plain integers would widen both sides.
"""

from __future__ import annotations

from typing import Final

import numpy as np

# The code of an attribute that an event does not have; no value has it.
ABSENT: Final = np.int32(-1)

NULL: Final = np.int32(0)
FALSE: Final = np.int32(1)
TRUE: Final = np.int32(2)
FIRST_NUMBER: Final = np.int32(3)
LAST_NUMBER: Final = np.int32(2**30 - 1)
FIRST_STRING: Final = np.int32(2**30)
LAST_STRING: Final = np.int32(2**31 - 2)

# Kinds of literals: below VETO, some value of the event must have a code in the ranges; from VETO on, no value may.
RANGE: Final = np.uint8(0)
VETO: Final = np.uint8(2)
