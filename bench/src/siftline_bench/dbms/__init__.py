"""`dbms`: the half of ToPSS that runs inside a database.

`index.py` is the index, `engines.py` has the databases with their queries, `predicates.py` turns codes back into typed
values.
"""
