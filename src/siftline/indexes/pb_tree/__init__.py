"""`pb-tree`: PB+tree, predicates in B+trees on disk.

`index.py` is the index in a file; `predicates.py` the paper's structure, `nodes.py` the plain B+tree below it,
`rows.py` the subscriptions, `bulk.py` fills empty trees, `kernels.py` reads and writes pages.
"""
