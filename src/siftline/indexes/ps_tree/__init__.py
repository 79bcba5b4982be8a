"""PS-Tree (Ji, Jacobsen 2018), a structure for the predicates on one attribute; no index of an engine.

`tree.py` is the tree with insertion, deletion and matching; `elements.py` cuts values into the digits that it branches
by; `pools.py` holds nodes and lists in arrays; `kernels.py` is its compiled half.
"""

from siftline.indexes.ps_tree.tree import PsTree as PsTree
