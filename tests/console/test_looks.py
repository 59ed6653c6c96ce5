"""Every page, with something on it: readable in light and dark, usable without a mouse, by ear, and on a phone."""

import json
import re
from collections.abc import Callable, Generator
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.console import accessible
from tests.console.browser import DESKTOP, PHONE, Chromium
from tests.console.conftest import Enter, button, item
from tests.console.stage import Stage, staged
from tests.console.story import STORY, WEATHER, Story, tell

Check = Callable[[Page], list[str]]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    folder = tmp_path_factory.mktemp("story")
    (folder / "weather.py").write_text(WEATHER)
    with staged(folder, settings=STORY) as found:
        yield found


@pytest.fixture(scope="module")
def story(stage: Stage) -> Story:
    return tell(stage)


def walk(stage: Stage, page: Page, story: Story, *checks: Check) -> None:
    """Nothing is wrong on any page; with all that is folded in it."""
    found: dict[str, Any] = {}
    for name, path in story.pages.items():
        answer = page.goto(f"{stage.url}{path}")
        assert answer is not None
        if answer.status != 200:
            found[name] = answer.status
            continue
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        if bad := [one for check in checks for one in check(page)]:
            found[name] = bad
    assert not found, json.dumps(found, indent=2, ensure_ascii=False)


def test_pages_are_for_eyes_ears_and_keys(stage: Stage, story: Story, enter: Enter):
    _, page = enter()
    walk(
        stage,
        page,
        story,
        accessible.faint,
        accessible.shape,
        accessible.nameless,
        accessible.unseen_focus,
    )


def test_text_stands_out_in_the_dark_too(stage: Stage, story: Story, enter: Enter):
    _, page = enter(dark=True)
    walk(stage, page, story, accessible.faint)


def test_nothing_is_wider_than_a_phone(stage: Stage, story: Story, enter: Enter):
    _, page = enter(size=PHONE, touch=True)
    walk(stage, page, story, accessible.too_wide)


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_nothing_is_cut_without_a_sign(
    size: tuple[int, int], stage: Stage, story: Story, enter: Enter
):
    _, page = enter(size=size)
    found = {
        name: bad
        for name, path in story.pages.items()
        if page.goto(f"{stage.url}{path}") and (bad := accessible.cut(page))
    }
    assert not found, json.dumps(found, indent=2, ensure_ascii=False)


@pytest.mark.parametrize("path", ["/runs", "/sessions", "/inbox/decided", "/journal"])
def test_one_long_name_leaves_room_for_the_other_columns(
    path: str, stage: Stage, story: Story, enter: Enter
):
    _, page = enter()
    page.goto(f"{stage.url}{path}")
    room, needed = page.evaluate(
        "(() => { const one = document.querySelector('main .table-wrap'); return [one.clientWidth, one.scrollWidth]; })()"
    )
    assert needed <= room


def test_what_an_agent_wrote_stands_below_its_run(stage: Stage, story: Story, enter: Enter):
    _, page = enter()
    page.goto(f"{stage.url}/runs?session_id=lamps")
    rows = page.locator("main tbody tr")
    expect(rows.nth(0)).to_contain_text("Order more lamps")
    expect(rows.nth(1)).to_contain_text("stock('lamp')")
    expect(rows.nth(2)).to_contain_text("pay('lamp-works'")


def test_on_a_phone_the_timeline_shows_the_present(stage: Stage, story: Story, enter: Enter):
    _, page = enter(size=PHONE, touch=True)
    page.goto(f"{stage.url}{story.pages['run-code']}")
    seen = page.evaluate(
        """() => {
            const pane = document.querySelector('.run-time .timeline').getBoundingClientRect();
            const wait = [...document.querySelectorAll('.lanes .lane-wait rect')].at(-1).getBoundingClientRect();
            return [pane.left <= wait.left, wait.left < pane.right];
        }"""
    )
    assert seen == [True, True]


def test_the_first_stop_of_the_tab_key_skips_to_the_content(stage: Stage, enter: Enter):
    _, page = enter()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"
    assert page.evaluate("document.activeElement.id") == "main"


def test_the_inbox_is_for_fingers_too(stage: Stage, story: Story, enter: Enter):
    _, page = enter(size=PHONE, touch=True)
    assert (
        accessible.too_small(page, "main button, main input:not([type=hidden]), main select, nav a")
        == []
    )
    asked = stage.asks("finger", "pay('ann', 55)")
    expect(item(page, asked["id"])).to_be_visible()
    button(item(page, asked["id"]), "Approve").tap()
    stage.stands(asked["run_id"], "completed")


def theme(page: Page) -> str:
    return page.evaluate(
        """() => {
            const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number);
            return r + g + b < 384 ? 'dark' : 'light';
        }"""
    )


def test_it_is_as_dark_as_the_system_until_somebody_says_otherwise(stage: Stage, enter: Enter):
    colours = re.compile("theme|colours", re.IGNORECASE)
    _, page = enter(dark=True)
    assert theme(page) == "dark"
    page.get_by_role("button", name=colours).click()
    assert theme(page) == "light"
    visit, page = enter(dark=False)
    assert theme(page) == "light"
    switch = page.get_by_role("button", name=colours)
    for _ in range(3):
        switch.click()
        if theme(page) == "dark":
            break
    assert theme(page) == "dark"
    page.reload()
    assert theme(page) == "dark"
    other = visit.page()
    other.goto(f"{stage.url}/runs")
    assert theme(other) == "dark"
    switch.click()
    page.goto(f"{stage.url}/journal")
    assert theme(page) == "light"


def test_the_journal_is_searched_and_verified(stage: Stage, story: Story, enter: Enter):
    _, page = enter()
    page.goto(f"{stage.url}/journal?kind=approval_responded")
    main = page.locator("main")
    expect(main).to_contain_text("approval_responded")
    expect(main).not_to_contain_text("run_started")
    page.get_by_role("button", name=re.compile("verify", re.IGNORECASE)).first.click()
    expect(main).to_contain_text("The journal is whole.")


def test_the_list_of_runs_says_what_each_is_about(stage: Stage, story: Story, enter: Enter):
    _, page = enter()
    page.goto(f"{stage.url}/runs")
    rows = page.locator("main tbody")
    expect(rows).to_contain_text("helper Order more lamps, we are nearly out.")
    expect(rows).to_contain_text("report = {}")  # the line after the comment
    expect(rows).to_contain_text("total = 12")  # of a run that was over at once
    page.goto(f"{stage.url}/runs?session_id=lamps")
    expect(page.locator("main tbody tr")).to_have_count(3)
    expect(page.locator("main tbody")).to_contain_text("written by an agent: left = stock('lamp')")


def test_empty_pages_say_what_to_do(browser: Chromium, tmp_path_factory: pytest.TempPathFactory):
    with (
        staged(tmp_path_factory.mktemp("empty")) as stage,
        browser.visit(stage.url) as visit,
    ):
        page = visit.page()
        page.goto(stage.link)
        page.wait_for_url(f"{stage.url}/")
        for path in ("/", "/runs", "/sessions", "/charts", "/tools", "/journal"):
            answer = page.goto(f"{stage.url}{path}")
            assert answer is not None
            assert answer.status == 200
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert accessible.shape(page) == []
            assert accessible.faint(page) == []
