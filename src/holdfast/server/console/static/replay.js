"use strict";
// The slider of a run: any moment of it, told from what the page knows already. Without it, the form asks the server.
(() => {
  const OPEN = new Set(["open", "waiting", "in_doubt", "running"]);
  const find = (what, root = document) => root.querySelector(what);
  const every = (what, root = document) => [...root.querySelectorAll(what)];
  let known = null; // what `data-replay` says
  let held = null; // the record that somebody moved to; null: the newest
  let playing = null;

  const money = (micros) => (micros === 0 ? "$0" : `$${(micros / 1e6).toFixed(micros >= 1e6 ? 2 : 4)}`);
  const grouped = (number) => String(number).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009");

  function took(ms) {
    if (ms < 1000) return `${Math.round(ms)} ms`;
    if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
    const two = (n) => String(n).padStart(2, "0");
    if (ms < 3600000) return `${Math.floor(ms / 60000)} min ${two(Math.floor((ms % 60000) / 1000))} s`;
    return `${Math.floor(ms / 3600000)} h ${two(Math.floor((ms % 3600000) / 60000))} min`;
  }

  function place(seq) { // the newest record of the run up to here
    let low = 0;
    let high = known.seqs.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (known.seqs[middle] <= seq) low = middle; else high = middle - 1;
    }
    return low;
  }

  function statusAt(marks, seq) {
    let found = null;
    for (let n = 0; n < marks.length && marks[n] <= seq; n += 2) found = known.statuses[marks[n + 1]];
    return found;
  }

  function tellMoment(index) {
    const seq = known.seqs[index];
    const told = { done: 0, open: 0, ahead: 0, cost: 0, names: [], lines: [] };
    for (const [word, row, cost, , program, line, marks] of known.steps) {
      const name = known.names[word];
      const lane = known.lanes[row];
      const status = statusAt(marks, seq);
      if (status === null) told.ahead += 1;
      else if (OPEN.has(status)) {
        told.open += 1;
        told.names.push(name.replaceAll("_", " "));
        if (line && (lane === "effect" || lane === "approval")) told.lines.push([known.programs[program], line, status, name]);
      } else { told.done += 1; told.cost += cost; }
    }
    return told;
  }

  function put(name, text) {
    const node = find(`[data-m="${name}"]`);
    if (node && node.textContent !== text) node.textContent = text;
  }

  const whys = { waiting: (name) => `waits for a person: ${name}`, in_doubt: (name) => `nobody knows whether ${name} happened` };

  function showLines(lines) {
    for (const line of every(".code-lines .stands")) {
      line.classList.remove("stands", "is-guess");
      line.removeAttribute("aria-current");
      find(".why", line)?.remove();
    }
    for (const [program, number, status, name] of lines) {
      const list = find(`[data-program-lines="${program}"]`);
      const line = list && find(`[data-line="${number}"]`, list);
      if (!line || line.classList.contains("stands")) continue;
      const why = document.createElement("span");
      why.className = "why";
      why.textContent = (whys[status] || ((one) => `${one} is under way`))(name);
      line.classList.add("stands");
      line.setAttribute("aria-current", "step");
      line.append(why);
      list.closest("details")?.setAttribute("open", "");
    }
    showPlaces();
  }

  // The line it stands on comes to the middle of its pane, whenever it is another one. Only panes scroll: who has looked
  // elsewhere in the code stays there, and the page does not move under anybody's eyes.
  let stood = null;

  function showPlaces() {
    const lines = every(".code-lines :is(.stands, .broke)");
    const stands = lines.map((line) => `${line.parentElement.dataset.programLines}:${line.dataset.line}`).join();
    if (stands === stood) return;
    stood = stands;
    const shown = new Set();
    for (const line of lines) {
      for (const pane of [line.closest(".code-lines"), line.closest(".run-code")]) {
        if (shown.has(pane)) continue;
        shown.add(pane);
        const [inner, outer] = [line.getBoundingClientRect(), pane.getBoundingClientRect()];
        pane.scrollTop += inner.top - outer.top - Math.max(0, (outer.height - inner.height) / 2);
      }
    }
    showCursor();
  }

  // On a narrow screen a part of the timeline is seen: the one with the moment in it.
  function showCursor() {
    const [cursor, picture] = [find("#cursor"), find(".run-time .timeline")];
    if (!cursor || !picture) return;
    const [inner, outer] = [cursor.getBoundingClientRect(), picture.getBoundingClientRect()];
    if (inner.left < outer.left || inner.right > outer.right) picture.scrollLeft += inner.left - outer.left - outer.width / 2;
  }

  function show(index) {
    const last = index === known.seqs.length - 1;
    const seq = known.seqs[index];
    const slider = find("#replay-at");
    slider.value = String(seq);
    slider.setAttribute("aria-valuetext", `record ${seq}, ${took(known.times[index])} after the start`);
    for (const node of every("[data-seq]")) {
      const ahead = Number(node.dataset.seq) > seq;
      node.classList.toggle("is-ahead", ahead);
      node.classList.toggle("is-open", !ahead && Number(node.dataset.last) > seq);
    }
    const cursor = find("#cursor");
    if (cursor) {
      cursor.setAttribute("x1", known.xs[index]);
      cursor.setAttribute("x2", known.xs[index]);
      cursor.toggleAttribute("data-last", last);
      showCursor();
    }
    const told = tellMoment(index);
    put("where", `${last ? "at record" : "record"} ${grouped(seq)}`);
    put("time", `+${took(known.times[index])}`);
    put("done", String(told.done));
    put("open", String(told.open));
    put("ahead", String(told.ahead));
    put("cost", money(told.cost));
    put("names", told.names.slice(0, 4).join(", "));
    showLines(told.lines);
    const end = find("#replay-end");
    if (end) end.hidden = last;
    const result = find(".run-result");
    if (result) result.hidden = !last;
  }

  function go(index) {
    const to = Math.max(0, Math.min(known.seqs.length - 1, index));
    held = to === known.seqs.length - 1 ? null : known.seqs[to];
    show(to);
  }

  const now = () => (held === null ? known.seqs.length - 1 : place(held));

  function stop() {
    clearInterval(playing);
    playing = null;
    find("#replay-play")?.setAttribute("aria-label", "Play from the start");
    find("#replay-play")?.classList.remove("is-playing");
  }

  function play() {
    if (playing !== null) { stop(); return; }
    if (held === null) go(0);
    const size = Math.max(1, Math.ceil(known.seqs.length / 120));
    find("#replay-play").setAttribute("aria-label", "Stop");
    find("#replay-play").classList.add("is-playing");
    playing = setInterval(() => { go(now() + size); if (held === null) stop(); }, 120);
  }

  function begin(first) {
    const form = find("#replay");
    if (first) showPlaces();
    if (!form) { known = null; return; }
    known = JSON.parse(form.dataset.replay);
    find("#replay-go").hidden = true;
    find("#replay-play").hidden = known.seqs.length < 2;
    const slider = find("#replay-at");
    if (first && Number(slider.value) < known.seqs[known.seqs.length - 1]) held = Number(slider.value);
    if (held !== null) show(place(held)); // who has moved it stays where they are
  }

  document.addEventListener("input", (event) => {
    if (event.target.id === "replay-at" && known) { stop(); go(place(Number(event.target.value))); }
  });
  document.addEventListener("submit", (event) => { if (event.target.id === "replay") event.preventDefault(); });
  document.addEventListener("click", (event) => {
    const bar = event.target.closest?.("a.bar");
    if (bar) {
      const row = document.getElementById(`step-${bar.dataset.seq}`);
      if (row) find("details", row).open = true;
    }
    if (event.target.closest?.("#replay-play")) play();
    if (event.target.closest?.("#replay-end") && known) { event.preventDefault(); stop(); go(known.seqs.length - 1); }
  });
  document.addEventListener("keydown", (event) => {
    if (!known || event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest("input, textarea, select, .timeline, .code-lines");
    if (field && field.id !== "replay-at") return;
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    const far = field && { Home: 0, End: known.seqs.length - 1 }[event.key];
    if (by !== undefined && (field || by * by === 1)) { event.preventDefault(); stop(); go(now() + by); }
    else if (far !== undefined && far !== null) { event.preventDefault(); stop(); go(far); }
  });

  // A long run takes the server a while to tell: it is asked again after four times as long, at most every five seconds.
  let asked = 0;
  let told = 0;
  let cost = 0;
  let later = null;
  const isRefresh = (event) => event.detail.elt?.id === "run";
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!isRefresh(event)) return;
    const rest = told + Math.min(5000, 4 * cost) - performance.now();
    if (rest <= 0) { asked = performance.now(); return; }
    event.preventDefault();
    later ??= setTimeout(() => { later = null; const region = find("#run[data-live]"); if (region) htmx.trigger(region, "live"); }, rest);
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (isRefresh(event)) { told = performance.now(); cost = told - asked; }
  });

  // A part that is fetched anew looks as people left it.
  const PANES = "#run :is(.code-lines, .run-code, .timeline)";
  let opened = [];
  let scrolled = [];
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target?.id !== "run") return;
    opened = every("#run details[open][id]").map((one) => one.id);
    scrolled = every(PANES).map((one) => [one.scrollTop, one.scrollLeft]);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target?.id !== "run") return;
    for (const id of opened) { const one = document.getElementById(id); if (one) one.open = true; }
    every(PANES).forEach((one, place) => { if (scrolled[place]) [one.scrollTop, one.scrollLeft] = scrolled[place]; });
    begin(false);
    showPlaces();
  });
  addEventListener("DOMContentLoaded", () => begin(true));
})();
