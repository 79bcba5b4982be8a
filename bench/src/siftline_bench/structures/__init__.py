"""The structures that only figures compare: interval and segment tree, and Table 1 of the PB+tree paper."""
