from __future__ import annotations

import json

import pytest
from sigma.collection import SigmaCollection
from sigma.exceptions import SigmaFeatureNotSupportedByBackendError
from sigma.plugins import InstalledSigmaPlugins

from siftline.sigma.backend import SiftlineBackend

ID = "5013198e-7d8b-4d9c-8e5b-5b5ebd8d2f3a"
RULE = f"""
title: Braces
id: {ID}
logsource: {{category: process_creation, product: windows}}
detection:
  s: {{CommandLine|contains: '{{x}}'}}
  f: {{User: null}}
  condition: {{}}
"""


def rules(condition: str = "s and not f") -> SigmaCollection:
    return SigmaCollection.from_yaml(RULE.replace("{}", condition))


def test_pysigma_finds_the_backend() -> None:
    found: dict[str, object] = dict(InstalledSigmaPlugins.autodiscover().backends)
    assert found["siftline"] is SiftlineBackend


def test_conversion_with_a_pipeline() -> None:
    pipeline = InstalledSigmaPlugins.autodiscover().get_pipeline_resolver().resolve(["sysmon"])
    assert SiftlineBackend(pipeline).convert(rules()) == [
        "EventID in (1, '1') and CommandLine contains '{x}' ignoring case and (User is null) is not true"
    ]


def test_lines_that_match_reads() -> None:
    (line,) = SiftlineBackend().convert(rules("f"), "jsonl")
    assert json.loads(line) == {"id": ID, "expression": "User is null"}


def test_several_conditions_make_several_lines() -> None:
    lines = SiftlineBackend().convert(rules("[s, f]"), "jsonl")
    assert [json.loads(line)["id"] for line in lines] == [ID, f"{ID}#2"]


def test_what_siftline_does_not_have_is_an_error_of_pysigma() -> None:
    hour = SigmaCollection.from_yaml(RULE.replace("{}", "s").replace("CommandLine|contains: '{x}'", "at|hour: 5"))
    with pytest.raises(SigmaFeatureNotSupportedByBackendError, match="parts of a time"):
        SiftlineBackend().convert(hour)
