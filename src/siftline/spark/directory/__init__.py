"""Index directories answer where an index is kept, which version of it is current, and what changed since.

They are the only place that knows the files of an index. Below them is `runtime`.
"""
