"""What a match is: predicates, expressions, events, and their exact meaning.

Pure Python, and below everything else: this package imports nothing of Siftline but its errors.

`predicate.py`, `derived.py`, `expression.py`: immutable nodes. `event.py`: a JSON object as attributes with zero, one
or several values; `structure.py`: what else stands for objects and arrays. `semantics.py`: the meaning, three-valued,
in a few pages. `wildcard.py`: `like` and case folding. `timestamp.py`: which strings are times, and the constants that
are instants. `packing.py`: expressions as plain tuples, in which an engine keeps them: the garbage collector does not
look at them again. Pure Python; everything else is measured against it.

Event patterns and CloudEvents filters are two-valued and see explicit nulls. Three nodes make them exact in the same
model: `IsTrue` (`x is true`), `exists`, and `any path (...)` with `this` for the element itself.
"""

from siftline.model.derived import AnyString, AttributeComparison, Length
from siftline.model.event import (
    MAX_INTEGER_DIGITS,
    Element,
    Event,
    Leaf,
    check_integer,
    instant_of,
    iso_text,
    json_value,
    leaf_of,
)
from siftline.model.expression import (
    FALSE,
    MAX_DEPTH,
    MAX_LEAVES,
    TRUE,
    And,
    AnyElement,
    Arithmetic,
    Call,
    Constraint,
    Expression,
    IsTrue,
    Not,
    Or,
    Term,
    Variable,
    check_size,
    children,
    has_calls,
    walk,
)
from siftline.model.packing import pack, unpack
from siftline.model.predicate import (
    OPERATORS,
    POSITIVE_OF,
    THIS,
    Constant,
    Moment,
    Operand,
    Predicate,
    kind_of,
)
from siftline.model.semantics import Truth, compare, evaluate, matches
from siftline.model.solutions import (
    Solution,
    Solve,
    Substitution,
    all_variables,
    best_substitution,
    constraint_truth,
    evaluate_solutions,
    own_variables,
    same,
    truth_under,
    variables_of,
)
from siftline.model.structure import MAX_EVENT_DEPTH, NotPlainError, opened, plain_tree
from siftline.model.timestamp import Now, Timestamp, instant_of_text, iso_text_of_instant, text_of_instant
from siftline.model.wildcard import fold, like

__all__ = [
    "FALSE",
    "MAX_DEPTH",
    "MAX_EVENT_DEPTH",
    "MAX_INTEGER_DIGITS",
    "MAX_LEAVES",
    "OPERATORS",
    "POSITIVE_OF",
    "THIS",
    "TRUE",
    "And",
    "AnyElement",
    "AnyString",
    "Arithmetic",
    "AttributeComparison",
    "Call",
    "Constant",
    "Constraint",
    "Element",
    "Event",
    "Expression",
    "IsTrue",
    "Leaf",
    "Length",
    "Moment",
    "Not",
    "NotPlainError",
    "Now",
    "Operand",
    "Or",
    "Predicate",
    "Solution",
    "Solve",
    "Substitution",
    "Term",
    "Timestamp",
    "Truth",
    "Variable",
    "all_variables",
    "best_substitution",
    "check_integer",
    "check_size",
    "children",
    "compare",
    "constraint_truth",
    "evaluate",
    "evaluate_solutions",
    "fold",
    "has_calls",
    "instant_of",
    "instant_of_text",
    "iso_text",
    "iso_text_of_instant",
    "json_value",
    "kind_of",
    "leaf_of",
    "like",
    "matches",
    "opened",
    "own_variables",
    "pack",
    "plain_tree",
    "same",
    "text_of_instant",
    "truth_under",
    "unpack",
    "variables_of",
    "walk",
]
