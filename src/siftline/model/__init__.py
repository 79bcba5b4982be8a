"""What a match is: predicates, expressions, events, and their exact meaning.

Pure Python, and below everything else: this package imports nothing of Siftline but its errors.
"""

from siftline.model.event import MAX_EVENT_DEPTH, Element, Event, Leaf, iso_text, leaf_of
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
    walk,
)
from siftline.model.predicate import (
    OPERATORS,
    POSITIVE_OF,
    THIS,
    Constant,
    Operand,
    Predicate,
    kind_of,
)
from siftline.model.semantics import Truth, compare, evaluate, matches
from siftline.model.wildcard import fold, like

__all__ = [
    "FALSE",
    "MAX_DEPTH",
    "MAX_EVENT_DEPTH",
    "MAX_LEAVES",
    "OPERATORS",
    "POSITIVE_OF",
    "THIS",
    "TRUE",
    "And",
    "AnyElement",
    "Arithmetic",
    "Call",
    "Constant",
    "Constraint",
    "Element",
    "Event",
    "Expression",
    "IsTrue",
    "Leaf",
    "Not",
    "Operand",
    "Or",
    "Predicate",
    "Term",
    "Truth",
    "Variable",
    "check_size",
    "children",
    "compare",
    "evaluate",
    "fold",
    "iso_text",
    "kind_of",
    "leaf_of",
    "like",
    "matches",
    "walk",
]
