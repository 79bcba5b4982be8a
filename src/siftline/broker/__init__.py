"""Subscriptions with leases and tickets, published events, and durable notifications.

- `broker.py` is the public class; `acceptance.py` checks new subscriptions, `upkeep.py` is the background thread.
  `leases.py`, `tickets.py` and `keys.py` are kept in the store, in the transactions that change subscriptions.
- `live_engine.py` follows the feed of the store, also for changes of other processes. Expired subscriptions leave the
  engine before an event is matched (one comparison with the time of the next expiry), and the store some seconds
  later. `clock.py` has the time, `snapshots.py` saves the engine beside its store for a quick start.
- `publisher.py` matches the events of several clients in one batch, and commits once. Matches come in chunks
  (`matching.py`), and a publish that would fill the log by itself is refused, so memory is bounded. `remembered.py`
  has the idempotency keys, so that a repeated publish is delivered once.
- `log.py` is a second SQLite file with the events that matched and their subscriptions. It is bounded in bytes. A match
  is a number of four bytes (`names.py`), in the file and in the index in memory (`recent.py`), which compares whole
  arrays to find the events of a subscription. `log_file.py` has the tables, with a checksum for each row
  (`log_rows.py`). The intact rows of a damaged file are copied into a new one (`salvage.py` reads over bad pages), like
  those of a file of version 0.1.0 (`old_log.py`). Each start numbers events from the current time, so a number is
  never used twice; so `losses.py` recognises a position of a lost or older file, and every gap is reported.
- `hub.py` has the queues of streams, bounded in items and bytes, each and together. A stream whose queue is full reads
  the log again, so the publisher waits for nobody.
- `deliveries.py`: a webhook is a cursor in the log (`waiting.py`), so it keeps no events there. An event that the log
  drops before it was delivered becomes a dead letter (`letters.py`); these have their own bound.
- `webhooks.py` is an event loop in a thread, with a few dozen lines of HTTP instead of a client library, because the
  connection must go to the address that was checked (`addresses.py`). Owners have shares of connections and bytes
  (`shares.py`) and of name lookups (`resolver.py`), so that slow receivers of one owner delay nobody else.
- `cluster.py` keeps published events for a cluster that matches them, and writes each of its matches once.
- `health.py` finds out whether both files can be written, by writing.
"""
