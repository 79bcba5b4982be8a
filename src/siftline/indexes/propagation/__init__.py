"""`propagation`: Propagation (Fabret and others 2001), a baseline of the PS-Tree paper; index and kernels."""
