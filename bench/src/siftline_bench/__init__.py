"""How fast is it? Workloads, runner, measurements, results.

- `workloads/`: seeded subscriptions and events, as Arrow tables and Parquet files
- `runner`: one workload, many indexes, ids checked before times; `measure`: the timers; `checks`: the ids
- `interleaving`: adds and matches that alternate; `updates`: what changes cost
- `results`: one JSON line a measurement; `compare`: two files of them, with a noise band
- `foundation`: everything in front of and beside an index, against targets
- `indexes`, `sift`: the published indexes and our own, against `targets`; `readings`: the figures of one index
- `figures/`: the papers' experiments; `structures/`, `schedule_simulation`: what only they compare
- `real_rules/`: detection rules that others wrote, on logs that others kept
- `command`: `siftline bench`, which the command line finds by the entry point `siftline.commands`
"""
