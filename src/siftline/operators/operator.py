"""Operators: Python functions that conditions may call.

>>> @operator("hotter_than", cost=0.1)
... def hotter_than(event, degrees: float):
...     return event["temperature"] > degrees
>>> @operator("reading", binds=["sensor", "value"])
... def reading(event):
...     return [(name, value) for name, value in event["readings"].items()]
>>> hotter_than({"temperature": 30}, 25)
True

In a condition, `hotter_than(25)` is then true or false, and `reading(?sensor, ?value) and ?value > 5` is true if some
reading is above 5.
"""

from __future__ import annotations

import inspect
import math
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin, get_type_hints

from siftline.errors import OperatorError, SubscriptionError
from siftline.model import kind_of
from siftline.operators.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import EllipsisType

    from siftline.model import Constant

# Which constants a parameter takes, by its annotation; one without an annotation takes all.
_KINDS: Final[dict[Any, str]] = {bool: "boolean", int: "number", float: "number", str: "string"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant that an operator takes."""

    name: str
    annotations: frozenset[type]  # empty: any constant
    is_needed: bool

    def takes(self, value: Constant) -> bool:
        """Return whether the constant is of the right type; a number with a point is no int."""
        if not self.annotations:
            return True
        if type(value) is int:
            return not self.annotations.isdisjoint((int, float))
        return type(value) in self.annotations

    def wanted(self) -> str:
        """Return the kinds of constants that it takes, in words."""
        kinds = [f"a {_KINDS[kind]}" for kind in (bool, float, str) if kind in self.annotations]
        if int in self.annotations and float not in self.annotations:
            kinds.append("an integer")
        return " or ".join(kinds) or "a constant"


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """A function that conditions may call; `operator` makes one.

    Attributes
    ----------
    name : str
        As in conditions.
    function : callable
        Of the event and constants; of a table of events and constants if `is_batch`.
    cost : float
        Milliseconds that a call is expected to take.
    timeout : float or None
        Seconds after which a call counts as unknown.
    parameters : tuple of Parameter
        The first arguments of a call.
    is_variadic : bool
        Whether any number of constants may follow the parameters.
    binds : tuple of str, or None
        The names of the values of a solution, which are the last arguments of a call. None: any number of values.
    is_batch : bool
        Whether the function takes a whole Arrow table of events at once.
    """

    name: str
    function: Callable[..., Any]
    cost: float
    timeout: float | None
    parameters: tuple[Parameter, ...]
    is_variadic: bool
    binds: tuple[str, ...] | None
    is_batch: bool

    def __call__(self, *arguments: Any) -> Any:
        """Call the function itself."""
        return self.function(*arguments)

    def signature(self) -> str:
        """Return how a call is written.

        >>> @operator("within_box", binds=["d"])
        ... def within_box(event, name: str, size: float = 1.0):
        ...     return [1.0]
        >>> within_box.signature()
        'within_box(name, [size], ?d)'
        """
        parts = [parameter.name if parameter.is_needed else f"[{parameter.name}]" for parameter in self.parameters]
        parts += ["..."] * self.is_variadic
        parts += ["?..."] if self.binds is None else [f"?{name}" for name in self.binds]
        return f"{self.name}({', '.join(parts)})"

    def n_constants(self, arguments: Sequence[Any]) -> int:
        """Return how many arguments of a call are passed to the function; raise if they do not fit."""
        n_needed = sum(parameter.is_needed for parameter in self.parameters)
        n = len(self.parameters) if self.binds is None else len(arguments) - len(self.binds)
        if n < n_needed or n > len(arguments) or (n > len(self.parameters) and not self.is_variadic):
            raise SubscriptionError(
                f"the operator {self.name!r} does not take {len(arguments)} arguments",
                hint=f"write {self.signature()}",
            )
        return n

    def check_constant(self, position: int, value: Constant) -> None:
        """Raise unless the function takes the constant as its argument number `position`."""
        if position >= len(self.parameters):
            return
        parameter = self.parameters[position]
        if not parameter.takes(value):
            raise SubscriptionError(
                f"{parameter.name!r} of the operator {self.name!r} takes {parameter.wanted()}, not {value!r}",
                hint=f"write {self.signature()}",
            )


def operator(
    name: str,
    *,
    cost: float = 1.0,
    binds: Sequence[str] | EllipsisType = (),
    timeout: float | None = None,
    batch: bool = False,
    replace: bool = False,
) -> Callable[[Callable[..., Any]], Operator]:
    """Make a function an operator that conditions can call.

    Parameters
    ----------
    name : str
        As in conditions.
    cost : float
        Milliseconds that a call is expected to take, if known; the default schedule also measures it.
    binds : sequence of str, or ...
        The names of the values of a solution. In a call they come last, as variables, or as constants that the solution
        must have. With `...` a solution has as many values as the call has arguments for them.
    timeout : float, optional
        Seconds after which a call counts as unknown. Such calls run in another thread.
    batch : bool
        The function takes an Arrow table of events instead of one, and returns a list with a result for each.
    replace : bool
        Replace an operator with the same name.

    The function takes the event, as a dict, and constants; annotations with bool, int, float, str are checked when a
    subscription is added. Without `binds` it returns True, False, or None for unknown. With them it returns one
    solution (a value, or a tuple with a value for each name), or a list, set or iterator of solutions; none is false,
    and None is unknown. Values are booleans, finite numbers and strings.
    """
    if not isinstance(name, str):  # @siftline.operator without parentheses would make nothing, silently
        shown = getattr(name, "__name__", "name")
        raise OperatorError(f"an operator needs its name: write @siftline.operator({shown!r})")

    def made(function: Callable[..., Any]) -> Operator:
        if not name:
            raise OperatorError("an operator needs a name")
        names = None if binds is Ellipsis else tuple(binds)
        _check_options(name, cost, timeout, names)
        parameters, is_variadic = _parameters(name, function)
        if is_variadic and names is None:
            raise OperatorError(f"the operator {name!r} cannot take any number of constants and of variables")
        found = Operator(name, function, float(cost), timeout, parameters, is_variadic, names, batch)
        register(found, replace=replace)
        return found

    return made


def _check_options(name: str, cost: Any, timeout: Any, binds: tuple[str, ...] | None) -> None:
    for what, value in (("cost", cost), ("timeout", timeout)):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 < value < math.inf):
            raise OperatorError(f"the {what} of the operator {name!r} must be a positive number, not {value!r}")
    if binds is not None and (len(set(binds)) != len(binds) or not all(binds)):
        raise OperatorError(f"what the operator {name!r} binds must be different names, not {binds!r}")


def _parameters(name: str, function: Callable[..., Any]) -> tuple[tuple[Parameter, ...], bool]:
    """Return what a function takes after the event, and whether it takes any number of constants."""
    parameters = list(inspect.signature(function).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or parameters[0].kind not in positional:
        raise OperatorError(f"the function of the operator {name!r} must take the event as its first parameter")
    hints = _hints(function)
    found = []
    is_variadic = False
    for parameter in parameters[1:]:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            is_variadic = True
        elif parameter.kind in positional:
            is_needed = parameter.default is inspect.Parameter.empty
            found.append(Parameter(parameter.name, _annotations(name, parameter.name, hints), is_needed))
        elif parameter.default is inspect.Parameter.empty and parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            raise OperatorError(f"{parameter.name!r} of the operator {name!r} has no position in a call")
    return tuple(found), is_variadic


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):  # names that exist for type checkers only: nothing can be checked
        return {}


def _annotations(operator: str, name: str, hints: dict[str, Any]) -> frozenset[type]:
    hint = hints.get(name, Any)
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    if Any in kinds or object in kinds:
        return frozenset()
    if not all(kind in _KINDS for kind in kinds):
        raise OperatorError(f"{name!r} of the operator {operator!r} must be bool, int, float or str, not {hint}")
    return frozenset(kinds)


def checked_value(value: Any) -> Constant:
    """Return a value of a solution as a constant of the language, or raise TypeError."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # of numpy
    if hasattr(value, "as_py"):
        value = value.as_py()
    if type(value) not in _KINDS or (type(value) is float and not math.isfinite(value)):
        raise TypeError(f"a solution has booleans, finite numbers and strings, not {value!r}")
    assert kind_of(value)
    return value  # type: ignore[no-any-return]
