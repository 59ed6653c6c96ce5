"""How to see that a text was shown, and was nothing but text."""

from __future__ import annotations

import re

from playwright.sync_api import Page


def literal(text: str) -> str:
    """The text as Python code writes it."""
    return "'" + "".join(_coded(one) for one in text) + "'"


def _coded(letter: str) -> str:
    if letter in "'\\":
        return "\\" + letter
    if letter.isprintable():
        return letter
    return letter.encode("unicode_escape").decode()


_ANY = r"(?:\s|.{0,12}?)"


def seen_as(text: str) -> re.Pattern[str]:
    """What a page may show for a text: itself or as JSON; for what has no looks, any mark. White space may differ."""
    looks = [_looks(one) for one in text]
    while looks and looks[0] == _ANY:
        del looks[0]  # what may be anything is everywhere
    return re.compile("".join(looks), re.DOTALL)


def _looks(letter: str) -> str:
    if letter in '"\\':
        return rf"\\{{0,3}}{re.escape(letter)}"
    if letter.isspace() or not letter.isprintable():
        return _ANY
    return re.escape(letter) if letter.isascii() else rf"(?:{letter}|\\u[0-9a-f]{{4}})"


def check_inert(page: Page) -> None:
    """Nothing on the page is there because of a text."""
    found = page.evaluate(
        """() => {
            const bad = [];
            if (window.__pwned !== undefined) bad.push('a script ran');
            for (const one of document.querySelectorAll('*')) {
                if (String(one.id).startsWith('pwned')) bad.push('element ' + one.id);
                for (const {name, value} of one.attributes) {
                    if (/^on|^(data-)?hx-on/.test(name)) bad.push(name + '=' + value);
                    if (/\\/pwned|id=.?pwned/.test(value) && /^(hx-|src|href|action|form|style|srcdoc)/.test(name))
                        bad.push(name + '=' + value);
                    if (/^(href|src|action|formaction|xlink:href)$/.test(name)
                        && /^\\s*(javascript|data|vbscript):/i.test(value) && !/^data:image/.test(value))
                        bad.push(name + '=' + value);
                }
                const name = one.localName;
                if (/^(iframe|object|embed|base|plaintext|style|math|mglyph|frame)$/.test(name))
                    bad.push('<' + name + '>');
                if (name === 'script' && !/^\\/static\\//.test(one.getAttribute('src') || ''))
                    bad.push('<script> ' + one.textContent.slice(0, 80));
            }
            return bad;
        }"""
    )
    assert not found, f"{page.url}: {found[:10]}"


def missing(text: str, wanted: list[str]) -> list[str]:
    """Those of the texts that are not to be seen in a page's text."""
    return [one for one in wanted if one not in text and seen_as(one).search(text) is None]
