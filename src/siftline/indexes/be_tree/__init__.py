"""`be-tree`: BE-Tree (Sadoghi, Jacobsen 2011), a baseline of two of the papers; index and kernels."""
