"""Predicates too expensive to index: operators that run code, and schedules that call as little as possible.

Calls of code, on what the index leaves. To the index a call is a condition that it cannot know, so it finds
candidates by the ordinary predicates beside it; only their calls are made, and the schedule decides which of them an
event needs.

    candidates with calls → chains (clauses.py) → problem.py → schedule: a call, its result, ... → join of bindings

- `model/solutions.py` is the meaning: it makes all calls and tries all substitutions. `Engine("scan")` uses it as the
  schedule `everything`, and every schedule must give its ids.
- `operator.py`, `registry.py`: making and finding operators. `predicates.py`: when two calls are the same.
  `calling.py`: each call once per event, time limits in threads of their own, failures counted. `checks.py`: what is
  refused.
- `stage.py`: the chains of all conditions of one table of subscriptions. Several chains may belong to one condition
  (its DNF); negations with variables of their own wait, with their calls, until everything else holds.
- `schedules.py` (naive, sequential), `sub_order.py`, `adaptive.py`; the steps are compiled, in
  `kernels/schedules.py`. An event's open chains are gathered into a problem of its own, so that a schedule works on
  small arrays that no writer changes, and one kernel call tells the next node.
- `call_statistics.py`: how often predicates are true and what calls take, learned from every event, slowly forgotten.
  `learned.py`: the same as plain numbers, which snapshots keep and processes add up. `trace.py`: what one event took,
  for explanations. `modules.py`: modules that define operators, by name.
- `geometry.py`, `places.py`, `texts.py`, `times.py`, `tables.py`, `images.py`, `reasoning.py` over `datalog.py`: the
  operators that ship, loaded when one of them is called.
"""
