"""`sift`, our own index.

`index.py` is the index, with a drawing of what a part looks like; `arrays.py` names its arrays; `layout_kernels.py`
lays a part out. `kernels.py` matches one event: `list_kernels.py` goes through posting lists, `row_kernels.py` tests
rows, `vectors.py` and `bitmaps.py` use instructions that Numba does not find. `batch_kernels.py` matches many events
side by side; `bits.py` and `bit_kernels.py` take the dense attributes of a batch as bitmaps.
"""
