"""How to match: one file per algorithm, all behind one protocol and one registry."""
