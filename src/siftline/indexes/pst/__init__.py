"""`pst-bloom` and `pst-hash`: PSTBloom and PSTHash (Ji, Jacobsen 2018).

`bloom.py` and `hash.py` are the indexes, each with its kernels; both choose access predicates (`access_predicates.py`).
"""
