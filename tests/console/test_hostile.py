"""Hostile text in every field that an agent, a tool or a server controls is shown as text, and is nothing else."""

import sys
from collections.abc import Generator
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect
from tests.console.conftest import Enter, item
from tests.console.corpus import HOSTILE, LONG
from tests.console.hostile import check_inert, literal, missing
from tests.console.stage import SETTINGS, Stage, staged

RULES = """
[[policy.rules]]
id = "vanish"
tool = "vanish"
then = "allow"

[[policy.rules]]
id = "odd"
tool = "odd*"
then = "allow"

[[policy.rules]]
id = "quoted"
tool = "order"
then = "ask"
reason = '''<img src=x onerror=window.__pwned=1> "><b id=pwned-rule>'''

[surfaces.rogue]
command = {python}
args = ["villain_server.py"]

[surfaces.broken]
command = {python}
args = ["-c", "import sys; sys.exit('<script>window.__pwned=1</script><b id=pwned-err>')"]
"""
FILTERS = [("/runs", "session_id"), ("/runs", "status"), ("/journal", "kind"), ("/journal", "name")]
"""Pages, and what can be asked of them."""
INVISIBLE = "\u202e\u2066\u2067\u200f\u200b\ufeff\x00\x1b\x9b\U000e0068\u2028"
"""What would make a text look like another one."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    folder = tmp_path_factory.mktemp("hostile")
    settings = SETTINGS + RULES.replace("{python}", f'"{sys.executable}"')
    files = ("corpus.py", "villain.py", "villain_server.py")
    options = ("--capabilities", "villain.py", "--agents", "villain.py:villain")
    with staged(folder, *files, options=options, settings=settings) as found:
        yield found


def listed(texts: list[str]) -> str:
    return "[" + ", ".join(literal(one) for one in texts) + "]"


def look(page: Page, address: str) -> str:
    """Open a page with all that is folded in it, and see that it is inert; its text."""
    answer = page.goto(address)
    assert answer is not None
    assert answer.status == 200, answer.text()[:500]
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.mouse.move(400, 300)
    check_inert(page)
    text: str = page.evaluate("document.body.textContent")
    seen = [f"U+{ord(one):04X}" for one in INVISIBLE if one in text]
    assert not seen, f"{address} shows {seen} as they are"
    return text


def shows(page: Page, address: str, texts: list[str]) -> None:
    lost = missing(look(page, address), texts)
    assert not lost, f"{address} does not show {lost[:5]}"


def test_in_code_results_and_output(stage: Stage, enter: Enter):
    code = f"said = {listed(HOSTILE)}\nfor one in said:\n    print(one)\nsaid"
    done = stage.run("code", code)
    assert done["result"] == HOSTILE
    _, page = enter()
    shows(page, f"{stage.url}/runs/{done['run_id']}", HOSTILE)
    for path in ("/runs", "/sessions", "/sessions/code", "/charts", "/journal?session_id=code"):
        look(page, f"{stage.url}{path}")


def test_in_arguments_and_results_of_tools(stage: Stage, enter: Enter):
    done = stage.run("tools", f"[hand(one) for one in {listed(HOSTILE)}]")
    assert done["result"] == HOSTILE
    _, page = enter()
    shows(page, f"{stage.url}/runs/{done['run_id']}", HOSTILE)
    records = stage.get("/v1/journal", session_id="tools", limit=400)["items"]
    for one in records[2:60:6]:
        look(page, f"{stage.url}/journal/{one['seq']}")


def test_in_errors(stage: Stage, enter: Enter):
    _, page = enter()
    for code in (
        f"shriek({literal(chr(10).join(HOSTILE))})",
        f"raise ValueError({literal(chr(10).join(HOSTILE))})",
    ):
        done = stage.run("errors", code)
        assert done["error"] is not None
        shows(page, f"{stage.url}/runs/{done['run_id']}", HOSTILE[:3])
    stopped = stage.start("stopped", "await wait_for('never')")
    stage.cancel(stopped, "".join(HOSTILE[:3]))
    shows(page, f"{stage.url}/runs/{stopped}", HOSTILE[:3])
    look(page, f"{stage.url}/sessions/errors")
    look(page, f"{stage.url}/runs?session_id=errors")


def test_in_what_is_to_be_decided(stage: Stage, enter: Enter):
    items = "{" + ", ".join(f"{literal(one)}: {literal(one)}" for one in HOSTILE) + "}"
    asked = stage.asks("ask", f"order({items}, note={literal(LONG[0])})")
    _, page = enter()
    shows(page, f"{stage.url}/", HOSTILE)
    shows(page, f"{stage.url}/inbox/{asked['id']}", HOSTILE)
    shows(page, f"{stage.url}/runs/{asked['run_id']}", HOSTILE)
    stage.decide(asked["id"], "denied", reason="\n".join(HOSTILE)[:1990])
    look(page, f"{stage.url}/inbox/{asked['id']}")
    look(page, f"{stage.url}/runs/{asked['run_id']}")


def test_in_questions_and_their_forms(stage: Stage, enter: Enter):
    found = [stage.asks("form", f"odd({literal(one)})") for one in HOSTILE[::12]]
    _, page = enter()
    text = look(page, f"{stage.url}/")
    assert not missing(text, HOSTILE[::12])
    assert not missing(text, HOSTILE[:40])
    for one in found:
        stage.decide(one["id"], "denied")
    one = stage.asks("form", "odd_sign_in()")
    look(page, f"{stage.url}/")
    stage.decide(one["id"], "denied")


def test_in_what_is_in_doubt(stage: Stage, enter: Enter):
    done = stage.run(stage.fresh("doubt"), f"await vanish({listed(HOSTILE)})")
    effect = stage.view(done["run_id"])["in_doubt"][0]
    _, page = enter()
    look(page, f"{stage.url}/")
    shows(page, f"{stage.url}/doubts/{effect}", HOSTILE)
    look(page, f"{stage.url}/runs/{done['run_id']}")


def test_in_what_an_agent_says(stage: Stage, enter: Enter):
    done = stage.agent("villain", "\n".join(HOSTILE), "agent")
    _, page = enter()
    shows(page, f"{stage.url}/runs/{done['run_id']}", HOSTILE)
    look(page, f"{stage.url}/sessions/agent")


def test_in_tools_and_servers(stage: Stage, enter: Enter):
    stage.run("server", "try:\n    rogue_tool0(word='x')\nexcept Exception:\n    pass")
    _, page = enter()
    text = look(page, f"{stage.url}/tools")
    assert not missing(text, HOSTILE)
    for name in ("odd_0", "odd_1", "order", "rogue_tool0", "rogue_tool40"):
        look(page, f"{stage.url}/tools/{name}")


def test_in_what_appears_while_somebody_looks(stage: Stage, enter: Enter):
    _, inbox = enter()
    _, watching = enter()
    run_id = stage.start(
        "live", f"said = {listed(HOSTILE)}\nawait wait_for('live')\nhand(said[0])\nprint(said)"
    )
    watching.goto(f"{stage.url}/runs/{run_id}")
    items = "{" + ", ".join(f"{literal(one)}: {literal(one)}" for one in HOSTILE) + "}"
    asked = stage.asks("live", f"order({items}, note={literal(HOSTILE[0])})")
    expect(item(inbox, asked["id"])).to_be_visible()
    stage.let_go("live")
    stage.stands(run_id, "completed")
    expect(watching.locator('[aria-label="Status"]').first).to_contain_text("completed")
    for page in (inbox, watching):
        check_inert(page)
        assert not missing(page.evaluate("document.body.textContent"), HOSTILE)
    stage.decide(asked["id"], "denied")


def test_in_the_names_of_tokens_and_in_refusals(stage: Stage, enter: Enter):
    for text in HOSTILE[:12]:
        stage.portal.call(partial(stage.tokens.create, ["read"], name=text[:60]))
        with stage.program(["read"]) as other:
            other.post(
                f"/v1/approvals/{quote(text, safe='')}/decision", json={"decision": "denied"}
            )
    _, page = enter()
    text = look(page, f"{stage.url}/journal")
    assert not missing(text, [one[:60] for one in HOSTILE[10:12]])
    for record in stage.records("access_refused")[-3:]:
        look(page, f"{stage.url}/journal/{record['seq']}")


def test_in_the_address(stage: Stage, enter: Enter):
    visit, page = enter()
    visit.allow(r"40[0-9]|422")
    everything = "".join(HOSTILE)[:1500]
    for text in (*HOSTILE[::20], everything):
        for path, name in FILTERS:
            page.goto(f"{stage.url}{path}?{name}={quote(text, safe='')}")
            check_inert(page)
        page.goto(f"{stage.url}/runs/{quote(text, safe='')}")
        check_inert(page)


def test_what_is_long_does_not_break_the_page(stage: Stage, enter: Enter):
    code = f"print({literal(LONG[0])})\nhand({literal(LONG[2])})\n{literal(LONG[1])}"
    done = stage.run("long", code)
    _, page = enter(size=(360, 740))
    for path in (f"/runs/{done['run_id']}", "/runs", "/sessions/long", "/journal?session_id=long"):
        look(page, f"{stage.url}{path}")
        wide: Any = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, (path, wide)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
