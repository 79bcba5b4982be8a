"""The console in a real Chromium: create, see a match arrive, explain, renew, let one expire."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from server.serving import Service, serving
from siftline.broker.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

playwright = pytest.importorskip("playwright.sync_api", reason="the browser tests need Playwright")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip(
            "the console was not tested: there is no Chromium here (`make browser` installs it as root on Debian)"
        )
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = Limits(subscribes_per_second=None)
    with serving(tmp_path_factory.mktemp("console") / "store.db", limits=limits) as service:
        service.subscribe("warm = 1")
        service.publish({"warm": 1})
        yield service


@pytest.fixture
def page(browser: Browser, service: Service) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.set_default_timeout(30_000)
    page.goto(service.url)
    yield page
    page.close()
    assert problems == []


def fill(page: Page, expression: str, event: str) -> None:
    page.fill("#expression", expression)
    page.fill("#event", event)


def test_explain_as_one_types(page: Page) -> None:
    fill(page, "price < 5 and color = 'red'", '{"price": 4}')
    page.wait_for_selector("#explanation >> text=It does not match.")
    assert "color is absent" in page.inner_text("#explanation")
    page.fill("#event", '{"price": 4, "color": "red"}')
    page.wait_for_selector("#explanation >> text=It matches.")
    page.fill("#expression", "price betwen 1 and 2")
    page.wait_for_selector("#explanation >> text=did you mean 'between'?")


def test_create_see_a_match_renew_and_end(page: Page, service: Service) -> None:
    page.wait_for_selector("#state >> text=stream")
    fill(page, "console > 1", '{"console": 2}')
    page.click("#subscribe")
    page.wait_for_selector("#done >> text=ticket_")
    id = page.inner_text("#done").split()[2]
    row = f'tr[data-id="{id}"]'
    page.wait_for_selector(row)
    page.click("#publish")
    page.wait_for_selector(f"#matches >> text={id}")
    page.click("#would")
    page.wait_for_selector(f"#done >> text=1 would match: {id}")
    before = service.broker.get(id, None).expires
    page.fill("#validity", "9d")
    with page.expect_response(lambda response: response.url.endswith("/renew")):
        page.get_by_label(f"Renew {id}").click()
    after = service.broker.get(id, None).expires
    assert before is not None
    assert after is not None
    assert (after - before).days >= 7
    page.fill("#search", "console > 1")
    page.wait_for_selector("#list tr:only-child")
    page.get_by_label(f"End {id}").click()
    page.wait_for_selector("#more >> text=None.")


def test_one_expires(page: Page) -> None:
    fill(page, "brief = 1", "{}")
    page.fill("#validity", "2s")
    page.fill("#search", "brief = 1")
    page.click("#subscribe")
    page.wait_for_selector("#list >> text=brief = 1")
    page.wait_for_selector("#more >> text=None.")


def test_by_keyboard(page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id"))
    assert {"key", "expression", "event", "validity", "subscribe", "publish", "search", "pause", "structure"} <= seen
    page.focus("#pause")
    page.keyboard.press("Enter")
    assert page.get_attribute("#pause", "aria-pressed") == "true"


def test_dark_light_and_on_a_phone(page: Page) -> None:
    colors = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colors.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colors[0] != colors[1]
    page.set_viewport_size({"width": 360, "height": 700})
    page.wait_for_selector("#structure >> text=subscriptions")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_with_keys_the_page_asks_for_one(page: Page, service: Service) -> None:
    key = service.broker.keys.add("admin")
    try:
        page.reload()
        page.wait_for_selector("#state >> text=a key for the role")
        page.fill("#key", key)
        page.keyboard.press("Enter")
        page.wait_for_selector("#state >> text=stream")
    finally:
        service.broker.keys.revoke(key.partition(".")[0])
