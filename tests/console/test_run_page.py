"""The page of one run: watched until it ends, what nobody knows is settled, and the replay is scrubbed."""

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect
from tests.console.conftest import Enter, button, item
from tests.console.stage import Stage, until


def status(page: Page) -> Locator:
    return page.locator('[aria-label="Status"]').first


def shows(page: Page, word: str) -> None:
    expect(status(page)).to_contain_text(re.compile(word.replace(" ", "[ _]"), re.IGNORECASE))


def test_a_run_ends_while_it_is_watched(stage: Stage, enter: Enter):
    _, page = enter()
    run_id = stage.start("watch", "a = await wait_for('watched')\npay('ann', len(a))")
    page.goto(f"{stage.url}/runs/{run_id}")
    page.evaluate("window.notReloaded = true")
    stage.let_go("watched")
    shows(page, "waiting for approval")
    button(page, "Approve").first.click()
    shows(page, "completed")
    expect(page.locator("main")).to_contain_text("paid 7 to ann")
    assert page.evaluate("window.notReloaded === true")


@pytest.mark.parametrize(
    ("answer", "gives"),
    [
        ("It happened", "the carrier has it"),
        ("It did not happen", None),
        ("Try it again", "Try-it-again-lamp is on its way"),
    ],
)
def test_what_nobody_knows_is_settled(answer: str, gives: str | None, stage: Stage, enter: Enter):
    article = f"{answer.replace(' ', '-')}-lamp"
    run_id, effect = stage.doubts(f"doubt-{article}", article)
    _, page = enter()
    one = item(page, effect)
    expect(one).to_contain_text("ship")
    expect(one).to_contain_text(article)
    one.get_by_role("radio", name=re.compile(answer)).check()
    if answer == "It happened":
        one.get_by_role("textbox", name=re.compile("what it gave", re.IGNORECASE)).fill(
            f'"{gives}"'
        )
    stage.let_go(article)
    button(one, "Put on record").click()
    if gives is None:
        done = stage.stands(run_id, "failed")
        assert done["error"]["code"] != "INTERNAL"
    else:
        assert stage.stands(run_id, "completed")["result"]["result"] == gives
    expect(button(one, "Put on record")).to_have_count(0)
    session = stage.view(run_id)["session_id"]
    (said,) = [
        one
        for one in stage.get("/v1/journal", session_id=session, limit=1000)["items"]
        if (one["payload"] or {}).get("effect_id") == effect
        and (one["actor"] or "").startswith("browser:tok_")
    ]
    assert said["kind"] in ("effect_result", "effect_released")


def visible(page: Page) -> list[int]:
    """The seqs of the steps that are shown."""
    return page.evaluate(
        """() => [...document.querySelectorAll('main [data-seq]')]
            .filter((one) => one.localName !== 'svg' && !one.closest('svg') && one.checkVisibility())
            .map((one) => +one.dataset.seq)"""
    )


def test_the_replay_is_scrubbed_by_keys_and_by_its_slider(stage: Stage, enter: Enter):
    done = stage.run("replay", "a = stock('x')\nb = stock('yy')\nc = stock('zzz')\n[a, b, c]")
    _, page = enter()
    page.goto(f"{stage.url}/runs/{done['run_id']}")
    slider = page.get_by_role("slider", name=re.compile("replay", re.IGNORECASE))
    everything = visible(page)
    assert len(everything) >= 3
    slider.focus()
    page.keyboard.press("Home")
    start = visible(page)
    assert len(start) < len(everything)
    counts = [len(start)]
    for _ in range(200):
        page.keyboard.press("ArrowRight")
        counts.append(len(visible(page)))
        if counts[-1] == len(everything):
            break
    assert counts == sorted(counts)
    assert counts[-1] == len(everything)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Home")
    assert visible(page) == start
    page.keyboard.press("End")
    assert visible(page) == everything
    place = slider.bounding_box()
    assert place is not None
    page.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    assert len(start) < len(visible(page)) < len(everything)
    page.keyboard.press("End")
    middle = everything[len(everything) // 2]
    page.goto(f"{stage.url}/runs/{done['run_id']}?at={middle}")
    assert max(visible(page)) <= middle


def test_the_replay_works_without_scripts(stage: Stage, enter: Enter):
    done = stage.run("replay", "a = stock('x')\nb = stock('yy')\n[a, b]")
    _, page = enter(scripts=False)
    page.goto(f"{stage.url}/runs/{done['run_id']}")
    everything = visible(page)
    middle = everything[len(everything) // 2]
    page.goto(f"{stage.url}/runs/{done['run_id']}?at={middle}")
    assert max(visible(page)) == middle < max(everything)


def test_an_agents_run_shows_its_turns(stage: Stage, enter: Enter):
    run_id = stage.agent("helper", "Order more lamps.", stage.fresh("agent"))["run_id"]
    _, page = enter()
    page.goto(f"{stage.url}/runs/{run_id}")
    shows(page, "waiting for approval")
    main = page.locator("main")
    expect(main).to_contain_text("stock('lamp')")
    expect(main).to_contain_text("lamp-works")
    button(page, "Approve").first.click()
    shows(page, "completed")
    expect(main).to_contain_text("40 lamps are ordered and paid: 129.00.")
    expect(main).to_contain_text(re.compile(r"\$0\.02"))


def test_a_run_is_stopped_from_its_page(stage: Stage, enter: Enter):
    run_id = stage.start("stop", "await wait_for('never')")
    _, page = enter()
    page.goto(f"{stage.url}/runs/{run_id}")
    page.on("dialog", lambda one: one.accept())
    page.get_by_role("button", name=re.compile("cancel|stop", re.IGNORECASE)).first.click()
    stage.stands(run_id, "cancelled")
    shows(page, "cancelled")


@pytest.mark.parametrize("settles", [20, 1000])
def test_an_answer_that_comes_late_does_not_leave_an_old_picture(
    stage: Stage, enter: Enter, settles: int
):
    run_id = stage.start(stage.fresh("late"), "await wait_for('never')")
    _, page = enter()
    address = f"{stage.url}/runs/{run_id}"
    before = page.request.get(address).text()
    page.goto(address)
    # Milliseconds until what was put on the page is a part of it: on a busy machine, longer than anything.
    page.evaluate("(ms) => { htmx.config.defaultSettleDelay = ms }", settles)
    page.on("dialog", lambda one: one.accept())

    def late(route: Route) -> None:
        route.fetch()
        stage.stands(run_id, "cancelled")
        shows(page, "cancelled")  # by what was heard of it
        route.fulfill(body=before, content_type="text/html")

    page.route("**/cancel", late)
    with page.expect_response("**/cancel"):
        page.get_by_role("button", name=re.compile("cancel|stop", re.IGNORECASE)).first.click()
    shows(page, "cancelled")


def test_a_clock_that_is_set_back_does_not_leave_an_old_picture(stage: Stage, enter: Enter):
    asked = stage.asks("clock", "pay('ann', 1)\npay('ann', 2)")
    _, page = enter()
    page.goto(f"{stage.url}/runs/{asked['run_id']}")
    stage.decide(asked["id"], "approved")
    expect(page.locator(f".waits:not([id$='{asked['id']}'])")).to_be_visible()
    page.evaluate("() => { const now = Date.now; Date.now = () => now() - 3600_000 }")
    [second] = stage.view(asked["run_id"])["pending_approvals"]
    stage.decide(second, "approved")
    shows(page, "completed")


def test_the_keys_on_the_buttons_of_the_one_thing_it_waits_for_work_at_once(
    stage: Stage, enter: Enter
):
    asked = stage.asks("keys", "pay('ann', 1)\npay('ann', 2)")
    _, page = enter()
    page.goto(f"{stage.url}/runs/{asked['run_id']}")
    page.keyboard.press("a")
    first = until(
        lambda: stage.get(f"/v1/approvals/{asked['id']}"), lambda one: one["decision"] is not None
    )
    assert first["decision"]["decision"] == "approved"
    banner = page.locator(f".waits:not([id$='{asked['id']}'])")
    expect(banner).to_contain_text("2")  # and of the next, after an answer from here
    expect(banner).to_have_attribute("aria-current", "true")
    page.keyboard.press("d")
    page.wait_for_url("**/inbox/**")
    expect(page.get_by_label("Reason to deny")).to_be_focused()


def test_a_key_decides_nothing_that_came_in_the_place_of_another(stage: Stage, enter: Enter):
    asked = stage.asks("place", "pay('ann', 1)\npay('ann', 2)")
    _, page = enter()
    page.goto(f"{stage.url}/runs/{asked['run_id']}")
    expect(page.locator(".waits.is-here")).to_be_visible()
    stage.decide(asked["id"], "approved")
    banner = page.locator(f".waits:not([id$='{asked['id']}'])")
    expect(banner).to_be_visible()
    page.keyboard.press("a")
    page.keyboard.press("j")
    expect(page.locator(".is-here")).to_have_count(1)
    (pending,) = stage.view(asked["run_id"])["pending_approvals"]
    assert stage.get(f"/v1/approvals/{pending}")["status"] == "pending"


STANDS = """() => {
    const line = document.querySelector('.code-lines .stands');
    const [inner, outer] = [line.getBoundingClientRect(), line.parentElement.getBoundingClientRect()];
    return [+line.dataset.line, inner.top >= outer.top && inner.bottom <= outer.bottom, scrollY];
}"""


def test_the_line_it_stands_on_is_seen(stage: Stage, enter: Enter):
    filler = "".join(f"x{number} = {number}\n" for number in range(250))
    asked = stage.asks("tall", f"pay('ann', 1)\n{filler}pay('ann', 2)\n{filler}'end'")
    _, page = enter()
    page.goto(f"{stage.url}/runs/{asked['run_id']}")
    assert page.evaluate(STANDS) == [1, True, 0]
    button(page, "Approve").click()
    expect(page.locator(".stands")).to_have_attribute("data-line", "252")  # after a swap
    assert page.evaluate(STANDS) == [252, True, 0]
    page.reload()
    assert page.evaluate(STANDS) == [252, True, 0]
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("Home")
    for _ in range(10):
        page.keyboard.press("ArrowRight")
        if page.locator(".stands[data-line='1']").count():
            break
    found = page.evaluate(STANDS)
    assert found[:2] == [1, True]
    page.keyboard.press("End")
    assert page.evaluate(STANDS)[:2] == [252, True]


def test_a_run_of_one_moment_has_no_slider(stage: Stage, enter: Enter):
    session = stage.fresh("moment")

    def records() -> list[Any]:
        return stage.get("/v1/journal", run_id=done["run_id"])["items"]

    done = stage.run(session, "1 + 1")
    while len(records()) != 1:  # which is all there is of a run that was over within a millisecond
        done = stage.run(session, "1 + 1")
    _, page = enter()
    page.goto(f"{stage.url}/runs/{done['run_id']}")
    shows(page, "completed")
    expect(page.get_by_role("slider")).to_have_count(0)


def test_steps_tell_what_was_called_with_what(stage: Stage, enter: Enter):
    done = stage.run(stage.fresh("told"), "for n in range(3):\n    stock(f'article {n}')")
    _, page = enter()
    page.goto(f"{stage.url}/runs/{done['run_id']}")
    rows = page.locator(".step summary").filter(has_text="stock")
    for number in range(3):
        expect(rows.nth(number)).to_contain_text(f"article {number}")


def test_a_form_that_is_refused_keeps_what_was_typed(stage: Stage, enter: Enter):
    visit, page = enter(("read", "run"), prefix="acme-")
    visit.allow("404")
    page.goto(f"{stage.url}/runs/new")
    page.get_by_label("Code", exact=True).fill("print('an hour of work')")
    page.get_by_label("Session").fill("others-1")
    button(page, "Run the code").click()
    expect(page.get_by_role("alert")).to_contain_text("There is no such session.")
    expect(page.get_by_label("Code", exact=True)).to_have_value("print('an hour of work')")
    expect(page.get_by_label("Session").first).to_have_value("others-1")
