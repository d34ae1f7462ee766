// Single requests: a latency over when they were sent; where the time of chosen ones went; one life among the steps.

import { el, fill, inkOn, perFrame, sharp, showCount, showMany, showShare, showTime } from "./dom.js";
import { numbers } from "./link.js";
import { scatter } from "./scatter.js";

const METRICS = ["ttft", "e2el", "tpot"];
const STRIP = 26, STEPS = 74, LABELS = 104;

/** @param on { step(run, rank, step): shows a profiled step } */
export function requests(ask, look, on) {
  let run = -1, point = null, points = [], known = null, metric = "ttft", chosen = new Set(), metaOf = null, turn = 0;
  const pick = el("select", { "aria-label": look.words.point, onchange: () => load(points[Number(pick.value)]) });
  const choice = el("div", { class: "pl-seg", role: "group", "aria-label": look.words.latency },
    METRICS.map((name) => el("button", { type: "button", "data-metric": name, "aria-pressed": name === metric, onclick: () => measure(name) }, look.words[name])));
  const slow = el("button", { type: "button", class: "pl-tool pl-wide", onclick: () => choose(known?.tail[metric] ?? []) }, look.words.pick_slow);
  const clear = el("button", { type: "button", class: "pl-tool pl-wide", onclick: () => choose([]) }, look.words.clear);
  const note = el("div", { class: "pl-note", role: "status" });
  const plot = scatter({
    label: look.words.requests_label, height: 230, view: "requests", theme: look.theme,
    colour: (at) => (known && isSlow(at) ? "#d55e00" : look.theme().accent),
    front: (at) => isSlow(at),
    strong: (at) => chosen.has(known.id[at]), picked: () => chosen.size > 0,
    tip: (at) => [
      el("div", { class: "pl-tip-head" }, look.say("request", { id: known.id[at] }), el("b", {}, showTime(known[metric][at]))),
      el("dl", {}, [
        [look.words.sent, showTime(known.sent[at])],
        ...METRICS.map((name) => [look.words[name], Number.isNaN(known[name][at]) ? "–" : showTime(known[name][at])]),
        [look.words.tokens, look.say("tokens_in_out", { input: tokens(known.prompt[at]), output: tokens(known.output[at]) })],
      ].flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    ],
    pick: (at, add) => choose(at < 0 ? [] : [known.id[at]], add),
    box: (some, add) => choose(some.map((at) => known.id[at]), add),
  });
  const legend = el("div", { class: "pl-told pl-told-wide" });
  const cause = el("div", { class: "pl-cause", "aria-live": "polite", "data-view": "cause" });
  const lifeBox = el("div", { class: "pl-life", "data-view": "life" });
  const root = el("section", { class: "pl-requests" },
    el("div", { class: "pl-tools" }, el("label", {}, look.words.point, pick), choice, el("span", { class: "pl-grow" }), slow, clear),
    note, plot.root, legend, cause, lifeBox);

  const told = (text, busy = false) => { note.textContent = text; note.classList.toggle("pl-busy", busy); };
  const tokens = (count) => (count < 0 ? "–" : showCount(count));
  const isSlow = (at) => (known.tail[metric] ?? []).includes(known.id[at]);
  const colourOf = (name) => look.causes[name]?.[1] ?? "#4b5563";
  const wordOf = (name) => look.causes[name]?.[0] ?? name;

  async function open(number, name, meta) {
    metaOf = meta;
    if (run === number) { plot.draw(); return; }
    run = number;
    points = [];
    known = null;
    fill(pick);
    fill(cause);
    fill(lifeBox);
    plot.set([], []);
    legend.textContent = "";
    told(look.say("working_out", { name }), true);
    let reply;
    try { reply = await ask("points", { run }); } catch (error) { if (run === number) told(error.message); return; }
    if (run !== number) return;
    points = reply.points;
    fill(pick, points.map((one, at) => el("option", { value: at }, `${one.workload} ${one.label}${one.repeat ? `, repeat ${one.repeat + 1}` : ""}: ${showMany(one.requests, "request")}`)));
    pick.value = reply.best;
    load(points[reply.best]);
  }

  async function load(one) {
    point = one;
    const mine = ++turn, reply = await ask("requests", { run, point: one.id }).catch((error) => ({ error }));
    if (mine !== turn) return;
    if (reply.error) { told(reply.error.message); return; }
    const [id, sent, ttft, e2el, tpot, prompt, output] = reply.buffers;
    known = {
      id: numbers(id, Int32Array), sent: numbers(sent, Float64Array), ttft: numbers(ttft, Float64Array), e2el: numbers(e2el, Float64Array),
      tpot: numbers(tpot, Float64Array), prompt: numbers(prompt, Int32Array), output: numbers(output, Int32Array),
      tail: reply.tail, percentile: reply.percentile,
    };
    told([reply.missing, reply.left_out ? look.say("left_out", { count: showMany(reply.left_out, "request") }) : ""].filter(Boolean).join(" "));
    chosen = new Set();
    fill(cause, el("p", { class: "pl-hint" }, look.words.requests_hint));
    fill(lifeBox);
    measure(metric);
  }

  function measure(name) {
    metric = name;
    for (const button of choice.children) button.setAttribute("aria-pressed", String(button.dataset.metric === name));
    if (!known) return;
    plot.set(known.sent, known[name]);
    const tail = known.tail[name] ?? [];
    slow.disabled = !tail.length;
    legend.textContent = look.say(tail.length ? "requests_axis_slow" : "requests_axis", {
      metric: look.words[name], count: showMany(known.id.length, "request"), slow: showCount(tail.length), percentile: known.percentile ?? 99,
    });
    if (chosen.size) explain();
  }

  function choose(ids, add = false) {
    if (!known) return;
    chosen = new Set(add ? [...chosen, ...ids] : ids);
    plot.draw();
    if (!chosen.size) { fill(cause, el("p", { class: "pl-hint" }, look.words.requests_hint)); fill(lifeBox); return; }
    explain();
  }

  async function explain() {
    const mine = ++turn, ids = [...chosen];
    const reply = await ask("cause", { run, point: point.id, ids, metric }).catch((error) => ({ error }));
    if (mine !== turn) return;
    if (reply.error) { fill(cause, el("p", { class: "pl-hint" }, reply.error.message)); fill(lifeBox); return; }
    const longest = Math.max(...reply.who.map((one) => Object.values(one.parts).reduce((sum, ns) => sum + ns, 0)), 1);
    const shown = new Set(reply.who.flatMap((one) => Object.keys(one.parts)));
    fill(cause,
      el("h3", {}, headline(reply)),
      reply.who.map((one) => {
        const total = Object.values(one.parts).reduce((sum, ns) => sum + ns, 0);
        return el("div", { class: "pl-row" },
          el("span", { class: "pl-row-name" }, look.say(`who_${one.who}`, { count: showCount(one.count) })),
          el("div", { class: "pl-track" }, el("div", { class: "pl-stack", style: `width:${(total / longest) * 100}%` },
            Object.entries(one.parts).map(([name, ns]) => el("div", {
              class: "pl-part", title: `${wordOf(name)}: ${showTime(ns)}, ${showShare(ns / total)}`,
              style: `width:${(ns / total) * 100}%;${look.fill(colourOf(name), reply.cause && reply.cause !== name)}`,
            }, el("span", {}, wordOf(name)), el("em", {}, showTime(ns)))))),
          el("div", { class: "pl-value" }, showTime(total)));
      }),
      el("div", { class: "pl-legend" }, Object.keys(look.causes).filter((name) => shown.has(name)).map((name) =>
        el("span", { class: "pl-key" }, el("i", { class: "pl-swatch", style: `background:${colourOf(name)}` }), wordOf(name)))),
      reply.not_placed ? el("p", { class: "pl-hint" }, look.say("not_placed", { count: showMany(reply.not_placed, "request") })) : null,
      reply.lines.length > 1 ? el("div", { class: "pl-lines", role: "group", "aria-label": look.words.each }, el("span", {}, look.words.each),
        reply.lines.slice(0, 40).map((one) => el("button", {
          type: "button", class: "pl-chip", title: look.say("most_by", { cause: wordOf(one.cause) }), onclick: () => live(one.id),
        }, el("i", { class: "pl-swatch", style: `background:${colourOf(one.cause)}` }), `${one.id}`, el("small", {}, showTime(one.ns))))) : null);
    if (reply.lines.length) live(reply.lines[0].id); else fill(lifeBox);
  }

  function headline(reply) {
    const count = reply.who.find((one) => one.who === "chosen")?.count ?? 0, who = showMany(count, "request");
    if (!reply.cause) return look.say("no_cause", { who });
    return look.say("cause", { who, metric: look.words[metric], cause: wordOf(reply.cause), excess: showTime(reply.excess_ns) });
  }

  // One request's life

  async function live(id) {
    const mine = turn, reply = await ask("life", { run, point: point.id, id_of: id }).catch(() => null);
    if (!reply || mine !== turn) return;
    plot.point(known.id.indexOf(id));
    const canvas = el("canvas", { class: "pl-canvas", tabindex: 0, role: "application", "aria-label": look.say("life_label", { id }), "data-view": "steps-of-request" });
    const tip = el("div", { class: "pl-tip", hidden: true }), similar = el("div", { class: "pl-similar", role: "status" }, el("p", { class: "pl-hint" }, look.words.life_hint));
    const frame = el("div", { class: "pl-timeline" }, canvas, tip);
    fill(lifeBox, el("h3", {}, look.say("life", { id, span: showTime(reply.ns) })), frame, similar);
    paint(canvas, tip, frame, reply, similar);
  }

  function paint(canvas, tip, frame, life, similar) {
    const { steps, strip } = life, height = STRIP + STEPS + 46;
    let width = frame.clientWidth, at = -1, picked = -1;
    const begin = Math.min(0, ...steps.start), end = Math.max(life.ns, ...steps.end), most = Math.max(...steps.end.map((one, row) => one - steps.start[row]), 1);
    const x = (time) => LABELS + ((time - begin) / (end - begin || 1)) * (width - LABELS - 8);
    const base = STRIP + 18 + STEPS;
    const draw = perFrame(() => {
      if (!frame.isConnected) return;
      width = frame.clientWidth;
      const g = sharp(canvas, width, height), theme = look.theme();
      g.font = "11px system-ui, sans-serif";
      g.textBaseline = "middle";
      g.fillStyle = theme.muted;
      g.textAlign = "right";
      g.fillText(look.words.its_life, LABELS - 8, STRIP / 2);
      g.fillText(look.words.its_tokens, LABELS - 8, STRIP + 8);
      g.fillText(look.words.steps, LABELS - 8, base - STEPS / 2);
      for (const [name, from, to] of strip) {
        g.fillStyle = colourOf(name);
        g.fillRect(x(from), 2, Math.max(x(to) - x(from), 0.8), STRIP - 4);
        const word = wordOf(name);
        if (x(to) - x(from) > g.measureText(word).width + 10) {
          g.fillStyle = inkOn(colourOf(name));
          g.textAlign = "left";
          g.fillText(word, x(from) + 5, STRIP / 2);
        }
      }
      g.fillStyle = theme.muted;
      for (const time of life.tokens) g.fillRect(x(time), STRIP + 3, 0.8, 8);
      g.fillStyle = theme.card;
      g.fillRect(LABELS, base - STEPS, width - LABELS - 8, STEPS);
      steps.start.forEach((from, row) => {
        const left = x(from), wide = Math.max(x(steps.end[row]) - left, 1), high = ((steps.end[row] - from) / most) * (STEPS - 4);
        g.fillStyle = steps.prompt_tokens[row] ? colourOf("others_prefill") : "#0072b2";
        g.globalAlpha = picked >= 0 && row !== picked ? 0.45 : 1;
        g.fillRect(left, base - high, Math.max(wide - (wide > 4 ? 0.7 : 0), 0.8), high);
        g.globalAlpha = 1;
        if (row === at || row === picked) { g.strokeStyle = theme.ink; g.lineWidth = 1.5; g.strokeRect(left - 1, base - high - 1, wide + 2, high + 2); }
      });
      g.fillStyle = theme.muted;
      g.textAlign = "left";
      g.fillText(look.say("longest_step", { span: showTime(most) }), LABELS + 4, base + 14);
      g.textAlign = "right";
      g.fillText(look.words.steps_key, width - 10, base + 14);
      if (document.activeElement === canvas && canvas.matches(":focus-visible")) { g.strokeStyle = theme.accent; g.lineWidth = 2; g.strokeRect(1, 1, width - 2, height - 2); }
    });
    const under = (event) => {
      const place = event.clientX - canvas.getBoundingClientRect().left;
      return steps.start.findIndex((from, row) => place >= x(from) - 0.5 && place <= Math.max(x(steps.end[row]), x(from) + 1) + 0.5);
    };
    const tell = (row) => {
      tip.hidden = row < 0;
      if (row < 0) return;
      fill(tip, el("div", { class: "pl-tip-head" }, look.words.engine_step, el("b", {}, showTime(steps.end[row] - steps.start[row]))),
        el("dl", {}, [[look.words.batch, showCount(steps.batch[row])], [look.words.prompt_tokens, showCount(steps.prompt_tokens[row])],
          [look.words.waiting, showCount(steps.waiting[row])], [look.words.kv, steps.kv[row] === null ? "–" : showShare(steps.kv[row])]]
          .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
      const left = x(steps.start[row]);
      tip.style.left = `${left + 14 + tip.offsetWidth > width ? Math.max(left - tip.offsetWidth - 14, 2) : left + 14}px`;
      tip.style.bottom = "calc(100% - 22px)";
    };
    const take = async (row) => {
      picked = row;
      draw();
      if (row < 0) return;
      const like = await ask("similar", { run, point: point.id, step: steps.row[row] }).catch((error) => ({ error }));
      showSimilar(similar, like);
    };
    canvas.addEventListener("pointermove", (event) => { at = under(event); canvas.style.cursor = at >= 0 ? "pointer" : "default"; tell(at); draw(); });
    canvas.addEventListener("pointerleave", () => { at = -1; tip.hidden = true; draw(); });
    canvas.addEventListener("click", (event) => take(under(event)));
    canvas.addEventListener("focus", draw);
    canvas.addEventListener("blur", draw);
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by) at = Math.min(Math.max(at + by, 0), steps.start.length - 1);
      else if (event.key === "Enter") take(at); else return;
      event.preventDefault();
      event.stopPropagation();
      tell(at);
      draw();
    });
    const size = new ResizeObserver(draw);
    size.observe(frame);
    look.repaint.add(draw);
    draw();
  }

  function showSimilar(box, like) {
    if (like.error) { fill(box, el("p", { class: "pl-hint" }, like.error.message)); return; }
    const want = look.say("wanted_step", { phase: like.phase, batch: showCount(like.batch), prompt: showCount(like.prompt_tokens) });
    if (!like.steps.length) {
      const near = like.nearest ? look.say("nearest_step", { batch: showCount(like.nearest[0]), prompt: showCount(like.nearest[1]) }) : look.say("no_phase", { phase: like.phase });
      fill(box, el("p", { class: "pl-hint" }, `${want} ${look.words.none_similar} ${near}`));
      return;
    }
    fill(box, el("p", {}, `${want} ${look.words.similar}`), el("div", { class: "pl-lines" }, like.steps.slice(0, 30).map((step, at) =>
      el("button", { type: "button", class: "pl-chip pl-go", onclick: () => on.step(run, like.rank, step) }, look.say("go_step", { step }), el("small", {}, showTime(like.step_ns[at]))))));
  }

  return { root, open, draw: plot.draw, close: plot.close, state: () => ({ known, chosen: [...chosen], place: plot.place }) };
}
