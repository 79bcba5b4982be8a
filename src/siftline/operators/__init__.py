"""Predicates too expensive to index: operators that run code, and schedules that call as little as possible.

The index cannot decide a call, so it finds candidates by the other predicates of a condition. Only calls of candidates
are made, and a schedule decides which of them an event needs.

    candidates with calls → chains (clauses.py) → problem.py → schedule: a call, its result, ... → join of bindings

- `model/solutions.py` is the specification: it makes all calls and tries all substitutions. `Engine("scan")` uses it as
  the schedule `everything`, and every schedule must return the same ids.
- `operator.py`, `registry.py`: making and finding operators. `predicates.py`: when two calls are the same.
  `calling.py`: makes each call once per event, limits its time, counts failures. `checks.py`: which calls and variables
  are refused.
- `stage.py`: the chains of all conditions of one table of subscriptions. Several chains may belong to one condition
  (its DNF); negations with their own variables are evaluated, with their calls, after everything else holds.
- `schedules.py` (naive, sequential), `sub_order.py`, `adaptive.py`; the steps are compiled, in
  `kernels/schedules.py`. The open chains of an event are copied into a problem, so a schedule works on small arrays
  that no writer changes, and one kernel call returns the next node.
- `call_statistics.py`: how often predicates are true and how long calls take, learned from events; old events count
  less. `learned.py`: the same as plain numbers, for snapshots and for adding up over processes. `trace.py`: the calls
  of one event, for explanations. `modules.py`: modules that define operators, by name.
- `geometry.py`, `places.py`, `texts.py`, `times.py`, `tables.py`, `images.py`, `reasoning.py` over `datalog.py`: the
  operators that ship, loaded when one of them is called.
"""
