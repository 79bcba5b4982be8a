"""Index directories: where an index is stored, which version is current, and what has changed since.

Only this folder knows the files of an index. It imports `runtime`.
"""
