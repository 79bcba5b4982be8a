"""`op-index`: OpIndex (Zhang, Chan, Tan 2014).

`index.py` is the index; `kernels.py` matches an event; `lists.py` is one list for each kind of predicate, with its
compiled half in `list_kernels.py`.
"""
