"""What the other tests rely on notices what it is for: without this, a check that sees nothing would pass everything."""

import pytest
from tests.console import accessible
from tests.console.browser import Chromium
from tests.console.corpus import HOSTILE, LONG
from tests.console.hostile import check_inert, literal, missing

NOWHERE = "http://nowhere.test"
POLICY = "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'\">"


LIVELY = [
    "<b id=pwned-1>x</b>",
    "<b onclick=x>x</b>",
    "<a href='javascript:x'>x</a>",
    "<script>window.__pwned = 1</script>",
    "<div hx-get='/pwned'></div>",
    "<div hx-on:click='x'></div>",
    "<iframe></iframe>",
    "<style></style>",
]


def test_what_is_not_inert_is_noticed(browser: Chromium):
    with browser.visit(NOWHERE) as visit:
        page = visit.page()
        for body in LIVELY:
            page.set_content(body)
            with pytest.raises(AssertionError):
                check_inert(page)


@pytest.mark.parametrize(
    "what",
    ["throw Error('x')", "console.error('x')", "fetch('http://elsewhere.test/').catch(() => 0)"],
)
def test_what_the_browser_complains_about_fails(what: str, browser: Chromium):
    with browser.visit(NOWHERE) as visit:
        page = visit.page()
        page.set_content(f"<script>{what}</script>")
        page.wait_for_timeout(100)
        with pytest.raises(AssertionError, match="complained"):
            visit.check()
        visit.allow(".")


def test_a_broken_policy_fails_twice_over(browser: Chromium):
    with browser.visit(NOWHERE) as visit:
        visit.allow(".")
        page = visit.page()
        page.route(
            f"{NOWHERE}/",
            lambda route: route.fulfill(
                content_type="text/html", body=f"{POLICY}<script>x()</script><b style='color:red'>"
            ),
        )
        page.goto(f"{NOWHERE}/")
        page.wait_for_function("document.readyState === 'complete'")
        said = "\n".join(visit.problems)
        assert "csp report:" in said
        assert "csp: script-src" in said


def test_faint_small_and_wide_things_are_noticed(browser: Chromium):
    with browser.visit(NOWHERE, size=(360, 740)) as visit:
        page = visit.page()
        page.set_content(
            "<body style='background:#fff'><p style='color:#999'>faint</p><p style='color:#595959'>fine</p>"
            "<div style='background:#000'><p style='color:#333'>dark</p></div>"
            "<p style='opacity:.3'>pale</p><button style='width:20px;height:20px'>x</button>"
            "<div style='width:900px'>wide</div><input><a href=/x></a><h3>no h1</h3>"
        )
        faint = accessible.faint(page)
        assert [one.split(": ")[1].split(" (")[0] for one in faint] == ["faint", "dark", "pale"]
        assert len(accessible.too_small(page, "button")) == 1
        assert accessible.too_wide(page)
        assert len(accessible.nameless(page)) == 2
        assert any("h1" in one for one in accessible.shape(page))


def test_text_that_is_cut_without_a_sign_is_noticed(browser: Chromium):
    with browser.visit(NOWHERE) as visit:
        page = visit.page()
        small = "height:30px; overflow:hidden"
        line = "width:50px; overflow:hidden; white-space:nowrap"
        long = "<p>" + "long text " * 40 + "</p>"
        page.set_content(
            f"<main><div class=cut style='{small}'>{long}</div><div class=cut style='{line}'>{long}</div>"
            f"<pre class=cut style='height:30px; overflow:auto'>{long}</pre>"
            f"<div><div style='{small}; mask-image:linear-gradient(#000, transparent)'>{long}</div>"
            f"<details><summary>Show all</summary></details></div>"
            f"<div style='{line}; text-overflow:ellipsis'>{'word ' * 40}</div></main>"
        )
        assert [one.split(":")[0] for one in accessible.cut(page)] == ["div.cut"] * 2 + ["pre.cut"]


def test_a_focus_that_is_not_shown_is_noticed(browser: Chromium):
    with browser.visit(NOWHERE) as visit:
        page = visit.page()
        page.set_content("<button style='outline:none'>unseen</button><button>seen</button>")
        assert [one.split(":")[0] for one in accessible.unseen_focus(page)] == ["button unseen"]


def test_the_corpus_is_large_and_what_is_lost_is_noticed():
    assert len(HOSTILE) + len(LONG) >= 60
    assert len(set(HOSTILE)) == len(HOSTILE)
    assert all(eval(literal(one)) == one for one in HOSTILE)
    assert missing("\n".join(HOSTILE), HOSTILE) == []
    assert missing("49", ["{{7*7}}"]) == ["{{7*7}}"]
    assert len(missing("", HOSTILE)) == len(HOSTILE)
