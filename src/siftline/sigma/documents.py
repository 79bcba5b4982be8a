"""YAML: the documents of a text, and where in the text something of them stands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from siftline.errors import SubscriptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# libyaml's loader is about ten times as fast as Python's; PyYAML can be built without it.
_FastLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Aliases make a short text a large document, or one that holds itself.
_MAX_VALUES: Final = 20_000
_MAX_CHARACTERS: Final = 524_288
# libyaml composes by recursion in C, where nothing else stops it.
_MAX_DEPTH: Final = 100
_MANY_INDICATORS: Final = re.compile(r"(?:[-?][ \t]+){50}")


class _Loader(_FastLoader):  # type: ignore[misc]
    """Refuses keys that occur twice: the first of two selections of one name would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = key.value
            if isinstance(name, str) and name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} is there twice", key.start_mark)
            seen.add(name if isinstance(name, str) else None)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def read_documents(text: str) -> list[Any]:
    """Return the documents of a YAML text, empty ones left out; raise SubscriptionError with the place of an error."""
    try:
        _check_depth(text)
        documents = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except yaml.MarkedYAMLError as error:
        raise _located(error, text) from None
    except yaml.reader.ReaderError as error:  # a character that YAML does not have
        raise SubscriptionError(f"not YAML: {error.reason}", text=text, position=error.position) from None
    except SubscriptionError:
        raise
    except ValueError as error:  # a date that does not exist
        raise SubscriptionError(f"not YAML: {error}", text=text, position=_bad_scalar(text)) from None
    for document in documents:
        _check_values(document)
    return documents


def _located(error: yaml.MarkedYAMLError, text: str) -> SubscriptionError:
    mark = error.problem_mark or error.context_mark
    reason = f"not YAML: {error.problem or error.context}"
    return SubscriptionError(reason, text=text, position=None if mark is None else offset_of(text, mark))


def _check_depth(text: str) -> None:
    """Refuse brackets, or lists in lists, that nest so deep that libyaml might overflow the stack."""
    if text.count("[") + text.count("{") <= _MAX_DEPTH and _MANY_INDICATORS.search(text) is None:
        return
    depth = 0
    for event in yaml.parse(text, Loader=_FastLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                reason = f"the document nests deeper than {_MAX_DEPTH} levels"
                raise SubscriptionError(reason, text=text, position=offset_of(text, event.start_mark))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _check_values(document: Any) -> None:
    pending, n_values, n_characters = [document], 0, 0
    while pending:
        value = pending.pop()
        n_values += 1
        n_characters += len(value) if isinstance(value, str) else 0
        if n_values > _MAX_VALUES:
            raise SubscriptionError(f"the rule holds itself by an alias, or more than {_MAX_VALUES:,} values")
        if n_characters > _MAX_CHARACTERS:
            raise SubscriptionError(f"the rule has more than {_MAX_CHARACTERS:,} characters of text")
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _bad_scalar(text: str) -> int | None:
    """Return where the first value stands that cannot be made."""
    pending = list(reversed(nodes_of(text)))
    while pending:
        node = pending.pop()
        if isinstance(node, yaml.ScalarNode):
            try:
                value_of(node)
            except ValueError:
                return offset_of(text, node.start_mark)
        pending.extend(reversed([*elements_of(node), *(each for pair in members_of(node) for each in pair)]))
    return None


def offset_of(text: str, mark: Any) -> int:
    """Return the position in a text of a mark, which has line and column from 0."""
    start = 0
    for _ in range(mark.line):
        start = text.find("\n", start) + 1
    return min(start + int(mark.column), len(text))


def nodes_of(text: str) -> list[Any]:
    """Return the documents of a good text as trees of nodes, which know their places."""
    return [node for node in yaml.compose_all(text, Loader=_FastLoader) if not _is_null(node)]


def _is_null(node: Any) -> bool:
    return node is None or node.tag == "tag:yaml.org,2002:null"


def members_of(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield keys and values of a mapping, as nodes; nothing of any other node."""
    pairs: Iterable[tuple[Any, Any]] = node.value if isinstance(node, yaml.MappingNode) else ()
    yield from pairs


def elements_of(node: Any) -> list[Any]:
    """Return the elements of a sequence, as nodes; none of any other node."""
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def value_of(node: Any) -> Any:
    """Return what a scalar node means; of any other node, nothing."""
    if not isinstance(node, yaml.ScalarNode):
        return None
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    finally:
        loader.dispose()
