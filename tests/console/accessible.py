"""What must hold on every page, for people who see badly, use no mouse, or hear the page: looked up in the browser itself."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

CONTRAST = 4.5
TAP = 40
"""Pixels that a finger needs, each way."""
STOPS = 16
"""How many stops of the tab key are looked at."""

NAMED = frozenset(
    "button link textbox searchbox combobox checkbox radio slider spinbutton switch tab dialog img listbox form".split()
)
"""Roles that say nothing without a name."""

_CONTRAST = """() => {
    const canvas = document.createElement('canvas');
    canvas.width = canvas.height = 1;
    const pen = canvas.getContext('2d', {willReadFrequently: true});
    const known = new Map();
    const colour = (text) => {
        if (!known.has(text)) {
            pen.clearRect(0, 0, 1, 1);
            pen.fillStyle = text;
            pen.fillRect(0, 0, 1, 1);
            const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
            known.set(text, [r, g, b, a / 255]);
        }
        return known.get(text);
    };
    const over = (top, bottom) =>
        [0, 1, 2].map((i) => top[i] * top[3] + bottom[i] * (1 - top[3])).concat(1);
    const light = ([r, g, b]) => {
        const [x, y, z] = [r, g, b].map((c) => {
            c /= 255;
            return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * x + 0.7152 * y + 0.0722 * z;
    };
    const ground = (one) => {
        const layers = [];
        for (let at = one; at; at = at.parentElement) {
            const found = colour(getComputedStyle(at).backgroundColor);
            if (found[3] > 0) layers.push(found);
            if (found[3] === 1) break;
        }
        return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255, 1]);
    };
    // What is drawn lies on what was drawn before it, not on what it is part of.
    const drawn = (one) => {
        const box = one.getBoundingClientRect();
        const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
        let found = ground(one.ownerSVGElement);
        for (const other of one.ownerSVGElement.querySelectorAll('rect')) {
            if (one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING) continue;
            const place = other.getBoundingClientRect();
            const inside = place.left <= x && x <= place.right && place.top <= y && y <= place.bottom;
            const style = getComputedStyle(other);
            if (!inside || !other.checkVisibility() || style.fill === 'none' || style.fill.startsWith('url')) continue;
            const ink = colour(style.fill);
            found = over([ink[0], ink[1], ink[2], ink[3] * +style.fillOpacity * +style.opacity], found);
        }
        return found;
    };
    const bad = [];
    const look = (one, ink, what) => {
        let seen = colour(ink);
        let opacity = 1;
        for (let at = one; at; at = at.parentElement) opacity *= +getComputedStyle(at).opacity;
        const under = one instanceof SVGElement ? drawn(one) : ground(one);
        seen = over([seen[0], seen[1], seen[2], seen[3] * opacity], under);
        const [high, low] = [light(seen), light(under)].sort((a, b) => b - a);
        const ratio = (high + 0.05) / (low + 0.05);
        if (ratio < LIMIT) {
            const name = one.localName + (one.className.baseVal ?? one.className ? '.' + (one.className.baseVal ?? one.className) : '');
            bad.push(`${ratio.toFixed(2)} ${name}: ${what.trim().slice(0, 40)} (${ink} on ${under.slice(0, 3)})`);
        }
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode;
        const one = node.parentElement;
        if (!node.data.trim() || !one || one.closest('script, style, noscript, title, desc, :disabled')) continue;
        if (!one.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
        const range = document.createRange();
        range.selectNodeContents(node);
        const place = range.getBoundingClientRect();
        const box = one.getBoundingClientRect();
        if (place.width < 2 || box.width < 2 || box.height < 2 || box.bottom < 0) continue;  // for ears only
        const style = getComputedStyle(one);
        look(one, one instanceof SVGElement ? style.fill : style.color, node.data);
    }
    for (const one of document.querySelectorAll('[placeholder]'))
        if (one.checkVisibility()) look(one, getComputedStyle(one, '::placeholder').color, one.placeholder);
    return bad;
}""".replace("LIMIT", str(CONTRAST))

_SHAPE = """() => {
    const bad = [];
    const h1 = document.querySelectorAll('h1');
    if (h1.length !== 1) bad.push(`${h1.length} h1`);
    for (const [what, where] of [['main', 'main'], ['nav', 'nav[aria-label]'], ['banner', 'header:not(main header)']])
        if (document.querySelectorAll(where).length < 1) bad.push(`no ${what}`);
    if (document.querySelectorAll('main').length > 1) bad.push('more than one main');
    if (!document.documentElement.lang) bad.push('no language');
    if (!document.title) bad.push('no title');
    const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);
    const twice = ids.filter((id, at) => ids.indexOf(id) !== at);
    if (twice.length) bad.push('ids twice: ' + [...new Set(twice)].slice(0, 5));
    for (const one of document.querySelectorAll('[aria-labelledby], [aria-describedby], [aria-controls], label[for]'))
        for (const name of ['aria-labelledby', 'aria-describedby', 'aria-controls', 'for'])
            for (const id of (one.getAttribute(name) || '').split(/\\s+/).filter(Boolean))
                if (!document.getElementById(id)) bad.push(`${name}=${id} points nowhere`);
    let level = 0;
    for (const one of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
        if (!one.checkVisibility()) continue;
        const next = +one.localName[1];
        if (next > level + 1) bad.push(`${one.localName} after h${level}: ${one.textContent.trim().slice(0, 30)}`);
        level = next;
    }
    return bad;
}"""

_FOCUS = """() => {
    const one = document.activeElement;
    if (!one || one === document.body) return null;
    const style = getComputedStyle(one);
    const ring = (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1) || style.boxShadow !== 'none';
    const box = one.getBoundingClientRect();
    const name = `${one.localName} ${(one.getAttribute('aria-label') || one.textContent || one.name || '').trim().slice(0, 40)}`;
    return {name, ring, seen: box.width > 1 && box.height > 1 && box.bottom > 0 && box.right > 0};
}"""

_WIDE = """() => {
    const most = document.documentElement.clientWidth;
    const bad = [];
    if (document.documentElement.scrollWidth > most) {
        for (const one of document.querySelectorAll('body *')) {
            if (!one.checkVisibility()) continue;
            const box = one.getBoundingClientRect();
            if (box.right > most + 1 && box.width > 1 && !one.closest('[hidden]'))
                bad.push(`${one.localName}.${one.className.baseVal ?? one.className} to ${Math.round(box.right)}`);
        }
        bad.unshift(`${document.documentElement.scrollWidth} wide of ${most}`);
    }
    return bad.slice(0, 8);
}"""

# Text that is there and can't be seen: cut by its box, without dots, a fade, or a button that shows all of it.
_CUT = """() => {
    const bad = [];
    for (const one of document.querySelectorAll('main *')) {
        if (!one.checkVisibility() || one.closest('svg, .visually-hidden')) continue;
        const style = getComputedStyle(one);
        const box = one.getBoundingClientRect();
        if (box.width < 2 || box.height < 2) continue;
        const cuts = (how) => ['hidden', 'clip'].includes(how);
        const below = cuts(style.overflowY) && one.scrollHeight > one.clientHeight + 2;
        const beside = cuts(style.overflowX) && one.scrollWidth > one.clientWidth + 2;
        const scrolls = one.matches('pre') && (one.scrollHeight > one.clientHeight + 2 || one.scrollWidth > one.clientWidth + 2);
        const says = one.parentElement.querySelector(':scope > details > summary')?.checkVisibility();
        const sign = (below && style.maskImage !== 'none' && says) || (beside && !below && style.textOverflow === 'ellipsis');
        if ((below || beside || scrolls) && !sign)
            bad.push(`${one.localName}.${one.className}: ${one.textContent.trim().slice(0, 40)}`);
    }
    return bad.slice(0, 8);
}"""

_SMALL = """(root) => {
    const bad = [];
    for (const one of document.querySelectorAll(root)) {
        if (!one.checkVisibility()) continue;
        const box = (one.matches('[type=checkbox], [type=radio]') && one.closest('label') || one).getBoundingClientRect();
        if (box.height < TAP - 0.5 || box.width < TAP - 0.5)
            bad.push(`${one.localName} ${(one.getAttribute('aria-label') || one.textContent).trim().slice(0, 30)}: ${Math.round(box.width)}×${Math.round(box.height)}`);
    }
    return bad;
}""".replace("TAP", str(TAP))


def faint(page: Page) -> list[str]:
    """Text that stands out too little."""
    return page.evaluate(_CONTRAST)


def shape(page: Page) -> list[str]:
    """What is wrong with headings, landmarks and references."""
    return page.evaluate(_SHAPE)


def too_wide(page: Page) -> list[str]:
    """What makes the page scroll sideways."""
    return page.evaluate(_WIDE)


def cut(page: Page) -> list[str]:
    """Text that can't be seen, and is not seen to be cut."""
    return page.evaluate(_CUT)


def too_small(page: Page, selector: str) -> list[str]:
    """What a finger would miss."""
    return page.evaluate(_SMALL, selector)


def nameless(page: Page) -> list[str]:
    """Controls and pictures without a name, as the browser tells it to a screen reader."""
    session = page.context.new_cdp_session(page)
    try:
        nodes: list[dict[str, Any]] = session.send("Accessibility.getFullAXTree")["nodes"]
    finally:
        session.detach()
    bad: list[str] = []
    for one in nodes:
        role = one.get("role", {}).get("value", "")
        name = one.get("name", {}).get("value", "")
        if not one.get("ignored") and role in NAMED and not name.strip() and role != "form":
            bad.append(f"{role} without a name (node {one.get('backendDOMNodeId')})")
    return bad


def unseen_focus(page: Page) -> list[str]:
    """Stops of the tab key that one can't see."""
    bad: list[str] = []
    page.evaluate("document.activeElement && document.activeElement.blur(), window.scrollTo(0, 0)")
    for number in range(STOPS):
        page.keyboard.press("Tab")
        found = page.evaluate(_FOCUS)
        if found is None:
            if number == 0:
                bad.append("tab goes nowhere")
            break
        if not (found["ring"] and found["seen"]):
            bad.append(f"{found['name']}: ring {found['ring']}, seen {found['seen']}")
    return bad
