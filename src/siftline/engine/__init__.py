"""How subscriptions and events are brought together.

An `Engine` takes subscriptions, keeps them in an index, and returns the ids that an event matches.

    engine.py          the public class
    state.py           the parts of an engine, in one object
    updates.py         every change to them; `additions.py` reads additions in bulk, `subscriptions.py` is the table
    write_buffer.py    the newest subscriptions, scanned by every event until `flushing.py` adds them to the index
    compaction.py      merges and sweeps after changes (`sweeping.py`); `relabelling.py` makes room for new constants
    pipeline.py        the steps of a match: candidates, confirm, duplicates, subset, rank (`ranking.py`)
    exact_check.py     which candidates hold, by their expressions
    fast_path.py       a shortcut for a single event, encoded already or in the arrays of its thread
    batches.py         many events over threads, as an Arrow table; `subsets.py` matches within some ids
    explanation.py     why an event matches; `tuning.py` lays out the index for given events
    snapshots.py       an engine as a directory, and back
    paged.py           the engine of `pb-tree`, whose subscriptions are in a file; `interface.py` is what both share

**Threads.** Writers take turns. A match reads its encoded event, the index, the table and the write buffer of one
moment under a second lock, which is held only for encoding and for swaps. Parts of an index are laid out before that,
and the kernels run without a lock, on arrays that only grow beyond what a reader sees. A plain addition to the write
buffer needs neither the second lock nor a new generation: it writes first the table, then the rows, then their number.
Bulk loads, new labels and sweeps build a new index beside the old one and swap. A writer chooses a merge and puts it in
place; laying it out needs no lock, because parts never change. Slots are not reused before a sweep, so a reader cannot
confuse two subscriptions; it leaves out slots that are newer than the encoding of its event. A match during which a
subscription was replaced is repeated. A thread matches one event at a time, on its own scratch arrays: a signal handler
must not call `match` while its thread is in one.

**Forks.** While a process forks, the writers' locks of engines with a background thread are held; the child starts such
work again. The child uses no scratch arrays of the parent, because a thread may have been in the middle of a match.
"""

from siftline.engine.engine import Engine as Engine
