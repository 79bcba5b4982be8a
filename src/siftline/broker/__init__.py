"""Subscriptions with leases and tickets, published events, and notifications that are not lost.

`broker.py` is what users see; `acceptance.py` says what it takes, `upkeep.py` does what is to be done every second;
`leases.py`, `tickets.py`, `keys.py` are what it keeps in the store beside subscriptions, in the same transactions.
The engine follows the store by its feed, also for changes of other processes. What has expired is taken out of the
engine before an event is matched (one comparison with the next time that something ends), and out of the store some
seconds later (`live_engine.py`, by the time of `clock.py`). `publisher.py`: one thread matches what several clients
publish at a moment in one batch, and commits it once; matches come piece by piece (`matching.py`), and a publish that
would fill the log by itself is refused, so memory stays bounded whatever matches. `remembered.py` knows the names of
publishes, so that one that is repeated is delivered once. `log.py`: a second SQLite file with events that matched,
and whom. It is bounded in bytes, which count payloads, matches and names; a match is a number of four bytes
(`names.py`), in the file and in the index in memory (`recent.py`), which compares whole arrays to find the events of
a subscription. `log_file.py` has the tables, with a checksum for each row (`log_rows.py`), and what to do with a
damaged file: put it aside, and copy what is whole (`salvage.py` reads over bad pages); so is a file of 0.1.0
(`old_log.py`). Numbers of events are never used twice, because each start begins at the time of day; so `losses.py`
can tell a position of a lost or older file from one that is known, and a stream is told of every gap.
`deliveries.py`: a webhook is a cursor in the log (`waiting.py`), so it keeps nothing there; what the log drops before
it was delivered becomes a dead letter (`letters.py`), within a bound of its own. `hub.py`: queues to streams, bounded
in items and bytes, one by one and together; one that runs over sends its stream back to the log, so nobody is waited
for. `webhooks.py`: an event loop in a thread, a few dozen lines of HTTP instead of a client library, because the
connection must go to the very address that was checked (`addresses.py`); an owner has a share of connections and
bytes (`shares.py`) and of lookups of names (`resolver.py`), so that his slow ones delay nobody else. `cluster.py`:
published events wait for a cluster that matches them instead, and its matches are written once, by the number of the
event and the subscription; these numbers are not used again either. `snapshots.py`: the engine beside its store, for
a quick start. `health.py`: whether both files can be written, found out by writing.
"""
