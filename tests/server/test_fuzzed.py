"""Valid and invalid requests generated from the OpenAPI description: every one is answered, none by a bug."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from server.serving import Service, serving
from siftline.broker.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMITS = Limits(body_bytes=100_000, subscribes_per_second=None, publishes_per_second=None)
STREAM = "text/event-stream"


@schemathesis.serializer("application/x-ndjson", "application/cloudevents-batch+json", "application/cloudevents+json")
def serialize(context: Any, value: Any) -> bytes:
    return value.encode("utf-8", "replace") if isinstance(value, str) else json.dumps(value, default=str).encode()


@pytest.fixture(scope="module", params=[True, False], ids=["matching", "for a cluster"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    path = tmp_path_factory.mktemp("fuzzed") / "store.db"
    with serving(path, limits=LIMITS, matches_here=request.param) as service:
        yield service


def cases(service: Service) -> st.SearchStrategy[Any]:
    """Draw requests to any route, as described or not, half of them to subscriptions that there are."""
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    operations = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]
    assert len(operations) > 20
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    # A route that takes nothing has nothing that could be wrong.
    drawn = [
        each.as_strategy(generation_mode=mode)
        for each in operations
        for mode in modes
        if mode is GenerationMode.POSITIVE or each.body or each.query or each.path_parameters
    ]
    ids = st.sampled_from([service.subscribe(text)[0] for text in ("a > 0", "b = 'x'")])
    return st.builds(_with_id, st.one_of(drawn), st.none() | ids)


def _with_id(case: Any, id: str | None) -> Any:
    if id is not None and "id" in (case.path_parameters or {}):
        case.path_parameters["id"] = id
    return case


def check(service: Service, case: Any, session: requests.Session) -> None:
    """Send a request, and look at the answer; of a stream, which has no end, only at its head."""
    kwargs = case.as_transport_kwargs(base_url=service.url)
    with session.request(**kwargs, stream=True, timeout=60) as response:
        assert response.status_code != 500, (case.as_curl_command(), response.text)
        described = case.operation.definition.raw["responses"]
        assert str(response.status_code) in described or response.status_code in (400, 404, 405), case.as_curl_command()
        if not response.headers.get("content-type", "").startswith(STREAM):
            body = response.content
            assert response.status_code < 400 or response.json()["error"]["status"] == response.status_code, body


def run(service: Service, n_requests: int) -> None:
    with requests.Session() as session:
        session.trust_env = False

        @settings(max_examples=n_requests, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=cases(service))
        def fuzz(case: Any) -> None:
            check(service, case, session)

        fuzz()
    assert service.client.get("/readyz").status_code == 200


def test_hundreds_of_requests(service: Service) -> None:
    run(service, 150)


@pytest.mark.slow
def test_thousands_of_requests(service: Service) -> None:
    run(service, 5_000)
