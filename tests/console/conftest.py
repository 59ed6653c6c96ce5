"""For the tests of the console: one server and one browser for a module, a person for a test."""

import re
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Locator, Page
from tests.console.browser import Chromium, Visit, chromium
from tests.console.stage import Stage, staged


def button(where: Page | Locator, name: str) -> Locator:
    """The button of this name; the key that presses it may follow."""
    return where.get_by_role("button", name=re.compile(rf"^{name}( \w)?$"))


def item(page: Page, key: str) -> Locator:
    """What waits, by its id: an approval, or an effect in doubt."""
    return page.locator(f'article[id$="{key}"]')


Enter = Callable[..., tuple[Visit, Page]]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    with staged(tmp_path_factory.mktemp("stage")) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Generator[Chromium]:
    with chromium() as found:
        yield found


@pytest.fixture
def enter(stage: Stage, browser: Chromium) -> Generator[Enter]:
    """Lets people in by a link, with these scopes and at such a browser; who they are, and their first tab."""
    with ExitStack() as people:

        def let_in(
            scopes: tuple[str, ...] = ("admin",), prefix: str | None = None, **how: Any
        ) -> tuple[Visit, Page]:
            visit = people.enter_context(browser.visit(stage.url, **how))
            page = visit.page()
            page.goto(stage.enter(scopes, prefix))
            page.wait_for_url(f"{stage.url}/")
            return visit, page

        yield let_in
