"""How to match: one folder for each algorithm, all behind one protocol and one registry.

The package can be called: `siftline.indexes()` lists the names.

`protocol.py` says what an index must offer, `registry.py` has the names. `scan.py` is the oracle: it uses the model
alone. `fast_scan/` is the compiled baseline. An index returns slots that match and slots that may match; the engine
checks the latter.

Each folder has the index, its layout and its kernels side by side: one for each algorithm of the papers (PAPERS.md has
the map), and `sift/`, our own. All of them but `pb-tree` build on `parts.py`: a part is a whole structure over some
subscriptions and never changes once it is made. Additions make a new part; a `Merge` unites several parts and drops
dead subscriptions. Both run while other threads match. So an index only defines how a part is laid out and how one
event is matched against it; the code for changes is written, and tested, once.

The indexes share: `kernels/literals.py` decides whether a literal holds, `kernels/verify.py` tests candidates,
`kernels/spaces.py` cuts attributes into elementary spaces, `encoding/selectivity.py` estimates how many events satisfy
a literal (from Statistics if there are any), `encoding/forms.py` tells which operator a coded literal came from. An
index that takes *alternatives* gets short CNFs as they are; one that takes *patterns* gets strings that codes cannot
decide.

Two folders do not use parts. `pb_tree/` keeps B+trees in the pages of a file; they change in place and hold the
subscriptions too. Its keys are values instead of codes (`encoding/terms.py`), because the engine renumbers codes when a
domain grows. `ps_tree/` is a one-dimensional structure that changes in place. No engine uses it; figures compare it
with other structures.
"""

import sys
from types import ModuleType

from siftline.indexes.registry import indexes


class _Callable(ModuleType):
    """Lets `siftline.indexes` be both this package and the function that lists the indexes."""

    def __call__(self) -> list[str]:
        return indexes()


sys.modules[__name__].__class__ = _Callable
