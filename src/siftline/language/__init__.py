"""Text and JSON to the model and back; normal forms.

`tokens.py`, `text.py` (parser), `printer.py`, `builder.py`; `event_pattern.py` and its neighbours, `sns.py`,
`cloudevents.py`. A hand-written parser over one compiled regular expression: it is faster than the grammar libraries
and its errors can be as helpful as we like.

`normal_form.py` pushes negation to the leaves. Truth has three values, so a literal asks one of four things of its
leaf: true, false, not true, not false. Over literals, `and` and `or` are two-valued and DNF, CNF are what they always
were. Nothing is folded inside a literal, because on arrays `a > 2 and a < 2` can hold. What an index gets is the DNF if
it is small. Otherwise it gets *witnesses*, literals of which one must be true, chosen by `likelihood.py`: a *necessary*
condition, and the exact expression is checked on the candidates.
"""
