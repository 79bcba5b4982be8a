"""Real detection rules on real logs: `siftline bench rules`.

- `data`: finds and reads rules and events, and splits events by kind
- `measuring`: the figures of the engine: reading, loading, memory, matching
- `memory`: what a process grows by
- `sql`: an expression as a condition of SQL, three-valued, and the columns that it asks for
- `rivals`: the same rules in DuckDB, SQLite and `scan`; ids are compared
- `copies`: many times as many rules, different in what is rare
- `figures`: targets, rows and tables
"""
