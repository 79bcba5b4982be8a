"""How are subscriptions and events brought together.

An `Engine` takes subscriptions, keeps them in an index, and returns the ids that an event matches.

    engine.py          what users call
    state.py           the parts of an engine, in one object
    updates.py         every change to them; `additions.py` reads what is to be added, `subscriptions.py` is the table
    write_buffer.py    the newest subscriptions, scanned by every event until they go to the index together
    compaction.py      merges and sweeps behind changes; `relabelling.py` makes room for new constants
    pipeline.py        the way of events: candidates, confirm, duplicates, subset, rank (`ranking.py`)
    fast_path.py       the shorter way of a single encoded event
    batches.py         many events over threads, as an Arrow table; `subsets.py` matches within some ids
    explanation.py     why an event matches; `tuning.py` lays out the index for given events
    snapshots.py       an engine as a directory, and back
    paged.py           the engine of `pb-tree`, whose subscriptions are in a file; `interface.py` is what both share

**Threads.** Writers take turns. What a match needs at one moment (encoded event, index, table, write buffer) is taken
under a second lock, which is held for encoding and for swaps. Parts of an index are laid out before, and the kernels
run without a lock, on arrays that only grow behind what a reader sees. A plain addition to the write buffer takes
neither the second lock nor a new generation: first the table, then the rows, then their number. Bulk loads, new
labels and sweeps build a new index beside the old one and swap. A merge is chosen and put in place by a writer; to
lay it out needs no lock, because parts never change. Slots are not used again before a sweep, so a reader cannot
confuse two subscriptions; it leaves out slots that are newer than the encoding of its event. A match that a `replace`
crossed is repeated. A thread matches one event at a time, on arrays of its own: a signal handler must not call
`match` while its thread is in one.

**Forks.** While a process forks, the writers' locks of engines with a running thread are held; the child starts over.
It takes over no arrays of threads, because a thread of the parent may have been in the middle of a match.
"""

from siftline.engine.engine import Engine as Engine
