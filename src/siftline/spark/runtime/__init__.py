"""The runtime: sessions, Java, paths, and the information that Spark gives to a task.

It knows nothing about indexes, except how a machine opens a snapshot that it has checked before (`checked.py`).
"""
