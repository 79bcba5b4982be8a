"""Random subscriptions and events from tiny domains, where everything collides, plus the edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from siftline.engine.paged import PagedEngine
from siftline.model import (
    And,
    AnyElement,
    AnyString,
    AttributeComparison,
    Expression,
    IsTrue,
    Length,
    Not,
    Now,
    Or,
    Predicate,
    Timestamp,
    instant_of_text,
)
from siftline.model.predicate import CASELESS

if TYPE_CHECKING:
    from siftline import Engine

# Few attributes and few values, so that random events do match random subscriptions.
ATTRIBUTES = ["a", "b", "c.d"]
NUMBERS: list[int | float] = [0, 1, 2, 3, 1.5, -1, -0.0, 2.0, 2**53, 2**53 + 1, -(2**53), 1e300]
TEXTS = ["", "a", "ab", "abc", "b", "B", "ba", "%", "ß", "é", "a\nb", "\U0010ffff", "\ud800", "10.0.0.7", "2001:db8::1"]
LONG_TEXT = "ünïcödé" * 40
# Letters whose lower, upper and folded forms are several, few or of another length, and what looks like a pattern.
CASED = [
    "\u00df",
    "\u1e9e",
    "ss",
    "SS",
    "\u0130",
    "i",
    "I",
    "\u0131",
    "\u017f",
    "S",
    "\u03a3",
    "\u03c3",
    "\u03c2",
    "\u00c9",
]
CASED += ["AB", "%", "_", "\\", "\ud800A", "\ud800a"]
CASELESS_LISTS = ["in ignoring case", "not in ignoring case"]
CASELESS_TESTS = sorted(CASELESS.difference(CASELESS_LISTS))
# One instant in many spellings, its neighbours, both ends of the calendar, and what looks like a time.
TIMES = [
    "2026-01-31T10:00:00Z",
    "2026-01-31t11:30:00.000000000000+01:30",
    "2026-01-31 10:00",
    "2026-01-31T10:00:00.000000001Z",
    "2026-01-31T09:59:59.999999999z",
    "2026-01-31",
    "0001-01-01",
    "9999-12-31T23:59:59.999999999Z",
    "1815-06-18T11:35:00.123456789+00:17",
    "2016-12-31T23:59:60Z",
    "2026-02-30",
    "2026-01-31T10:00:00+0000",
    "0001-01-01T00:00+00:01",
]
# What `now()` means in the tests, so that ages meet their constants.
NOW = TIMES[0]
HOUR = 3_600 * 10**9

LARGE: list[int | float] = [2.0**53, -(2**53) - 1, -(2**63), 2**63 - 1]


def _short(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy under a short name: hypothesis prints strategies, and these would fill pages."""

    @st.composite
    def drawn(draw: st.DrawFn) -> Any:
        return draw(strategy)

    return drawn()


numbers = st.sampled_from(NUMBERS + LARGE)
texts = st.sampled_from(TEXTS)
times = st.sampled_from([instant for text in TIMES if (instant := instant_of_text(text)) is not None])
offsets = st.sampled_from([0, 1, -1, -10 * HOUR, 10 * HOUR, -(80_000 * 24 * HOUR), 10**6 * 24 * HOUR])
moments = _short(st.one_of(times.map(Timestamp), offsets.map(Now)))
constants = _short(st.one_of(numbers, texts, st.sampled_from(TIMES), st.booleans(), moments))
attributes = st.sampled_from(ATTRIBUTES)
cased = st.sampled_from(CASED + TEXTS[:7])
patterns = st.text(alphabet="ab%_é\n", max_size=4)


def _pair(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(values, values)


def _predicates(paths: st.SearchStrategy[Any]) -> st.SearchStrategy[Expression]:
    """Return predicates of every operator on the given attributes."""
    words = ["starts with", "ends with", "contains", "like", "ilike", "matches", "cidr"]
    operands = {
        "like": patterns,
        "ilike": patterns,
        "matches": st.sampled_from(["a", "^a", "b$", "a.b", "(?i)AB", "^$", "[^a]"]),
        "cidr": st.sampled_from(["10.0.0.0/8", "10.0.0.7", "2001:db8::/32"]),
    }
    parts = [
        st.builds(Predicate, paths, st.sampled_from(["=", "!="]), constants),
        st.builds(Predicate, paths, st.sampled_from(["<", "<=", ">", ">="]), st.one_of(numbers, texts, moments)),
        st.builds(
            Predicate,
            paths,
            st.sampled_from(["between", "not between"]),
            st.one_of(
                _pair(numbers), _pair(texts), _pair(moments), _pair(times.map(Timestamp)), _pair(offsets.map(Now))
            ),
        ),
        st.builds(Predicate, paths, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), moments),
        st.builds(Predicate, paths, st.sampled_from(["in", "not in"]), st.lists(moments, max_size=3).map(tuple)),
        st.builds(Predicate, paths, st.sampled_from(["in", "not in"]), st.lists(constants, max_size=4).map(tuple)),
        st.builds(Predicate, paths, st.sampled_from(["is null", "is not null", "exists"])),
    ]
    tests = [
        st.builds(Predicate, paths, st.sampled_from([word, f"not {word}"]), operands.get(word, texts)) for word in words
    ]
    several = st.lists(cased, max_size=3).map(tuple)
    tests += [
        st.builds(Predicate, paths, st.sampled_from(CASELESS_TESTS), cased),
        st.builds(Predicate, paths, st.sampled_from(CASELESS_LISTS), several),
    ]
    return st.one_of([*parts, *tests])


def _strings() -> st.SearchStrategy[Expression]:
    """Return tests of all strings."""
    several = st.lists(cased, max_size=3).map(tuple)
    words = ["=", "!=", "<", ">=", "starts with", "ends with", "contains", "not contains", "like", "not ilike"]
    return st.one_of(
        st.builds(AnyString, st.sampled_from(words), patterns),
        st.builds(AnyString, st.sampled_from(CASELESS_TESTS), cased),
        st.builds(AnyString, st.sampled_from(["in", "not in", *CASELESS_LISTS]), several),
        st.builds(AnyString, st.sampled_from(["between", "not between"]), _pair(cased)),
        st.builds(AnyString, st.just("matches"), st.sampled_from(["a", "^b", "(?i)AB"])),
        st.builds(AnyString, st.sampled_from(["cidr", "not cidr"]), st.just("10.0.0.0/8")),
    )


def _lengths(paths: st.SearchStrategy[Any]) -> st.SearchStrategy[Expression]:
    sizes = st.sampled_from([0, 1, 2, 3, 280, -1, 1.0, 2.5])
    return st.one_of(
        st.builds(Length, paths, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), sizes),
        st.builds(Length, paths, st.sampled_from(["in", "not in"]), st.lists(sizes, max_size=2).map(tuple)),
        st.builds(Length, paths, st.sampled_from(["between", "not between"]), _pair(sizes)),
    )


def _derived(paths: list[str], lengths: st.SearchStrategy[Any]) -> st.SearchStrategy[Expression]:
    """Return comparisons of two of the given attributes, tests of all strings, and of lengths."""
    comparisons = st.builds(
        AttributeComparison,
        st.sampled_from(paths),
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        st.sampled_from(paths),
        st.none() | st.sampled_from([0, 1, -1, 0.5, -0.1, 2**53, 1e-300, -(2**63)]),
    )
    return st.one_of(comparisons, comparisons, _strings(), _lengths(lengths))


_all_predicates = _predicates(attributes)
predicates: st.SearchStrategy[Expression] = _short(_all_predicates)


def _inside() -> st.SearchStrategy[Expression]:
    """Return conditions on one element: on the element itself, and on the attributes of an object."""
    paths = st.sampled_from([None, "d", "e"])
    plain = _short(_predicates(paths))
    inner = st.one_of(plain, plain, _derived(["d", "e"], paths))
    groups = st.lists(inner, min_size=1, max_size=2).map(lambda parts: parts[0] if len(parts) == 1 else And(parts))
    return st.one_of(groups, groups.map(Not))


_any_elements = st.builds(AnyElement, st.sampled_from(["a", "c", "b"]), _inside())


def _groups(children: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several: st.SearchStrategy[list[Expression]] = st.one_of(st.just([]), st.lists(children, min_size=2, max_size=3))
    return st.one_of(several.map(And), several.map(Or), children.map(Not), children.map(IsTrue))


any_elements: st.SearchStrategy[Expression] = _short(_any_elements)
derived: st.SearchStrategy[Expression] = _short(_derived(ATTRIBUTES, attributes))
_all_expressions = st.recursive(st.one_of(predicates, predicates, any_elements, derived), _groups, max_leaves=6)
expressions: st.SearchStrategy[Expression] = _short(_all_expressions)

# A conjunction of plain comparisons: what most subscriptions are, and what indexes are made for.
conjunctions = st.lists(predicates, min_size=1, max_size=4, unique=True).map(
    lambda parts: parts[0] if len(parts) == 1 else And(parts)
)
with_derived = st.tuples(derived, conjunctions).map(lambda parts: parts[0] & parts[1])
subscriptions = st.one_of(conjunctions, conjunctions, with_derived, expressions, expressions)


@st.composite
def _large_disjunctions(draw: st.DrawFn) -> Expression:
    """Return a conjunction of large disjunctions, with exceptions, of a few leaves and of short texts."""
    pool = draw(st.lists(st.one_of(predicates, predicates, any_elements, derived), min_size=4, max_size=10))
    chance = draw(st.randoms(use_true_random=False))

    def one() -> Expression:
        if chance.random() < 0.2:
            op, text = chance.choice(["contains", "=", "starts with"]), chance.choice(["a", "b", "é"])
            return Predicate(chance.choice(ATTRIBUTES), op, text * chance.randint(1, 3))
        leaf = chance.choice(pool)
        return chance.choice([leaf, leaf, leaf, Not(leaf), Not(IsTrue(leaf))])

    def some() -> Expression:
        kind = chance.random()
        if kind < 0.7:
            return one()
        return And([one(), one()]) if kind < 0.9 else And([one(), Or([one(), And([one(), one()])])])

    parts = [Or([some() for _ in range(chance.randint(2, 24))]) for _ in range(chance.randint(1, 3))]
    required = [one() for _ in range(chance.randint(0, 5))]
    exceptions = [Or([some() for _ in range(chance.randint(1, 12))]) for _ in range(chance.randint(0, 2))]
    kept = [chance.choice([Not(part), Not(IsTrue(part))]) for part in exceptions]
    return And([*required, *parts, *kept])


large_disjunctions = _large_disjunctions()

_all_leaves = st.one_of(
    numbers,
    texts,
    st.sampled_from(TIMES),
    st.booleans(),
    st.none(),
    st.just(float("nan")),
    st.just(float("inf")),
    st.just(2**70),
    st.just(LONG_TEXT),
    st.sampled_from(CASED),
)
leaves: st.SearchStrategy[Any] = _short(_all_leaves)
_small_objects = st.dictionaries(st.sampled_from(["d", "e"]), leaves | st.lists(leaves, max_size=2), max_size=2)
values = st.one_of(
    leaves,
    leaves,
    st.lists(leaves, max_size=3),
    st.lists(_small_objects, max_size=2),
    st.lists(st.lists(leaves, max_size=2), max_size=2),
)
events = st.fixed_dictionaries(
    {},
    optional={
        "a": values,
        "b": values,
        "c": st.one_of(_small_objects, values),
        "c.d": values,
        "c.e": values,
        "unused": values,
    },
)


def sweep(engine: Engine) -> None:
    """Give back the memory of removed subscriptions; trees in a file change in place, and have nothing to sweep."""
    if not isinstance(engine, PagedEngine):
        engine._updates.sweep_all()
