"""Reads files of subscriptions, for `add_many` and the command line: formats, compression, positions of errors.

`formats.py` finds the format by the extension and the compression by the first bytes, and reads pipes.
`subscription_files.py`, `subscription_tables.py` and `csv_rows.py` read entries, and report a `Problem` (`problems.py`)
with its position for each invalid one; `json_places.py` finds the column in a line of JSON.
"""
