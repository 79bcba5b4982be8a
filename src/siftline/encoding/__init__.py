"""Model to flat arrays: attribute ids, value domains, events.

- `domain.py`: per attribute, the constants of all subscriptions cut the values into spaces, numbered by int32 *codes*
  in fixed sections (null, false, true, numbers, strings). Codes leave gaps, so that a new constant gets a label
  between its neighbours and nothing that is already encoded changes; runs of ascending or descending constants take
  small steps. When a gap is used up, a constant gets no label: its predicates become the codes around it, in two
  clauses, one that surely holds and one whose candidates need the exact check. `domains.py`: all attributes, and
  which lines are crowded.
- `flat_domains.py`: the constants of all attributes in flat arrays that never change, as kernels search them,
  snapshots hold them and copies of the domains share them. Constants that come one by one wait beside them, in the
  lines of their attributes; the code of a value is the greater of its codes in the two. When they are a quarter as
  many, they are merged, in the background if that would take long.
- `ranges.py`, `clauses.py`: a predicate is a set of codes; a subscription is clauses of literals "some value has a
  code in these ranges" or "no value has". A prefix test is a range of strings. Each pattern (`contains`, `matches`,
  ...) has an attribute of its own, which an event carries if it satisfies the pattern; an index may also ask to
  decide patterns itself. What neither decides becomes what codes can tell, and the clause is marked for the exact
  check.
- `moments.py`: comparisons with timestamps and `now()`. A string that is a time has an instant and an age, two
  numbers, and the attributes for them are derived like those of patterns; so every index sees plain numbers, and
  nothing in it moves with the time. An event is encoded again if its ages are of another instant than that of the
  match.
- `patterns.py`: which patterns a string satisfies, all of an attribute at once; `regex_literals.py` and
  `regex_needs.py` find the texts that a regular expression cannot do without, and `regex_automata.py` makes small
  automata of most expressions, so that RE2 need not be called. A pattern attribute has an id like any other but no
  path, so no key of an event can be taken for it.
- `events.py` (dicts), `json_events.py`, `arrow_events.py`: events as (attribute, code) pairs. Each keeps its source, so
  that the exact check can look at the event itself, and a version, so that it is encoded again when the domains
  changed. `one_event.py` is the short way for one event from JSON text or a plain dict: a kernel call that writes to
  arrays of the thread.
- `programs.py`: expressions for the exact check, as programs over the values of an event, compiled when a subscription
  is a candidate for the first time; `leaf_tests.py`: the tests that they share. `program_values.py` reads the values
  again, `program_runs.py` runs programs and decides what kernels cannot (some regular expressions, networks,
  `any path (...)`), `program_checks.py` does all of it for one event in JSON.
- `tables.py`, `columns.py`, `row_ranges.py`, `bulk.py`: subscriptions from tables, a column at a time; what is not
  columnar, once for each different predicate. `conjunctions.py`: many parsed expressions take the same way if they
  fit. `statistics.py`: what is known about events; `selectivity.py` and `likelihoods.py` estimate from it how many
  events satisfy a coded literal, and how likely a leaf is to be true. `garbage.py`: a pause for the garbage collector.
"""
