"""Decisions that nobody on a page of ours made: forged, sent twice, or about another's. All are refused, and on record."""

from typing import Any

import httpx
from playwright.sync_api import expect
from tests.console.browser import Visit
from tests.console.conftest import Enter, button, item
from tests.console.stage import Stage


def address(stage: Stage, approval: str) -> str:
    return f"{stage.url}/v1/approvals/{approval}/decision"


def cookies(visit: Visit) -> dict[str, str]:
    return {one.get("name", ""): one.get("value", "") for one in visit.context.cookies()}


def pending(stage: Stage, approval: str) -> bool:
    return stage.get(f"/v1/approvals/{approval}")["status"] == "pending"


def refusals(stage: Stage) -> list[dict[str, Any]]:
    return [one["payload"] for one in stage.records("access_refused")]


SAID = {"decision": "approved"}


FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {},
]
"""What a request says about where it comes from, when it comes from no page of ours."""


def test_a_cookie_counts_only_from_our_pages(stage: Stage, enter: Enter):
    asked = stage.asks("forged", "pay('ann', 1)")
    visit, _ = enter()
    before = len(refusals(stage))
    paths = (f"/v1/approvals/{asked['id']}/decision", f"/inbox/{asked['id']}")
    with httpx.Client(cookies=cookies(visit)) as other:
        for headers in FOREIGN:
            for path in paths:
                answer = other.post(f"{stage.url}{path}", json=SAID, headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    assert pending(stage, asked["id"])
    noted = [(one["code"], one["path"]) for one in refusals(stage)[before:]]
    assert noted == [("FORBIDDEN", path) for _ in FOREIGN for path in paths]


def test_without_a_cookie_or_with_a_made_up_one_nothing_is_decided(stage: Stage):
    asked = stage.asks("forged", "pay('ann', 2)")
    origin = {"Origin": stage.url}
    with httpx.Client() as other:
        nobody = other.post(address(stage, asked["id"]), json=SAID, headers=origin)
        assert (nobody.status_code, nobody.json()["code"]) == (401, "UNAUTHENTICATED")
    before = len(refusals(stage))
    with httpx.Client(cookies={"holdfast": "hf_18e8_made-up"}) as other:
        forged = other.post(address(stage, asked["id"]), json=SAID, headers=origin)
        assert (forged.status_code, forged.json()["code"]) == (401, "UNAUTHENTICATED")
    assert pending(stage, asked["id"])
    assert [one["code"] for one in refusals(stage)[before:]] == ["UNAUTHENTICATED"]


def test_a_page_of_another_site_has_no_say(stage: Stage, enter: Enter):
    """A real page on another origin, in the browser that is signed in."""
    asked = stage.asks("forged", "pay('ann', 3)")
    visit, _ = enter()
    visit.allow("elsewhere|40[13]|Failed to load resource|CORS|Access to fetch")
    evil = visit.page()
    evil.route(
        "http://evil.example/**",
        lambda route: route.fulfill(content_type="text/html", body="<h1>Win a lamp!</h1>"),
    )
    evil.goto("http://evil.example/")
    evil.evaluate(
        """async (url) => {
            for (const mode of ['no-cors', 'cors'])
                await fetch(url, {method: 'POST', credentials: 'include', mode, body: '{"decision":"approved"}'})
                    .catch(() => null);
        }""",
        address(stage, asked["id"]),
    )
    evil.set_content(
        f'<form method="post" action="{address(stage, asked["id"])}"><button>x</button></form>'
    )
    with evil.expect_navigation():
        evil.get_by_role("button").click()
    assert pending(stage, asked["id"])


def test_the_same_decision_again_changes_nothing_and_is_on_record(stage: Stage, enter: Enter):
    asked = stage.asks("twice", "pay('ann', 4)")
    visit, page = enter()
    sent: list[Any] = []
    page.on("request", lambda one: sent.append(one) if one.method == "POST" else None)
    button(item(page, asked["id"]), "Approve").click()
    stage.stands(asked["run_id"], "completed")
    (request,) = sent
    headers = {
        name: value
        for name, value in request.all_headers().items()
        if not name.startswith(":") and name not in ("host", "content-length")
    }
    with httpx.Client(cookies=cookies(visit)) as other:
        again = other.post(request.url, content=request.post_data_buffer, headers=headers)
    assert again.status_code == 409
    decided = [r for r in stage.records("approval_responded") if r["payload"]["id"] == asked["id"]]
    refused = [r for r in stage.records("approval_refused") if r["payload"]["id"] == asked["id"]]
    assert (len(decided), len(refused)) == (1, 1)
    assert stage.view(asked["run_id"])["result"]["result"] == "paid 4 to ann"


def test_a_tenant_has_no_say_about_another(stage: Stage, enter: Enter):
    mine = stage.asks("ten-a", "pay('ann', 5)")
    other = stage.asks("other", "pay('ann', 6)")
    visit, page = enter(("read", "run", "approve"), "ten-")
    visit.allow("404")
    expect(item(page, mine["id"])).to_be_visible()
    expect(item(page, other["id"])).to_have_count(0)
    for path in (f"/runs/{other['run_id']}", f"/sessions/{other['session_id']}"):
        answer = page.goto(f"{stage.url}{path}")
        assert answer is not None
        assert answer.status == 404
    page.goto(f"{stage.url}/")
    status = page.evaluate(
        """async (url) => (await fetch(url, {method: 'POST', body: JSON.stringify({decision: 'approved'}),
            headers: {'Content-Type': 'application/json'}})).status""",
        address(stage, other["id"]),
    )
    assert status == 404
    # And by the console's own form, with the id of the other in it.
    form = item(page, mine["id"]).locator("form.answer-yes")
    form.evaluate(
        "(one, [from, to]) => { one.removeAttribute('hx-post');"
        " one.setAttribute('action', one.getAttribute('action').replace(from, to)); }",
        [mine["id"], other["id"]],
    )
    with page.expect_navigation():
        form.evaluate("(one) => HTMLFormElement.prototype.submit.call(one)")
    assert pending(stage, other["id"])
    refused = [r for r in stage.records("approval_refused") if r["payload"]["id"] == other["id"]]
    assert {r["payload"]["reason_code"] for r in refused} == {"approval.not_yours"}
    assert all(r["payload"]["decision"]["via"].startswith("console:tok_") for r in refused)
