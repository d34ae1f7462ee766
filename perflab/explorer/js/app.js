// The page: what is chosen, and the views that follow it.

import { el, fill, later, say, showCount, showShare, showTime } from "./dom.js";
import { link, numbers } from "./link.js";
import { followTheme } from "./theme.js";
import { timeline } from "./timeline.js";

const PHASES = ["prefill", "decode", "mixed"];
const PHASE_COLOURS = ["#0072b2", "#009e73", "#b07d00"];

function render({ model, el: host }) {
  const facts = model.get("facts"), words = facts.words;
  const line = link(model), ask = line.ask;
  const state = { run: model.get("run"), meta: null, theme: {}, marking: false };
  const told = (name, fields) => say(words, name, fields);

  const look = {
    words, codes: facts.codes, phases: PHASE_COLOURS, phaseNames: PHASES, say: told,
    theme: () => state.theme,
    colour: (code) => (facts.codes[code] === "idle" ? state.theme.idle : facts.codes[code] === "other" ? state.theme.other
      : facts.codes[code] === "call" ? state.theme.line : facts.codes[code] === "wait" ? state.theme.idle
        : facts.colours[facts.codes[code]]),
    word: (code) => facts.names[facts.codes[code]],
    chosen: () => new Set(model.get("categories")),
    searching: () => Boolean(model.get("text")),
    marking: () => state.marking,
  };
  const search = () => ({ text: model.get("text"), pattern: model.get("pattern") });
  const put = later(120, () => model.save_changes());
  const set = (name, value) => { model.set(name, value); put(); };

  // Views
  const track = timeline((what, fields) => ask(what, { ...fields, ...(what === "view" ? search() : {}) }), look, {
    span: (a, b) => { set("span", [a, b]); },
    marked: (stretch) => { set("marked", stretch ?? []); sum(); },
    home: () => toStep(model.get("step")),
    step: (step) => choose(step),
    nextStep: (by) => nextStep(by),
    occurrence: (by) => jump(by),
  });

  const runPick = el("select", { "aria-label": words.run, onchange: () => open(Number(runPick.value)) },
    facts.runs.map((run, at) => el("option", { value: at }, run.name)));
  const note = el("div", { class: "pl-note", role: "status" });
  const sums = el("div", { class: "pl-sums", "aria-live": "polite" });
  const root = el("div", { class: "pl", "data-lm-suppress-shortcuts": "true" },
    el("div", { class: "pl-bar" }, el("label", {}, words.run, runPick)), note, track.root, sums);
  host.append(root);
  const unfollow = followTheme(root, (theme) => { state.theme = theme; track.draw(); });

  // What is chosen

  async function open(run) {
    note.textContent = told("reading", { name: facts.runs[run].name });
    let reply;
    try { reply = await ask("open", { run }); } catch (error) { note.textContent = error.message; return; }
    note.textContent = reply.cautions.join(" ");
    reply.ranks.forEach((rank, at) => {
      const [start, dur, step, phase, ...counts] = reply.buffers.slice(9 * at, 9 * at + 9);
      rank.steps = {
        start: numbers(start, Float64Array), dur: numbers(dur, Float64Array), step: numbers(step, Int32Array),
        phase: numbers(phase, Uint8Array), counts: counts.map((one) => numbers(one, Int32Array)),
      };
    });
    state.meta = reply;
    model.set("run", run);
    runPick.value = run;
    const all = reply.ranks.map((rank) => rank.rank), kept = model.get("ranks").filter((rank) => all.includes(rank));
    model.set("ranks", kept.length ? kept : all.slice(0, 2));
    follow();
    const steps = reply.ranks[0]?.steps, wanted = model.get("step");
    const step = steps?.step.includes(wanted) ? wanted : reply.ranks[0]?.typical ?? -1;
    choose(step);
  }

  function shown() {
    const ranks = model.get("ranks");
    return state.meta.ranks.filter((rank) => ranks.includes(rank.rank));
  }

  function follow() {
    const ranks = shown(), { steps } = ranks[0] ?? {}, at = steps ? steps.step.indexOf(model.get("step")) : -1;
    track.set({
      run: model.get("run"), ranks: ranks.map((rank) => rank.rank), shown: ranks, window: state.meta.window,
      step: model.get("step"), zero: at >= 0 ? steps.start[at] : state.meta.window[0],
    });
  }

  function choose(step) {
    set("step", step);
    follow();
    toStep(step);
  }
  function toStep(step) {
    const { steps } = shown()[0] ?? {}, at = steps ? steps.step.indexOf(step) : -1;
    if (at < 0) { track.show(...state.meta.window); return; }
    const slack = steps.dur[at] * 0.02;
    track.show(steps.start[at] - slack, steps.start[at] + steps.dur[at] + slack);
  }
  function nextStep(by) {
    const { steps } = shown()[0] ?? {};
    if (!steps?.step.length) return;
    const at = steps.step.indexOf(model.get("step"));
    choose(steps.step[Math.min(Math.max(at + by, 0), steps.step.length - 1)]);
  }
  async function jump() {}

  async function sum() {
    const [start, end] = model.get("marked");
    if (start === undefined) { fill(sums); return; }
    const reply = await ask("select", { run: model.get("run"), ranks: model.get("ranks"), start: Math.round(start), end: Math.round(end) });
    fill(sums, reply.ranks.map((rank) => el("div", {}, `rank ${rank.rank}: ${showTime(rank.ns)}, busy ${showShare(rank.busy_ns / rank.ns)}, ${showCount(rank.count)} kernels`)));
  }

  open(state.run);
  return () => { unfollow(); line.close(); track.close(); };
}

export default { render };
