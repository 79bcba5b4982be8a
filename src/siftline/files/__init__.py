"""Files of subscriptions, for the library and the command line alike: formats, compression, places of errors.

For `add_many` and the command line alike. `formats.py`: the format by the extension, compression by how the bytes
begin, pipes. `subscription_files.py`, `subscription_tables.py`, `csv_rows.py`: entries, what is good of them, and for
the rest a `Problem` (`problems.py`) with its place; `json_places.py` finds the column in a line of JSON.
"""
