"""What outlives the process.

`pages.py`: a file of fixed-size pages with checksums, a pool of them in memory, and a table from page numbers to
places. What the last checkpoint uses is never overwritten; a checkpoint switches over by one small write. Between
checkpoints, acknowledged changes are in a log (`log.py`) and are done again after a crash. `files.py`: locks, writes,
errors with the name of the file; tests put in files that fail at the n-th write.

`snapshot.py`: directories of arrays and tables with checksums, written beside their place and renamed into it, opened
as private memory maps.

`store.py`: durable subscriptions in a SQLite file. The content of a subscription stands in the change that gave it
(`changes`), and what is live points there (`subscriptions`): so the feed of changes and the state are one thing and
cannot disagree, and compaction only drops what is superseded. A renewal is a short change that refers to the one with
the text. What no subscription stands in any more is listed (`superseded`), so that compaction never has to look for
it: a running broker drops a few hundred changes at a time and gives free pages back. `store_file.py` opens and owns
the file, `written.py` keeps expressions as they were written, `batch.py` collects changes, `transaction.py` is what a
change does to the tables, `group_commit.py` lets threads share a commit, `mark.py` notes how far they have come,
`feed.py` brings changes into an engine, `migrations.py` has the versions, `sqlite_files.py` opens files and says what
is wrong with them, `owner.py` lets one process own a store, `soundness.py` verifies one.
"""
