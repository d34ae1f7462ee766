// The page: what is chosen, and the views that follow it.

import { bars } from "./bars.js";
import { el, fill, inkOn, later, say, showCount, showMany, showShare, showTime } from "./dom.js";
import { kernels } from "./kernels.js";
import { link, newest, numbers } from "./link.js";
import { requests } from "./requests.js";
import { stepsView } from "./steps.js";
import { followTheme } from "./theme.js";
import { timeline } from "./timeline.js";

const PHASES = ["prefill", "decode", "mixed"];
const PHASE_COLOURS = ["#0072b2", "#009e73", "#b07d00"];
const STEP_ARRAYS = 9;

function render({ model, el: host }) {
  const facts = model.get("facts"), words = facts.words;
  const line = link(model), ask = line.ask;
  const state = { meta: null, theme: {}, marking: false, scope: "view", bars: [], opening: -1, ready: false };
  const get = (name) => model.get(name);
  const told = (name, fields) => say(words, name, fields);

  const special = () => ({ idle: state.theme.idle, other: state.theme.other, call: state.theme.line, wait: state.theme.grid });
  const look = {
    words, codes: facts.codes, names: facts.names, causes: facts.causes, phases: PHASE_COLOURS, phaseNames: PHASES, say: told,
    repaint: new Set(),
    theme: () => state.theme,
    colour: (code) => special()[facts.codes[code]] || facts.colours[facts.codes[code]] || "#4b5563",
    /** A full colour, or a step back where something else is the point: then the ink is the page's. */
    fill: (colour, faded) => (faded || colour === state.theme.idle
      ? `background:color-mix(in srgb, ${colour} ${faded ? 38 : 100}%, var(--pl-paper));color:var(--pl-ink)`
      : `background:${colour};color:${inkOn(colour)}`),
    word: (code) => facts.names[facts.codes[code]],
    chosen: () => new Set(get("categories")),
    searching: () => Boolean(get("text")) && state.valid !== false,
    marking: () => state.marking,
  };
  const search = () => ({ text: get("text"), pattern: get("pattern") });
  const put = later(100, () => model.save_changes());
  let mine = 0;
  const set = (name, value) => { mine += 1; model.set(name, value); mine -= 1; put(); };

  // Views

  const track = timeline((what, fields) => ask(what, { ...fields, ...(what === "view" && look.searching() ? search() : {}) }), look, {
    span: (a, b) => { set("span", [a, b]); if (state.scope === "view") tableLater(); },
    marked: (stretch) => { set("marked", stretch ?? []); sum(); },
    home: () => toStep(get("step")),
    step: (step) => choose(step),
    nextStep: (by) => nextStep(by),
    occurrence: (by) => jump(by),
  });
  const breakdown = bars(look, {
    row: (run, rank) => { if (run !== get("run")) open(run, [rank]); else pickRanks([rank]); },
    category: (name) => toggle(name),
  });
  const steps = stepsView(look, { step: (step) => choose(step) });
  const names = kernels(ask, look, {
    search, scopes: [["view", words.scope_view], ["step", words.scope_step], ["marked", words.scope_marked], ["phase", words.scope_phase], ["all", words.scope_all]],
    where: () => (state.meta ? { run: get("run"), ranks: get("ranks"), categories: get("categories"), scope: scope() } : null),
  }, {
    search: (text, pattern) => { set("text", text); set("pattern", pattern); searched(); },
    jump: (by, name) => jump(by, name),
    scope: (value) => { state.scope = value; names.follow(); },
  });
  const single = requests(ask, look, { step: (run, rank, step) => goStep(run, rank, step) });

  // The frame

  const runPick = el("select", { class: "pl-run", "aria-label": words.run, onchange: () => open(Number(runPick.value)) },
    facts.runs.map((run, at) => el("option", { value: at }, run.name)));
  const device = el("span", { class: "pl-device" });
  const ranks = el("div", { class: "pl-seg", role: "group", "aria-label": words.ranks });
  const phases = el("div", { class: "pl-seg", role: "group", "aria-label": words.phase });
  const legend = el("div", { class: "pl-legend", role: "group", "aria-label": words.categories });
  const note = el("div", { class: "pl-note", role: "status" });
  const sums = el("div", { class: "pl-sums", "aria-live": "polite", "data-view": "sums" });
  const tool = (sign, name, act) => el("button", { type: "button", class: "pl-tool", "aria-label": words[name], title: words[name], onclick: act }, sign);
  const marker = el("button", { type: "button", class: "pl-tool pl-wide", "aria-pressed": "false", title: words.mark_hint, onclick: () => marks(!state.marking) }, words.mark);
  const marks = (on) => { state.marking = on; marker.setAttribute("aria-pressed", String(on)); };
  const title = el("h3", {}, words.timeline);
  const tabs = ["device", "requests"].map((name) => el("button", {
    type: "button", role: "tab", "data-tab": name, id: `pl-tab-${name}`, onclick: () => tab(name),
    onkeydown: (event) => { if (["ArrowLeft", "ArrowRight"].includes(event.key)) { event.preventDefault(); tab(name === "device" ? "requests" : "device"); tabs.find((one) => one.tabIndex === 0).focus(); } },
  }, words[`tab_${name}`]));
  const devicePage = el("div", { role: "tabpanel", class: "pl-page" },
    el("div", { class: "pl-choices" }, ranks, phases, legend), note,
    el("div", { class: "pl-pair" },
      el("section", {}, el("h3", { class: "pl-bars-title" }), breakdown.root),
      el("section", {}, el("h3", {}, words.step_durations), steps.root)),
    el("section", {}, el("div", { class: "pl-tools" }, title,
      el("span", { class: "pl-grow" }), tool("‹", "previous_step", () => nextStep(-1)), tool("›", "next_step", () => nextStep(1)), el("span", { class: "pl-gap" }),
      tool("−", "zoom_out", () => track.zoom(1 / 0.6)), tool("+", "zoom_in", () => track.zoom(0.6)),
      el("button", { type: "button", class: "pl-tool pl-wide", title: words.whole_step_hint, onclick: () => toStep(get("step")) }, words.whole_step),
      el("button", { type: "button", class: "pl-tool pl-wide", onclick: () => state.meta && track.show(...state.meta.window) }, words.whole), marker),
    track.root, sums),
    names.root);
  const requestPage = el("div", { role: "tabpanel", class: "pl-page", hidden: true }, single.root);
  const root = el("div", { class: "pl", "data-lm-suppress-shortcuts": "true" },
    el("div", { class: "pl-bar" }, runPick, device, el("span", { class: "pl-grow" }), el("div", { class: "pl-tabs", role: "tablist" }, tabs)),
    devicePage, requestPage);
  host.append(root);
  const unfollow = followTheme(root, (theme) => {
    state.theme = theme;
    track.draw(); steps.draw(); single.draw(); showBars(); names.follow();
    for (const draw of look.repaint) draw();
  });

  // What is chosen

  async function open(run, wantedRanks = null) {
    state.opening = run;
    runPick.value = run;
    set("run", run);
    const about = facts.runs[run];
    if (get("tab") === "requests") single.open(run, about.name);
    if (!about.trace) { clearDevice(words.no_trace); return false; }
    note.textContent = told("reading", { name: about.name });
    note.classList.add("pl-busy");
    if (!state.meta) devicePage.classList.add("pl-empty");
    let reply;
    try { reply = await ask("open", { run }); } catch (error) { if (state.opening === run) clearDevice(error.message); return false; }
    if (state.opening !== run) return false;
    note.textContent = reply.cautions.join(" ");
    note.classList.remove("pl-busy");
    devicePage.classList.remove("pl-empty");
    reply.ranks.forEach((rank, at) => {
      const [start, dur, step, phase, ...counts] = reply.buffers.slice(STEP_ARRAYS * at, STEP_ARRAYS * (at + 1));
      rank.steps = {
        start: numbers(start, Float64Array), dur: numbers(dur, Float64Array), step: numbers(step, Int32Array),
        phase: numbers(phase, Uint8Array), counts: counts.map((one) => numbers(one, Int32Array)),
      };
    });
    state.meta = reply;
    const all = reply.ranks.map((rank) => rank.rank), kept = (wantedRanks ?? get("ranks")).filter((rank) => all.includes(rank));
    set("ranks", kept.length ? kept : all.slice(0, 2));
    if (get("phase") !== "all" && !reply.phases.includes(get("phase"))) set("phase", "all");
    device.textContent = [...new Set(reply.ranks.map((rank) => rank.device))].join(", ") + (reply.ranks.length > 1 ? ` × ${reply.ranks.length}` : "");
    choices();
    const first = shown()[0], step = first?.steps.step.includes(get("step")) ? get("step") : first?.typical ?? -1;
    const kept_span = state.ready ? [] : get("span"), kept_mark = state.ready ? [] : get("marked");
    state.ready = true;
    choose(step);
    if (kept_span.length === 2) track.show(...kept_span);
    if (kept_mark.length === 2) track.mark(...kept_mark); else if (get("marked").length) track.mark(0, 0);
    await fetchBars();
    return true;
  }

  function clearDevice(why) {
    state.meta = null;
    device.textContent = "";
    note.textContent = why;
    note.classList.remove("pl-busy");
    devicePage.classList.add("pl-empty");
  }

  const shown = () => (state.meta?.ranks ?? []).filter((rank) => get("ranks").includes(rank.rank));

  function choices() {
    fill(ranks, state.meta.ranks.length > 1 ? state.meta.ranks.map((rank) => el("button", {
      type: "button", "aria-pressed": get("ranks").includes(rank.rank), onclick: () => {
        const now = new Set(get("ranks"));
        if (now.has(rank.rank) && now.size > 1) now.delete(rank.rank); else now.add(rank.rank);
        pickRanks([...now].sort((a, b) => a - b));
      },
    }, told("rank", { rank: rank.rank }))) : null);
    ranks.hidden = state.meta.ranks.length < 2;
    fill(phases, ["all", ...state.meta.phases].map((name) => el("button", { type: "button", "aria-pressed": get("phase") === name, "data-phase": name, onclick: () => toPhase(name) },
      name === "all" ? words.every_phase : el("span", {}, el("i", { class: "pl-dot", style: `background:${PHASE_COLOURS[PHASES.indexOf(name)]}` }), name))));
    phases.hidden = !state.meta.phases.length;
  }

  function follow() {
    const some = shown(), { steps: of } = some[0] ?? {}, at = of ? of.step.indexOf(get("step")) : -1;
    track.set({
      run: get("run"), ranks: some.map((rank) => rank.rank), shown: some, window: state.meta.window, step: get("step"),
      zero: at >= 0 ? of.start[at] : state.meta.window[0], hasStep: at >= 0,
    });
    if (of) { steps.set(of, state.meta.window[0]); steps.choose(get("step"), get("phase")); }
    steps.root.parentElement.hidden = !of?.step.length;
    title.textContent = at >= 0 ? told("timeline_of", { step: of.step[at], phase: PHASES[of.phase[at]], span: showTime(of.dur[at]) }) : words.timeline;
  }
  function pickRanks(some) { set("ranks", some); choices(); follow(); showBars(); names.follow(); sum(); }
  function toPhase(name) {
    set("phase", name);
    choices();
    const typical = name === "all" ? shown()[0]?.typical : shown()[0]?.typical_by[name];
    if (typical !== null && typical !== undefined) choose(typical);
    fetchBars();
    names.follow();
  }
  function choose(step) { set("step", step); follow(); toStep(step); names.follow(); }
  function toStep(step) {
    if (!state.meta) return;
    const { steps: of } = shown()[0] ?? {}, at = of ? of.step.indexOf(step) : -1;
    if (at < 0) { track.show(...state.meta.window); return; }
    track.show(of.start[at] - of.dur[at] * 0.02, of.start[at] + of.dur[at] * 1.02);
  }
  function nextStep(by) {
    const { steps: of } = shown()[0] ?? {};
    if (!of?.step.length) return;
    const fits = [...of.step.keys()].filter((at) => get("phase") === "all" || PHASES[of.phase[at]] === get("phase"));
    const at = fits.indexOf(of.step.indexOf(get("step")));
    choose(of.step[fits[Math.min(Math.max(at + by, 0), fits.length - 1)] ?? 0]);
  }
  function toggle(name) {
    const now = new Set(get("categories"));
    if (!now.delete(name)) now.add(name);
    set("categories", [...now]);
    track.draw(); showBars(); names.follow();
  }
  async function goStep(run, rank, step) {
    tab("device");
    if (run !== get("run") || !state.meta) { if (!(await open(run, [rank]))) return; }
    if (!get("ranks").includes(rank)) pickRanks([rank]);
    set("phase", "all");
    choices();
    choose(step);
    fetchBars();
    devicePage.scrollIntoView({ block: "nearest" });
  }

  // What follows

  function scope() {
    const { steps: of } = shown()[0] ?? {}, at = of ? of.step.indexOf(get("step")) : -1;
    const span = (a, b) => ({ kind: "span", start: Math.floor(a), end: Math.max(Math.ceil(b), Math.floor(a) + 1) });
    if (state.scope === "step" && at >= 0) return span(of.start[at], of.start[at] + of.dur[at]);
    if (state.scope === "marked" && get("marked").length) return span(...get("marked"));
    if (state.scope === "phase" && get("phase") !== "all") return { kind: "phase", phase: get("phase") };
    if (state.scope === "all" || state.scope === "phase") return { kind: "all" };
    return span(...track.state().view);
  }
  const tableLater = later(50, () => names.follow());

  async function fetchBars() {
    const reply = await ask("bars", { phase: get("phase") }).catch(() => null);
    if (!reply) return;
    state.bars = reply;
    showBars();
    // The other runs are read one after the other, while the page can be used.
    const next = reply.missing[0];
    if (next === undefined || state.reading === next) return;
    state.reading = next;
    const failed = await ask("open", { run: next }).then(() => false, () => true);
    state.failed = failed ? new Set([...(state.failed ?? []), next]) : state.failed;
    if (!failed) fetchBars(); else { reply.missing = reply.missing.filter((one) => !state.failed.has(one)); showBars(); }
  }
  function showBars() {
    if (!state.bars.rows) return;
    const categories = look.chosen(), seen = new Set(state.bars.rows.flatMap((row) => Object.keys(row.parts)));
    breakdown.set(state.bars.rows, { run: get("run"), ranks: get("ranks"), phase: get("phase"), categories }, state.bars.missing.map((at) => facts.runs[at].name));
    devicePage.querySelector(".pl-bars-title").textContent = told(get("phase") === "all" ? "bars_all" : "bars_phase", { phase: get("phase") });
    fill(legend, facts.codes.filter((name) => seen.has(name) && name !== "idle").map((name) => el("button", {
      type: "button", class: "pl-key", "aria-pressed": categories.has(name), "data-category": name, onclick: () => toggle(name),
    }, el("i", { class: "pl-swatch", style: `background:${look.colour(facts.codes.indexOf(name))}` }), facts.names[name])),
    categories.size ? el("button", { type: "button", class: "pl-key", onclick: () => { set("categories", []); track.draw(); showBars(); names.follow(); } }, words.every_category) : null);
  }

  const searched = later(50, () => {
    state.valid = true;
    if (get("pattern")) try { new RegExp(get("text")); } catch { state.valid = false; }
    track.again();
    names.follow();
  });

  async function jump(by, name = null) {
    if (!state.meta || (!name && !look.searching())) return;
    const [a, b] = track.state().view, same = state.focus && state.focus.start >= a && state.focus.start <= b && state.focus.name === name;
    const at = Math.round(same ? state.focus.start : by > 0 ? a : b);
    const reply = await ask("occurrence", { run: get("run"), ranks: get("ranks"), at, step: by, ...(name ? { name } : search()) }).catch(() => null);
    if (!reply || reply.row === null) return;
    state.focus = { ...reply, name };
    const wide = Math.max((reply.end - reply.start) * 24, 20_000), span = Math.min(b - a, wide), middle = (reply.start + reply.end) / 2;
    track.show(middle - span / 2, middle + span / 2);
    track.focusOn(reply.rank, reply.row);
    names.at(reply.number, reply.count);
  }

  const fetchSums = newest((asked) => ask("select", asked), (reply, asked) => {
    if (!reply || !get("marked").length) { fill(sums); return; }
    fill(sums, el("h3", {}, told("marked", { span: showTime(asked.end - asked.start) })), reply.ranks.map((rank) => {
      const parts = [...Object.entries(rank.categories), ["idle", rank.idle_ns]].filter(([, ns]) => ns > 0).sort((x, y) => (x[0] === "idle") - (y[0] === "idle") || y[1] - x[1]);
      return el("div", { class: "pl-sum" },
        el("div", { class: "pl-sum-head" }, reply.ranks.length > 1 ? el("b", {}, told("rank", { rank: rank.rank })) : null,
          told(rank.on_cpu ? "busy_cpu" : "busy", { busy: showTime(rank.busy_ns), share: showShare(rank.busy_ns / rank.ns), idle: showTime(rank.idle_ns), count: showMany(rank.count, rank.on_cpu ? "operator" : "activity").replace("activitys", "activities") })),
        el("div", { class: "pl-stack" }, parts.map(([name, ns]) => el("i", { style: `width:${(ns / rank.ns) * 100}%;background:${look.colour(facts.codes.indexOf(name))}`, title: facts.names[name] }))),
        el("div", { class: "pl-legend" }, parts.map(([name, ns]) => el("span", { class: "pl-key" }, el("i", { class: "pl-swatch", style: `background:${look.colour(facts.codes.indexOf(name))}` }),
          facts.names[name], el("em", {}, `${showTime(ns)}, ${showShare(ns / rank.ns)}`)))));
    }), el("button", { type: "button", class: "pl-tool pl-wide", onclick: () => track.mark(0, 0) }, words.clear));
  });
  function sum() {
    const [start, end] = get("marked");
    if (start === undefined || !state.meta) { fill(sums); return; }
    fetchSums({ run: get("run"), ranks: get("ranks"), start: Math.round(start), end: Math.max(Math.round(end), Math.round(start) + 1) });
    if (state.scope === "marked") names.follow();
  }

  function tab(name) {
    set("tab", name);
    for (const one of tabs) {
      one.setAttribute("aria-selected", String(one.dataset.tab === name));
      one.tabIndex = one.dataset.tab === name ? 0 : -1;
    }
    devicePage.hidden = name !== "device";
    requestPage.hidden = name !== "requests";
    if (name === "requests") single.open(get("run"), facts.runs[get("run")].name);
    track.draw(); steps.draw();
  }

  // What the kernel's side changes, the page follows; what the page changes, it has drawn already.
  const heard = {
    run: () => open(get("run")), step: () => { follow(); toStep(get("step")); names.follow(); }, phase: () => toPhase(get("phase")),
    ranks: () => pickRanks(get("ranks")), categories: () => { track.draw(); showBars(); names.follow(); },
    text: searched, pattern: searched, tab: () => tab(get("tab")),
    span: () => get("span").length === 2 && track.show(...get("span"), { quiet: true }),
    marked: () => track.mark(...(get("marked").length ? get("marked") : [0, 0])),
  };
  const listeners = Object.entries(heard).map(([name, act]) => [`change:${name}`, () => { if (!mine && state.meta) act(); }]);
  for (const [name, act] of listeners) model.on(name, act);

  // For tests and benchmarks: what is drawn, and whether that is all there is to draw.
  root.plState = () => ({
    timeline: track.state(), requests: single.state(), steps, meta: state.meta,
    isExact: () => track.isFresh() && !searched.waits(),
    isFresh: () => !line.waiting() && track.isFresh() && !tableLater.waits() && !searched.waits(),
    show: (turn) => track.show(...state.meta.window.map((edge, at) => edge + (at ? -1 : 1) * turn)),
  });
  tab(get("tab"));
  open(get("run"));
  return () => { for (const [name, act] of listeners) model.off(name, act); unfollow(); line.close(); track.close(); steps.close(); single.close(); };
}

export default { render };
