"""`sift`, our own index.

`index.py` is the index, with a drawing of a part; `arrays.py` names its arrays; `layout_kernels.py` lays a part out.
`kernels.py` matches one event: `list_kernels.py` goes through posting lists, `row_kernels.py` tests rows, `vectors.py`
and `bitmaps.py` use vector instructions that Numba does not generate. `batch_kernels.py` matches many events, whose
steps overlap; `bits.py` and `bit_kernels.py` match dense attributes of a batch in bitmaps of events.
"""
