"""`counting`: the counting algorithm of ToPSS (Ashayer, Leung, Jacobsen 2002).

`index.py` is the index; `layout_kernels.py` finds the predicates of clauses; `kernels.py` looks for those that hold and
counts; `publication_types.py` finds subscriptions that no event of a known type can satisfy.
"""
