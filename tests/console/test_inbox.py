"""The inbox in a real browser: the first visit, what waits appears, and is decided."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect
from tests.console.browser import Chromium
from tests.console.conftest import Enter, button, item
from tests.console.stage import Stage, until


def stays(page: Page) -> None:
    """From here on a reload is noticed."""
    page.evaluate("window.notReloaded = true")


def stayed(page: Page) -> bool:
    return page.evaluate("window.notReloaded === true")


def selected(page: Page, approval: str) -> bool:
    return page.evaluate(
        """(id) => {
            const one = document.querySelector(`article[id$="${id}"]`);
            return one !== null && (one.contains(document.activeElement)
                || one.matches('[aria-current="true"]') || one.querySelector('[aria-current="true"]') !== null);
        }""",
        approval,
    )


def select(page: Page, approval: str) -> None:
    """Move down with `j` until it is selected."""
    for _ in range(60):
        page.keyboard.press("j")
        if selected(page, approval):
            return
    raise AssertionError(f"j never came to {approval}")


def decision(stage: Stage, approval: str) -> dict[str, str]:
    found = until(
        lambda: stage.get(f"/v1/approvals/{approval}"), lambda one: one["decision"] is not None
    )
    return found["decision"]


def waiting(page: Page, stage: Stage) -> str:
    """How many things wait, as a page that is drawn now tells it."""
    found = re.search(r'data-waiting="(\d+)"', page.request.get(f"{stage.url}/inbox/count").text())
    assert found is not None
    return found[1]


def test_what_comes_while_the_count_is_drawn_anew_is_counted(stage: Stage, enter: Enter):
    _, page = enter()
    page.goto(f"{stage.url}/sessions")
    page.evaluate(
        "document.addEventListener('holdfast:record', (one) => { window.heard = one.detail.seq })"
    )
    expect(page.locator("#live-state")).to_have_attribute("data-state", "on")

    def late(route: Route) -> None:
        answer = route.fetch()
        session = stage.asks("second", "pay('ann', 2)")["session_id"]
        records = stage.get("/v1/journal", session_id=session)["items"]
        parked = next(one["seq"] for one in records if one["kind"] == "run_parked")
        page.wait_for_function(f"window.heard >= {parked}")
        route.fulfill(response=answer)

    page.route("**/inbox/count", late, times=1)
    with page.expect_response("**/inbox/count"):
        stage.asks("first", "pay('ann', 1)")
    expect(page.locator("#waiting")).to_have_attribute("data-waiting", waiting(page, stage))


def test_a_part_that_could_not_be_had_is_asked_for_again(stage: Stage, enter: Enter):
    visit, page = enter()
    visit.allow("503")
    page.goto(f"{stage.url}/sessions")
    expect(page.locator("#live-state")).to_have_attribute("data-state", "on")

    def busy(route: Route) -> None:
        route.fulfill(status=503, body="", headers={"HX-Reswap": "none"})

    page.route("**/inbox/count", busy, times=1)
    with page.expect_response("**/inbox/count"):
        stage.asks("busy", "pay('ann', 1)")
    expect(page.locator("#waiting")).to_have_attribute("data-waiting", waiting(page, stage))


def test_the_link_lets_one_browser_in_once(stage: Stage, browser: Chromium):
    link = stage.link
    with browser.visit(stage.url) as visit:
        page = visit.page()
        page.goto(link)
        page.wait_for_url(f"{stage.url}/")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        cookie = visit.context.cookies()[0]
        assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
    with browser.visit(stage.url) as visit:
        visit.allow("401")
        page = visit.page()
        answer = page.goto(link)
        assert answer is not None
        assert answer.status == 401
        assert visit.context.cookies() == []
        answer = page.goto(f"{stage.url}/")
        assert answer is not None
        assert answer.status == 401
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator("body")).to_contain_text("holdfast token link")


def test_what_waits_appears_by_itself_and_is_approved_by_keyboard(stage: Stage, enter: Enter):
    _, page = enter()
    stays(page)
    asked = stage.asks("live", "x = pay('ann', 1250)\n'said: ' + x")
    expect(item(page, asked["id"])).to_be_visible()
    expect(item(page, asked["id"])).to_contain_text("1250")
    expect(item(page, asked["id"])).to_contain_text("ann")
    expect(item(page, asked["id"])).to_contain_text("live")
    select(page, asked["id"])
    page.keyboard.press("a")
    done = stage.stands(asked["run_id"], "completed")
    assert done["result"]["result"] == "said: paid 1250 to ann"
    said = decision(stage, asked["id"])
    assert said["decision"] == "approved"
    assert said["actor"].startswith("browser:tok_")
    assert said["via"].startswith("console:tok_")
    expect(button(item(page, asked["id"]), "Approve")).to_have_count(0)
    assert stayed(page)


def test_what_is_decided_elsewhere_leaves(stage: Stage, enter: Enter):
    asked = stage.asks("elsewhere", "pay('bob', 3)")
    _, page = enter()
    expect(item(page, asked["id"])).to_be_visible()
    stays(page)
    stage.decide(asked["id"], "denied")
    buttons = button(item(page, asked["id"]), "Approve")
    expect(buttons).to_have_count(0)
    assert stayed(page)


def test_a_denial_takes_its_reason_along(stage: Stage, enter: Enter):
    asked = stage.asks("deny", "pay('eve', 99999)")
    _, page = enter()
    select(page, asked["id"])
    page.keyboard.press("d")
    page.keyboard.type("Not on a Friday: ask <b>Bob</b>.")
    button(item(page, asked["id"]), "Deny").click()
    said = decision(stage, asked["id"])
    assert said["decision"] == "denied"
    assert said["reason"] == "Not on a Friday: ask <b>Bob</b>."
    (record,) = [
        one for one in stage.records("approval_responded") if one["payload"]["id"] == asked["id"]
    ]
    kept = record["payload"]["decision"]
    assert kept["reason"] == said["reason"]
    assert kept["actor"] == record["actor"] == said["actor"]
    assert kept["via"].startswith("console:tok_")


def test_for_the_session_and_never_for_what_is_critical(stage: Stage, enter: Enter):
    asked = stage.asks("often", "[pay('ann', n) for n in (1, 2, 3)]")
    grave = stage.asks("grave", "wipe('db-1')")
    _, page = enter()
    buttons = button(item(page, grave["id"]), "Approve for session")
    expect(item(page, grave["id"])).to_contain_text(re.compile("critical", re.IGNORECASE))
    expect(buttons).to_have_count(0)
    button(item(page, asked["id"]), "Approve for session").click()
    assert len(stage.stands(asked["run_id"], "completed")["result"]["result"]) == 3
    assert decision(stage, asked["id"])["decision"] == "approved_for_session"


def test_a_question_is_a_form(stage: Stage, enter: Enter):
    asked = stage.asks("form", "measure('lamp')")
    _, page = enter()
    one = item(page, asked["id"])
    expect(one).to_contain_text("Which size of lamp?")
    one.get_by_label(re.compile("size", re.IGNORECASE)).fill("12")
    one.get_by_role("button", name=re.compile("^(answer|send|submit|approve)", re.I)).first.click()
    done = stage.stands(asked["run_id"], "completed")
    assert "'size': 12" in done["result"]["result"]


def test_two_decide_at_once_and_the_other_is_told_who(stage: Stage, enter: Enter):
    asked = stage.asks("race", "pay('ann', 77)")
    pages: list[Page] = []
    for _ in range(2):
        visit, page = enter()
        visit.allow("409|ERR_FAILED")
        # What they see stands still: neither hears of the other.
        page.route("**/v1/events*", lambda route: route.abort())
        page.reload()
        expect(item(page, asked["id"])).to_be_visible()
        pages.append(page)
    first, second = pages
    at = first.evaluate("Date.now() + 400")
    first.evaluate(PRESS, [asked["id"], "Approve", at])
    second.evaluate(PRESS, [asked["id"], "Deny", at])
    said = decision(stage, asked["id"])
    assert said["decision"] in ("approved", "denied")
    loser = second if said["decision"] == "approved" else first
    expect(loser.locator("body")).to_contain_text(
        re.compile("too late|already|decided first", re.IGNORECASE)
    )
    expect(loser.locator("body")).to_contain_text(said["actor"])
    refused = [
        one for one in stage.records("approval_refused") if one["payload"]["id"] == asked["id"]
    ]
    assert len(refused) == 1
    assert refused[0]["payload"]["decision"]["actor"] != said["actor"]


PRESS = """([id, name, at]) => {
    const one = document.querySelector(`article[id$="${id}"]`);
    const button = [...one.querySelectorAll('button')].find((b) => b.textContent.trim().startsWith(name));
    setTimeout(() => button.click(), at - Date.now());
}"""


def test_the_keys_are_explained_and_lead_to_pages(stage: Stage, enter: Enter):
    _, page = enter()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    expect(dialog).to_contain_text(re.compile("approve", re.IGNORECASE))
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    for key, path in (("r", "/runs"), ("s", "/sessions"), ("j", "/journal"), ("i", "/")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"{stage.url}{path}")


def test_keys_that_are_typed_into_a_field_decide_nothing(stage: Stage, enter: Enter):
    asked = stage.asks("typing", "pay('ann', 5)")
    _, page = enter()
    select(page, asked["id"])
    page.keyboard.press("d")
    page.keyboard.type("a s j k ? / g r")
    assert page.evaluate("document.activeElement.value") == "a s j k ? / g r"
    assert page.url == f"{stage.url}/"
    assert stage.get(f"/v1/approvals/{asked['id']}")["status"] == "pending"


def test_without_scripts_forms_do_it(stage: Stage, enter: Enter):
    asked = stage.asks("plain", "pay('ann', 8)")
    _, page = enter(scripts=False)
    button(item(page, asked["id"]), "Approve").click()
    assert decision(stage, asked["id"])["decision"] == "approved"
    stage.stands(asked["run_id"], "completed")


@pytest.mark.parametrize("scopes", [("read",), ("read", "run")])
def test_who_may_only_look_sees_no_buttons(scopes: tuple[str, ...], stage: Stage, enter: Enter):
    asked = stage.asks("look", "pay('ann', 9)")
    _, page = enter(scopes)
    expect(item(page, asked["id"])).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^(approve|deny)", re.I))).to_have_count(0)


def test_the_page_of_one_item_hears_of_an_answer_from_elsewhere(stage: Stage, enter: Enter):
    asked = stage.asks("alone", "pay('ann', 4321)")
    _, page = enter()
    page.goto(f"{stage.url}/inbox/{asked['id']}")
    stays(page)
    expect(button(page, "Approve")).to_be_visible()
    stage.decide(asked["id"], "denied", reason="Not this one.")
    one = item(page, asked["id"])
    expect(one).to_contain_text("Not this one.")
    expect(button(page, "Approve")).to_have_count(0)
    expect(one.locator("[data-deadline]")).to_have_count(0)
    assert stayed(page)


def test_the_page_of_one_doubt_hears_of_an_answer_from_elsewhere(stage: Stage, enter: Enter):
    _, effect = stage.doubts("alone", "heard-lamp")
    _, page = enter()
    page.goto(f"{stage.url}/doubts/{effect}")
    expect(button(page, "Put on record")).to_be_visible()
    answer = stage.http.post(f"/v1/effects/{effect}/resolve", json={"answer": "did_not_happen"})
    answer.raise_for_status()
    expect(button(page, "Put on record")).to_have_count(0)
    expect(item(page, effect)).to_contain_text("It did not happen")
    expect(item(page, effect)).to_contain_text("heard-lamp")


def shows_what_was_decided(page: Page, asked: dict[str, Any]) -> None:
    """All that a person saw when they decided, with who decided, and when."""
    one = item(page, asked["id"])
    expect(one).to_contain_text("Approved by you in the console")
    for known in ("4711", "ann", asked["session_id"], "pay('ann', 4711)", "default.ask"):
        expect(one).to_contain_text(known)
    ago = one.locator(".item-outcome time")
    at = int(ago.get_attribute("data-ago") or 0)
    assert asked["requested_at"] <= at


@pytest.mark.parametrize("scripts", [True, False])
def test_what_was_decided_stays_to_be_seen(scripts: bool, stage: Stage, enter: Enter):
    asked = stage.asks("kept", "pay('ann', 4711)")
    _, page = enter(scripts=scripts)
    page.goto(f"{stage.url}/inbox/{asked['id']}")
    button(page, "Approve").click()
    shows_what_was_decided(page, asked)  # right where it was decided
    page.goto(f"{stage.url}/inbox/{asked['id']}")
    shows_what_was_decided(page, asked)
    page.goto(f"{stage.url}/inbox/decided")
    row = page.locator("tbody tr").filter(has=page.locator(f'a[href="/inbox/{asked["id"]}"]'))
    for known in ("pay", "4711", "ann", asked["session_id"], "you"):
        expect(row).to_contain_text(known)
    decided = stage.get(f"/v1/approvals/{asked['id']}")["decided_at"]
    assert row.locator("time").get_attribute("data-ago") == str(decided)


LETTER = "\n".join(f"line {number} of a long letter" for number in range(200))


@pytest.mark.parametrize("scripts", [True, False])
def test_what_is_cut_says_so_and_is_shown_by_keyboard(scripts: bool, stage: Stage, enter: Enter):
    asked = stage.asks("long", f"pay('ann', 6, note={LETTER!r})")
    _, page = enter(scripts=scripts)
    page.goto(f"{stage.url}/inbox/{asked['id']}")
    value = page.locator("pre.value").filter(has_text="of a long letter")
    fold = value.locator("xpath=..").get_by_text(
        f"Show all ({len(LETTER):,} characters)".replace(",", "\u2009")
    )
    expect(fold).to_be_visible()
    small = (value.bounding_box() or {})["height"]
    summary = value.locator("xpath=../details/summary")
    summary.focus()
    page.keyboard.press("Enter")
    expect(summary).to_contain_text("Show less")
    expect(fold).to_be_hidden()
    assert (value.bounding_box() or {})["height"] > 10 * small
    code = page.locator(".origin-code")
    expect(
        code.get_by_text("Show all")
    ).to_be_visible()  # one line, and longer than any screen is wide
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_code_that_is_too_long_for_a_page_says_so(stage: Stage, enter: Enter):
    done = stage.run(stage.fresh("huge"), "x = 1\n" * 5000 + "pay('ann', 7)")
    _, page = enter()
    page.goto(f"{stage.url}/inbox/{done['approval_id']}")
    expect(item(page, done["approval_id"])).to_contain_text("which are not shown here")
