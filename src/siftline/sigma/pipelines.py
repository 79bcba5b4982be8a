"""pySigma's pipelines: they turn the log source of a rule into conditions, rename fields, and fill placeholders.

pySigma 1 keeps one object for all functions under its decorator `@Pipeline`: the last one that is imported is what all
of them return. So the pipelines of its own tests are imported first here, and what is mixed up all the same is refused.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import sigma.pipelines.test as _imported_first  # noqa: F401
from sigma.exceptions import SigmaError
from sigma.plugins import InstalledSigmaPlugins
from sigma.processing.pipeline import ProcessingItem, ProcessingPipeline
from sigma.processing.transformations import ValueListPlaceholderTransformation

from siftline.errors import UnknownPipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_THREAD: Final = threading.local()
_TESTS: Final = "sigma.pipelines.test"


def resolved(
    pipelines: Sequence[str | ProcessingPipeline] | str, placeholders: Mapping[str, Sequence[str]] | None = None
) -> ProcessingPipeline:
    """Return one pipeline for names of installed pipelines, YAML files of others, and objects of pySigma's class.

    Parameters
    ----------
    placeholders : mapping, optional
        Values for the placeholders (`%name%`) of rules with the modifier `expand`.
    """
    if placeholders is None and not isinstance(pipelines, str) and all(isinstance(each, str) for each in pipelines):
        return _of_this_thread(tuple(map(str, pipelines)))
    chosen = [pipelines] if isinstance(pipelines, str) else list(pipelines)
    return _joined(chosen, placeholders)


def _of_this_thread(names: tuple[str, ...]) -> ProcessingPipeline:
    """Return installed pipelines, made once for each thread: it takes longer than a rule, and they have a state."""
    known: dict[tuple[str, ...], ProcessingPipeline] = _THREAD.__dict__.setdefault("pipelines", {})
    if names not in known:
        made = _joined(names, None)
        if not all(name in _installed().pipelines for name in names):
            return made  # a file may change
        known[names] = made
    return known[names]


def _joined(
    chosen: Sequence[str | ProcessingPipeline], placeholders: Mapping[str, Sequence[str]] | None
) -> ProcessingPipeline:
    filled = [] if placeholders is None else [_filling(placeholders)]
    found = sorted((_one(each) for each in chosen), key=lambda pipeline: pipeline.priority)  # as pySigma does
    return sum([*found, *filled], ProcessingPipeline())


def _one(pipeline: str | ProcessingPipeline) -> ProcessingPipeline:
    if isinstance(pipeline, ProcessingPipeline):
        return pipeline
    resolver = _installed().get_pipeline_resolver()
    try:
        _check_distinct(pipeline)
        found: ProcessingPipeline = resolver.resolve_pipeline(pipeline)
    except UnknownPipelineError:
        raise
    except (SigmaError, OSError, ValueError) as error:
        known = ", ".join(sorted(name for name in _installed().pipelines if not _is_test(name)))
        detail = "" if "not found" in str(error) else f": {error}"
        raise UnknownPipelineError(
            f"the pipeline {pipeline!r} is neither installed nor a YAML file of one{detail}; there are {known}"
        ) from None
    return found


def _check_distinct(name: str) -> None:
    """Refuse a pipeline that pySigma 1 has mixed up with another."""
    known = _installed().pipelines
    function = getattr(known.get(name), "func", None)
    others = [each for each in known if each != name and known[each] is known.get(name) and not _is_test(each)]
    if function is not None and (others or (function.__module__.startswith(_TESTS) and not _is_test(name))):
        raise UnknownPipelineError(
            f"this version of pySigma mixes up the pipeline {name!r} with others: pySigma 2 does not"
        )


def _is_test(name: str) -> bool:
    return name.startswith(("dummy", "another", "YetAnother"))


@lru_cache(maxsize=1)
def _installed() -> InstalledSigmaPlugins:
    return InstalledSigmaPlugins.autodiscover(include_backends=False, include_validators=False)


def _filling(placeholders: Mapping[str, Sequence[str]]) -> ProcessingPipeline:
    variables: dict[str, Any] = {name: list(values) for name, values in placeholders.items()}
    known = ValueListPlaceholderTransformation(include=list(variables))
    return ProcessingPipeline(items=[ProcessingItem(transformation=known)], vars=variables)
