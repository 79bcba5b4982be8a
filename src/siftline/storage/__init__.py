"""Durable data: page files, snapshots, and the store of subscriptions.

- `pages.py` is a file of fixed-size pages with checksums, with a pool of pages in memory and a table from page numbers
  to places. Places that the last checkpoint uses are never overwritten; a checkpoint takes effect by one small write.
  Between checkpoints, acknowledged changes are in a log (`log.py`), which is replayed after a crash. `files.py` has
  locks, writes, and errors that name the file; tests replace it by files that fail at the n-th write.
- `snapshot.py` writes directories of arrays and tables with checksums under a temporary name, renames them when they
  are complete, and opens them as private memory maps.
- `store.py` keeps durable subscriptions in a SQLite file. The content of a subscription is in the change that set it
  (table `changes`), and the live subscriptions point there (`subscriptions`). So the feed of changes and the state
  cannot disagree, and compaction only drops superseded changes. A renewal is a short change that refers to the one with
  the text. Superseded changes are listed (`superseded`), so compaction does not have to search for them: a running
  broker drops a few hundred changes at a time and frees pages. `store_file.py` opens and owns the file, `written.py`
  keeps expressions as they were written, `batch.py` collects changes, `transaction.py` applies them to the tables,
  `group_commit.py` lets threads share a commit, `mark.py` has the number of the last acknowledged change, `feed.py`
  applies changes to an engine, `migrations.py` has the versions, `sqlite_files.py` opens files and explains errors,
  `owner.py` lets one process own a store, `soundness.py` verifies a store.
"""
