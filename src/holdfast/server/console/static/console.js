"use strict";
// Everything here makes pages livelier; none of it is needed: without it, links and forms do the same.
// Text of others only ever goes into `textContent`. Markup comes from this server, which escaped it.

const all = (what, root = document) => [...root.querySelectorAll(what)];
const one = (what, root = document) => root.querySelector(what);

// -- words -------------------------------------------------------------------------------------------

const spans = [[86400, "d"], [3600, "h"], [60, "min"]];

function span(seconds) {
  for (const [size, unit] of spans) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.floor(seconds)} s`;
}

function ago(ms) {
  const gone = (Date.now() - ms) / 1000;
  if (Math.abs(gone) < 5) return "just now";
  return gone < 0 ? `in ${span(-gone)}` : `${span(gone)} ago`;
}

function left(ms) {
  const rest = Math.max(0, Math.ceil((ms - Date.now()) / 1000));
  const two = (n) => String(n).padStart(2, "0");
  if (rest >= 86400) return `${Math.floor(rest / 86400)} d ${Math.floor((rest % 86400) / 3600)} h`;
  const clock = `${two(Math.floor((rest % 3600) / 60))}:${two(rest % 60)}`;
  return rest >= 3600 ? `${Math.floor(rest / 3600)}:${clock}` : clock;
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function tell() {
  for (const node of all("time[data-ago]")) put(node, ago(Number(node.dataset.ago)));
  for (const node of all("time[data-deadline]")) {
    const until = Number(node.dataset.deadline);
    put(node, until > Date.now() ? `${left(until)} left` : "time is up");
    node.classList.toggle("is-soon", until - Date.now() < 60_000);
  }
  count();
}

const title = document.title;

function count() {
  const waiting = one("#waiting")?.dataset.waiting;
  const told = Number(waiting) > 0 ? `(${waiting}) ${title}` : title;
  if (document.title !== told) document.title = told;
}

function toast(text, kind = "none") {
  const node = document.createElement("div");
  node.className = `toast is-${kind}`;
  node.textContent = text;
  one("#toasts").append(node);
  keepToast(node);
}

function keepToast(node) {
  setTimeout(() => node.remove(), 8000);
}

// -- colours -----------------------------------------------------------------------------------------

const themes = ["auto", "light", "dark"];

function theme() {
  return document.documentElement.dataset.theme || "auto";
}

function showTheme(button) {
  const word = theme()[0].toUpperCase() + theme().slice(1);
  put(one("[data-theme-word]", button), word);
  button.setAttribute("aria-label", `Colours: ${theme() === "auto" ? "as the system says" : theme()}`);
  button.title = button.getAttribute("aria-label");
}

function nextTheme() {
  const next = themes[(themes.indexOf(theme()) + 1) % themes.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === "auto") localStorage.removeItem("holdfast-theme");
    else localStorage.setItem("holdfast-theme", next);
  } catch { /* it holds for this page */ }
}

// -- live --------------------------------------------------------------------------------------------
// A region says what it is about, `data-live="approval,run"` (kinds, or first words of kinds; `data-live-run`,
// `data-live-session`: only of these), and has `hx-get` and `hx-trigger="live"`. What changed is fetched, not sent.

const PAUSE = 200;
const AGAIN = 3000; // after a part could not be had
const NOT_YET = ".htmx-request, .htmx-added, .htmx-settling"; // asks already, or is so new that it can't be told to
const stirred = new Set();
let waiting = null;

function matters(region, event) {
  const kinds = region.dataset.live.split(",");
  if (!kinds.includes(event.kind) && !kinds.includes(event.kind.split("_")[0])) return false;
  const { liveRun, liveSession } = region.dataset;
  return (!liveRun || liveRun === event.run_id) && (!liveSession || liveSession === event.stream || liveSession === event.session_id);
}

function stir(regions) {
  for (const region of regions) stirred.add(region);
  if (stirred.size && waiting === null) waiting = setTimeout(refresh, PAUSE);
}

// What a form put on the page was drawn before it came here, and may have taken the place of something newer: what was
// heard of meanwhile was about a part that is gone.
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.requestConfig?.verb !== "get") stir(all("[data-live]"));
});

function refresh() {
  waiting = null;
  for (const region of [...stirred]) {
    // One that was drawn anew meanwhile is another node; what was heard of may be newer than what it was drawn from.
    const now = region.isConnected ? region : region.id && document.getElementById(region.id);
    if (now && now.matches(NOT_YET)) continue;
    stirred.delete(region);
    if (now && now.dataset.live) htmx.trigger(now, "live");
  }
  if (stirred.size) waiting = setTimeout(refresh, PAUSE);
}

// A part that could not be had, because the server had too much to do, is asked for again: nobody else would.
document.addEventListener("htmx:afterRequest", (event) => {
  const { elt, xhr } = event.detail;
  const passing = !xhr || xhr.status === 0 || xhr.status === 429 || xhr.status >= 500;
  if (elt?.dataset?.live && !event.detail.successful && passing) setTimeout(() => stir([elt]), AGAIN);
});

function stateIs(state, word) {
  const node = one("#live-state");
  if (!node) return;
  node.dataset.state = state;
  put(one("span", node), word);
}

let source = null;
let lost = false;

function listen() {
  const address = document.body.dataset.liveStream;
  const kinds = new Set();
  for (const region of all("[data-live]")) for (const kind of region.dataset.live.split(",")) kinds.add(kind);
  const after = document.body.dataset.liveAfter;
  delete document.body.dataset.liveAfter; // the second time, all is asked for again
  const from = after ? `&after=${encodeURIComponent(after)}` : "";
  source = new EventSource(`${address}?kind=${[...kinds].map(encodeURIComponent).join(",")}${from}`);
  source.onopen = () => {
    stateIs("on", "live");
    if (lost) stir(all("[data-live]"));
    lost = false;
  };
  source.onerror = () => {
    lost = true;
    stateIs("lost", "connecting…");
    if (source?.readyState !== EventSource.CLOSED) return; // it comes back by itself
    source = null;
    setTimeout(attend, 3000);
  };
  const heard = (message) => {
    let event;
    try { event = JSON.parse(message.data); } catch { return; }
    if (event && typeof event.kind === "string") stir(all("[data-live]").filter((region) => matters(region, event)));
    document.dispatchEvent(new CustomEvent("holdfast:record", { detail: event }));
  };
  source.onmessage = heard;
}

// A browser has six connections to a server: pages that nobody looks at keep none of them.
function attend() {
  if (document.hidden && source) {
    forget();
    stateIs("off", "not live");
  } else if (!document.hidden && !source) listen();
}

function forget() {
  source?.close();
  source = null;
  lost = true;
}

// -- lists that people are at work in ----------------------------------------------------------------
// `data-merge`: items (`data-item`, with an id) that are there stay as they are, with what was typed into them. New ones
// are put in; those gone leave, unless somebody is at one: that one is shown as it is now.

function atWork(item) {
  if (item !== document.activeElement && item.contains(document.activeElement)) return true;
  return all("input[type=text], textarea", item).some((field) => field.value !== field.defaultValue);
}

function merge(region, markup) {
  const fresh = new DOMParser().parseFromString(markup, "text/html").body;
  const wanted = new Map(all("[data-item]", fresh).map((item) => [item.id, item]));
  for (const item of all("[data-item]", region)) {
    if (wanted.has(item.id) || item.dataset.item !== "pending") continue;
    if (atWork(item) && item.dataset.self) htmx.ajax("GET", item.dataset.self, { target: item, swap: "outerHTML" });
    else depart(item);
  }
  let before = null;
  for (const [id, item] of wanted) {
    const there = document.getElementById(id);
    if (there && there.dataset.item === item.dataset.item) { before = there; continue; }
    item.classList.add("is-new");
    if (there) there.replaceWith(item);
    else if (before) before.after(item);
    else region.prepend(item);
    htmx.process(item);
    before = item;
  }
  const empty = one("[data-empty]", region);
  const freshEmpty = one("[data-empty]", fresh);
  if (empty) empty.hidden = one("[data-item]", region) !== null;
  else if (freshEmpty && !one("[data-item]", region)) region.append(freshEmpty);
  for (const node of all("[data-copy]", fresh)) {
    const there = document.getElementById(node.dataset.copy);
    if (there) put(there, node.textContent.trim());
  }
  tell();
}

// Somebody else decided it. It keeps its place for a moment, and as long as the pointer is in the list: nothing may move
// under a hand that is about to press a button. Nor is another one selected by itself, for a key that is about to be pressed.
function depart(item) {
  item.style.minHeight = `${item.offsetHeight}px`;
  item.dataset.item = "gone";
  item.classList.remove("is-here");
  item.classList.add("is-gone");
  one(".answers", item)?.remove();
  const note = document.createElement("p");
  note.textContent = "Decided elsewhere.";
  item.append(note);
  departed(item);
}

function departed(item) {
  setTimeout(() => {
    if (item.parentElement?.matches(":hover")) departed(item);
    else leave(item);
  }, 1500);
}

function leave(item) {
  const region = item.parentElement;
  item.remove();
  const empty = region && one("[data-empty]", region);
  if (empty) empty.hidden = all("[data-item]", region).length > 0;
}

function goOn(item) {
  const found = items();
  const next = found.slice(found.indexOf(item)).concat(found).find((other) => other.dataset.item === "pending");
  if (next) { select(next); next.scrollIntoView({ block: "nearest" }); }
}

// -- keys --------------------------------------------------------------------------------------------

const items = () => all("[data-item]:not([data-item=gone]), [data-row]").filter((item) => item.offsetParent !== null);
const here = () => one(".is-here");

function move(by) {
  const found = items();
  if (!found.length) return;
  const now = found.indexOf(here());
  const next = found[Math.max(0, Math.min(found.length - 1, now < 0 ? 0 : now + by))];
  select(next);
  next.focus({ preventScroll: true }); // so that it is read out, too
  next.scrollIntoView({ block: "nearest" });
}

function select(item) {
  if (!item.hasAttribute("tabindex")) item.tabIndex = -1;
  for (const other of all(".is-here")) if (other !== item) { other.classList.remove("is-here"); other.removeAttribute("aria-current"); }
  item.classList.add("is-here");
  item.setAttribute("aria-current", "true");
}

// The one thing that a run waits for is selected by itself, so that the keys on its buttons work: at first, and when it
// comes after an answer from here. Not in the place of one that somebody else decided: a key may be on its way to that.
let steady = true;

function selectOnly() {
  const waits = all(".waits[data-row]");
  if (steady && waits.length === 1 && !here()) select(waits[0]);
}

function press(key) {
  const button = here() && one(`[data-key="${key}"]`, here());
  if (!button) return false;
  if (button.matches("input, textarea, select")) {
    button.closest("details")?.setAttribute("open", "");
    button.focus();
  } else button.click();
  return true;
}

function open() {
  const link = here() && one("a[data-open]", here());
  if (link) link.click();
  return Boolean(link);
}

const acts = {
  j: () => (move(1), true),
  k: () => (move(-1), true),
  Enter: open,
  a: () => press("a"),
  s: () => press("s"),
  d: () => press("d"),
  "/": () => { const field = one("[data-search]"); field?.focus(); return Boolean(field); },
  "?": () => (one("#keys").showModal(), true),
};

let going = -Infinity;

function keyed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const field = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "Escape" && field) { field.blur(); return; }
  if (field || one("dialog[open]")) return;
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  if (going > performance.now() - 1200) {
    going = -Infinity;
    const link = one(`[data-go="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  if (event.key === "g") { going = performance.now(); return; }
  if (Object.hasOwn(acts, event.key) && acts[event.key]()) event.preventDefault();
}

// -- begin -------------------------------------------------------------------------------------------

addEventListener("DOMContentLoaded", () => {
  const button = one("[data-theme-switch]");
  if (button) {
    button.hidden = false;
    showTheme(button);
    button.addEventListener("click", () => { nextTheme(); showTheme(button); });
  }
  const help = one("[data-keys]");
  if (help) { help.hidden = false; help.addEventListener("click", () => one("#keys").showModal()); }
  tell();
  setInterval(tell, 1000);
  if (document.body.dataset.liveStream) {
    attend();
    document.addEventListener("visibilitychange", attend);
    addEventListener("pagehide", forget);
    addEventListener("pageshow", attend); // a browser may keep a page that was left, and show it again
  }
  if (one("[data-item=pending]")) select(one("[data-item=pending]"));
  selectOnly();
});
document.addEventListener("keydown", keyed);
document.addEventListener("focusin", (event) => {
  const item = event.target.closest?.("[data-item], [data-row]");
  if (item) select(item);
});
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-auto]")) event.target.form?.requestSubmit();
});
let before = null; // the row that was selected, in a list that is drawn anew
document.addEventListener("htmx:beforeSwap", (event) => {
  before = here()?.id || null;
  const region = event.detail.target;
  if (!region?.hasAttribute("data-merge") || event.detail.isError) return;
  event.detail.shouldSwap = false;
  merge(region, event.detail.serverResponse);
});
document.addEventListener("htmx:afterSwap", (event) => {
  const again = !here() && before && document.getElementById(before);
  if (again && again.dataset.item !== "told") select(again);
  if (before?.startsWith("w-") && !again && event.detail.requestConfig?.verb === "get") steady = false;
  selectOnly();
  const told = event.detail.target.id && document.getElementById(event.detail.target.id);
  if (!told || !told.hasAttribute("data-item")) return;
  if (told.hasAttribute("data-leaves")) setTimeout(() => { if (!told.contains(document.activeElement)) leave(told); }, 6000);
  if (told.dataset.item === "told" && !here()) goOn(told);
});
document.addEventListener("htmx:load", (event) => {
  if (event.detail.elt.classList?.contains("toast")) keepToast(event.detail.elt);
  tell();
});
document.addEventListener("htmx:sendError", (event) => {
  // Of what is only looked at again, the state in the corner tells.
  if (event.detail.requestConfig.verb !== "get") toast("The server can't be reached. Try again; it is done at most once.", "bad");
});
document.addEventListener("click", (event) => {
  const item = event.target.closest?.("[data-dismiss]")?.closest("[data-item]");
  if (item) leave(item);
});
