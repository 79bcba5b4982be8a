"""`fast-scan`: every clause against every event, compiled; index and kernels."""
