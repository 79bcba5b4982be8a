"""The runtime answers what a job runs on: which session and which Java, which paths, and what Spark tells a task.

It knows nothing about indexes, except how a machine opens a snapshot that it has checked before (`checked.py`).
"""
