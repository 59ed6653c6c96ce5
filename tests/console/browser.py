"""A real Chromium for the tests. Whatever it complains about fails the test; when a module is done, no process is left.

One browser for a module, a person (`Visit`: a context with cookies of its own) for each who takes part in a test.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)

ARGUMENTS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-crash-reporter",
    "--disable-breakpad",
    "--force-color-profile=srgb",
]
PATIENCE_MS = 15_000
expect.set_options(timeout=PATIENCE_MS)
_SET_SUBREAPER, _GET_SUBREAPER = 36, 37
DESKTOP = (1280, 860)
PHONE = (360, 740)

# Also what the parser blocks before any page script runs is heard of: the listener is there first.
_LISTEN = """
window.addEventListener('securitypolicyviolation', (e) => {
    console.error('csp: ' + e.effectiveDirective + ' ' + e.blockedURI + ' ' + e.sample);
}, true);
"""


@dataclass
class Visit:
    """A person at a browser, and what their browser complained about."""

    context: BrowserContext
    url: str
    """Of the server; nothing else is ever asked."""
    problems: list[str] = field(default_factory=list)
    _allowed: list[str] = field(default_factory=list)

    def page(self) -> Page:
        """A new tab that is listened to."""
        page = self.context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._said)
        page.on("pageerror", lambda why: self.problems.append(f"error: {why}"))
        page.on("request", self._asked)
        page.on("response", self._answered)
        # What the browser itself puts on its list of issues: the report that the policy was broken.
        issues = self.context.new_cdp_session(page)
        issues.on("Audits.issueAdded", self._reported)
        issues.send("Audits.enable")
        return page

    def allow(self, pattern: str) -> None:
        """A complaint that this test is about."""
        self._allowed.append(pattern)

    def check(self) -> None:
        """Fail if there was any complaint."""
        left = [one for one in self.problems if not any(re.search(p, one) for p in self._allowed)]
        assert not left, "the browser complained:\n" + "\n".join(left)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text} ({message.location.get('url')})")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:", "about:")):
            self.problems.append(f"elsewhere: {request.url[:200]}")

    def _answered(self, response: Response) -> None:
        broken = response.status >= 500
        if broken or (response.status == 404 and "/static/" in response.url):
            self.problems.append(f"answer: {response.status} {response.url}")

    def _reported(self, said: dict[str, Any]) -> None:
        issue = said["issue"]
        if issue["code"] == "ContentSecurityPolicyIssue":
            self.problems.append(f"csp report: {issue['details']}")


@dataclass
class Chromium:
    """The browser of a module."""

    browser: Browser

    @contextmanager
    def visit(
        self,
        url: str,
        *,
        size: tuple[int, int] = DESKTOP,
        dark: bool = False,
        scripts: bool = True,
        touch: bool = False,
        scale: float = 1,
    ) -> Generator[Visit]:
        """A fresh person. At the end, what their browser complained about fails the test."""
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            has_touch=touch,
            is_mobile=touch,
            device_scale_factor=scale,
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
        )
        try:
            if scripts:
                context.add_init_script(_LISTEN)
            visit = Visit(context, url)
            yield visit
            visit.check()
        finally:
            context.close()


@contextmanager
def chromium() -> Generator[Chromium]:
    """The browser, and after it no process of it."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
    assert program is not None, "no chromium: run `scripts/need chromium chromium --version`"
    before = _below(os.getpid())
    started: set[int] = set()
    with _orphans_come_here():
        yield from _run(program, before, started)


def _run(program: str, before: set[int], started: set[int]) -> Generator[Chromium]:
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=program, args=ARGUMENTS, chromium_sandbox=os.getuid() != 0
            )
            ours = _below(os.getpid()) - before
            try:
                yield Chromium(browser)
            finally:
                started |= ours.union(*(_below(one) for one in ours))
                browser.close()
    finally:
        left = _gone(started)
        assert not left, f"the browser left processes behind: {left}"


@contextmanager
def _orphans_come_here() -> Generator[None]:
    """What the browser leaves when it ends is handed to us, and not to a first process that may never look after it."""
    system = ctypes.CDLL(None, use_errno=True)
    was = ctypes.c_int()
    system.prctl(_GET_SUBREAPER, ctypes.byref(was), 0, 0, 0)
    system.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        system.prctl(_SET_SUBREAPER, was.value, 0, 0, 0)


def _below(root: int) -> set[int]:
    """The processes that a process started, and those that they did."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (parent := _parent(folder)) is not None:
            children.setdefault(parent, []).append(int(folder.name))
    found: set[int] = set()
    rest = [root]
    while rest:
        for child in children.get(rest.pop(), ()):
            found.add(child)
            rest.append(child)
    return found


def _parent(folder: Path) -> int | None:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None  # it is gone


def _gone(pids: set[int]) -> list[int]:
    """Wait until these processes are gone; those that stay are killed, and named."""
    deadline = time.monotonic() + 10
    while True:
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        left = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left
