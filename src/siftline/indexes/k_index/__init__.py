"""`k-index`: k-index (Whang and others 2009), a baseline of two of the papers; index and kernels."""
