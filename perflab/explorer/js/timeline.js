// The timeline: lanes of device activity between two times, with zoom, pan, hover and marking of a stretch.

import { el, fill, perFrame, sharp, showCount, showMany, showTime } from "./dom.js";
import { newest, numbers } from "./link.js";
import { AXIS, GAP, GUTTER, HOST, LANE, OVERVIEW, RANK, STEPS, lowest, paint } from "./track.js";

const MARGIN = 0.25, SHORTEST = 200;

/**
 * @param ask      question to the kernel
 * @param look     { words, colours: by code, codes, theme(), chosen(): highlighted categories, searching() }
 * @param on       { span(a, b), marked(a, b | null), detail(rank, row) }
 */
export function timeline(ask, look, on) {
  const canvas = el("canvas", {
    class: "pl-canvas", tabindex: 0, role: "application", "aria-label": look.words.timeline_label, "data-view": "timeline",
  });
  const tip = el("div", { class: "pl-tip", role: "tooltip", hidden: true });
  const told = el("div", { class: "pl-told", "aria-live": "polite" });
  const root = el("div", { class: "pl-timeline" }, canvas, tip, told);
  const names = new Map(), short = new Map();
  let data = null, view = [0, 1], limits = [0, 1], tile = null, over = null, places = [], width = 600, height = 100;
  let pointer = null, drag = null, marked = null, focus = null, wantedNames = new Set();

  const plot = () => Math.max(width - GUTTER - 2, 50);
  const x = (time) => GUTTER + ((time - view[0]) / (view[1] - view[0])) * plot();
  const time = (at) => view[0] + ((at - GUTTER) / plot()) * (view[1] - view[0]);

  // Data

  const fetch = newest(
    (asked) => ask("view", asked),
    (reply, asked) => {
      if (!reply) return;
      tile = { ...asked, ...unpack(reply) };
      draw();
      report();
      if (!covers()) want();
      learn();
    },
  );
  const want = () => {
    if (!data) return;
    const span = view[1] - view[0], margin = Math.round(plot() * MARGIN), each = span / plot();
    fetch({
      run: data.run, ranks: data.ranks, start: Math.floor(view[0] - margin * each), end: Math.ceil(view[1] + margin * each),
      width: Math.round(plot()) + 2 * margin,
    });
  };
  const covers = () => {
    if (!tile || tile.run !== data.run || String(tile.ranks) !== String(data.ranks)) return false;
    const each = (tile.end - tile.start) / tile.width, mine = (view[1] - view[0]) / plot();
    return tile.start <= view[0] && tile.end >= view[1] && Math.abs(each / mine - 1) < 0.01;
  };

  function unpack(reply) {
    const bars = reply.bars.map((one, at) => {
      const [start, end, code, name, row, hit] = reply.buffers.slice(6 * at, 6 * at + 6);
      return {
        ...one, start: numbers(start, Float64Array), end: numbers(end, Float64Array), code: numbers(code, Uint8Array),
        name: numbers(name, Uint32Array), row: numbers(row, Uint32Array), hit: numbers(hit, Uint8Array),
      };
    });
    const rest = reply.buffers.slice(6 * reply.bars.length);
    const columns = [...reply.columns, ...reply.found].map((one, at) => {
      const [column, code, count, ns] = rest.slice(4 * at, 4 * at + 4);
      return {
        ...one, column: numbers(column, Uint16Array), code: numbers(code, Uint8Array), count: numbers(count, Uint32Array),
        ns: numbers(ns, ns.byteLength === count.byteLength ? Uint32Array : Float64Array),
      };
    });
    return { bars, columns: columns.slice(0, reply.columns.length), found: columns.slice(reply.columns.length), total: reply.total };
  }

  async function learn() {
    const unknown = [];
    for (const bars of tile.bars) {
      const rank = places[bars.lane]?.rank;
      for (const name of bars.name) if (!names.has(`${rank}/${name}`) && !wantedNames.has(`${rank}/${name}`)) {
        wantedNames.add(`${rank}/${name}`);
        unknown.push([rank, name]);
      }
    }
    if (!unknown.length) return;
    const reply = await ask("names", { run: data.run, names: unknown }).catch(() => null);
    if (!reply) return;
    reply.names.forEach(([full, brief], at) => {
      names.set(unknown[at].join("/"), full);
      short.set(unknown[at].join("/"), brief);
    });
    draw();
  }

  // Drawing

  function layOut() {
    places = [];
    let top = STEPS + AXIS;
    for (const rank of data?.shown ?? []) {
      if (data.shown.length > 1) top += RANK;
      for (const lane of rank.lanes) {
        const high = lane.kind === "host" ? HOST : LANE;
        places.push({ ...lane, rank: rank.rank, top, high });
        top += high + GAP;
      }
    }
    height = Math.max(top + 6 + OVERVIEW + 8, 150);
  }

  const draw = perFrame(() => {
    if (!root.isConnected) return;
    const g = sharp(canvas, width, height);
    if (!data) return;
    paint(g, {
      data, view, limits, tile, over, places, width, height, pointer, drag, marked, focus, short, look, x, wide: plot(),
      hasFocus: document.activeElement === canvas && canvas.matches(":focus-visible"),
    });
  });

  // What is under the pointer

  function under(at) {
    const place = places.find((one) => at.y >= one.top - 2 && at.y < one.top + one.high + 2);
    if (!place || !tile || at.x < GUTTER) return null;
    const lane = places.indexOf(place), when = time(at.x), slack = (view[1] - view[0]) / plot();
    let best = null;
    for (const bars of tile.bars.filter((one) => one.lane === lane)) {
      for (let one = 0; one < bars.start.length; one += 1) {
        const far = when < bars.start[one] ? bars.start[one] - when : when > bars.end[one] ? when - bars.end[one] : 0;
        if (far <= slack && (!best || far < best.far || (far === best.far && bars.start[one] > best.bars.start[best.at])))
          best = { bars, at: one, far };
      }
    }
    if (best) return { place, bar: best };
    const columns = tile.columns.find((one) => one.lane === lane);
    if (!columns) return { place };
    const column = Math.floor(((when - tile.start) / (tile.end - tile.start)) * tile.width), parts = [];
    for (let one = 0; one < columns.column.length; one += 1) if (columns.column[one] === column)
      parts.push({ code: columns.code[one], count: columns.count[one], ns: columns.ns[one] });
    return { place, parts, each: (tile.end - tile.start) / tile.width };
  }

  function tell(found) {
    if (!found || (!found.bar && !found.parts?.length)) { tip.hidden = true; return; }
    if (found.bar) {
      const { bars, at } = found.bar, key = `${found.place.rank}/${bars.name[at]}`;
      const code = bars.code[at], word = look.word(code);
      fill(
        tip,
        el("div", { class: "pl-tip-head" }, el("i", { class: "pl-swatch", style: `background:${look.colour(code)}` }), word,
          el("b", {}, showTime(bars.end[at] - bars.start[at]))),
        el("div", { class: "pl-tip-name" }, names.get(key) ?? "…"),
        el("dl", { class: "pl-tip-more" }),
      );
      more(found.place, bars.row[at]);
    } else {
      const count = found.parts.reduce((sum, one) => sum + one.count, 0);
      fill(
        tip,
        el("div", { class: "pl-tip-head" }, look.say("stands_for", { count: showCount(count), span: showTime(found.each) })),
        el("dl", { class: "pl-tip-more" }, found.parts.sort((a, b) => b.ns - a.ns).flatMap((one) => [
          el("dt", {}, el("i", { class: "pl-swatch", style: `background:${look.colour(one.code)}` }), look.word(one.code)),
          el("dd", {}, `${showTime(one.ns)}, ${showMany(one.count, "start")}`),
        ])),
      );
    }
    tip.hidden = false;
    const box = root.getBoundingClientRect(), wide = tip.offsetWidth;
    const left = Math.min(Math.max(pointer.x + 14, 4), box.width - wide - 4);
    tip.style.left = `${pointer.x + 14 + wide > box.width ? Math.max(pointer.x - wide - 14, 4) : left}px`;
    tip.style.top = `${pointer.y + 18}px`;
  }

  let asked = null;
  async function more(place, row) {
    const key = `${data.run}/${place.rank}/${place.kind === "host" ? "host" : ""}/${row}`;
    if (asked === key) { if (more.known?.key === key) showMore(more.known.facts); return; }
    asked = key;
    const reply = await ask("detail", { run: data.run, rank: place.rank, row, host: place.kind === "host" }).catch(() => null);
    if (!reply || asked !== key) return;
    more.known = { key, facts: reply.facts };
    showMore(reply.facts);
  }
  function showMore(facts) {
    const list = tip.querySelector("dl");
    if (list) fill(list, facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  }

  // Moving

  function show(a, b, { quiet = false } = {}) {
    let span = Math.min(Math.max(b - a, SHORTEST), (limits[1] - limits[0]) * 1.04);
    const slack = Math.max((limits[1] - limits[0]) * 0.02, span * 0.5);
    let start = a;
    start = Math.min(Math.max(start, limits[0] - slack), limits[1] + slack - span);
    view = [start, start + span];
    draw();
    if (!covers()) want();
    if (!quiet) on.span(view[0], view[1]);
    report();
  }
  const zoom = (factor, at = (view[0] + view[1]) / 2) => show(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
  const pan = (share) => show(view[0] + share * (view[1] - view[0]), view[1] + share * (view[1] - view[0]));
  const home = () => on.home();
  const report = (() => {
    let timer = 0;
    return () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (!data) return;
        const base = data.zero ?? 0;
        told.textContent = look.say("shown", {
          span: showTime(view[1] - view[0]), from: showTime(view[0] - base), count: tile ? showCount(countShown()) : "…",
        });
      }, 160);
    };
  })();

  /** Activities of the device in the view; a column at its border counts as a whole. */
  function countShown() {
    let count = 0;
    const each = (tile.end - tile.start) / tile.width, isDevice = (one) => places[one.lane] && places[one.lane].kind !== "host";
    for (const bars of tile.bars.filter((one) => !one.only_named && isDevice(one)))
      for (let at = 0; at < bars.start.length; at += 1) if (bars.end[at] > view[0] && bars.start[at] < view[1]) count += 1;
    for (const columns of tile.columns.filter(isDevice))
      for (let at = 0; at < columns.column.length; at += 1) {
        const from = tile.start + columns.column[at] * each;
        if (from + each > view[0] && from < view[1]) count += columns.count[at];
      }
    return count;
  }

  canvas.addEventListener("wheel", (event) => {
    if (!data) return;
    event.preventDefault();
    const at = local(event);
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / plot());
    else zoom(Math.exp(Math.max(Math.min(event.deltaY, 120), -120) * 0.0022), time(Math.max(at.x, GUTTER)));
  }, { passive: false });

  const local = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const inOverview = (at) => at.y >= height - OVERVIEW - 6;
  const ofOverview = (at) => limits[0] + ((at.x - GUTTER) / plot()) * (limits[1] - limits[0]);

  canvas.addEventListener("pointerdown", (event) => {
    if (!data || event.button !== 0) return;
    canvas.focus({ preventScroll: true });
    const at = local(event);
    canvas.setPointerCapture(event.pointerId);
    tip.hidden = true;
    if (inOverview(at)) {
      drag = { kind: "overview", span: view[1] - view[0] };
      move(at);
    } else if (event.shiftKey || look.marking()) drag = { kind: "mark", from: time(at.x), to: time(at.x) };
    else drag = { kind: "pan", x: at.x, view: [...view], moved: false };
  });
  function move(at) {
    if (drag.kind === "overview") { const middle = ofOverview(at); show(middle - drag.span / 2, middle + drag.span / 2); }
    if (drag.kind === "mark") { drag.to = time(Math.max(at.x, GUTTER)); draw(); }
    if (drag.kind === "pan") {
      if (Math.abs(at.x - drag.x) > 3) drag.moved = true;
      const shift = ((drag.x - at.x) / plot()) * (drag.view[1] - drag.view[0]);
      if (drag.moved) show(drag.view[0] + shift, drag.view[1] + shift);
    }
  }
  canvas.addEventListener("pointermove", (event) => {
    pointer = local(event);
    if (drag) move(pointer); else { tell(under(pointer)); draw(); }
    canvas.style.cursor = drag?.kind === "pan" && drag.moved ? "grabbing" : look.marking() || event.shiftKey ? "crosshair" : "default";
  });
  canvas.addEventListener("pointerup", (event) => {
    const at = local(event), was = drag;
    drag = null;
    if (was?.kind === "mark") mark(Math.min(was.from, was.to), Math.max(was.from, was.to), (Math.abs(was.to - was.from) / (view[1] - view[0])) * plot() > 3);
    if (was?.kind === "pan" && !was.moved) click(at);
    draw();
  });
  canvas.addEventListener("pointercancel", () => { drag = null; draw(); });
  canvas.addEventListener("pointerleave", () => { if (drag) return; pointer = null; tip.hidden = true; draw(); });
  canvas.addEventListener("dblclick", home);

  function mark(a, b, real) {
    marked = real ? [a, b] : null;
    on.marked(marked);
    draw();
  }
  function click(at) {
    if (at.y < STEPS) {
      const steps = data.shown[0]?.steps, place = steps ? lowest(steps.start, time(at.x) + 1e-9) - 1 : -1;
      if (place >= 0 && time(at.x) < steps.start[place] + steps.dur[place]) on.step(steps.step[place]);
      return;
    }
    const found = under(at);
    focus = found?.bar && found.place.kind !== "host" ? { rank: found.place.rank, row: found.bar.bars.row[found.bar.at] } : null;
    if (focus) on.chosen?.(names.get(`${focus.rank}/${found.bar.bars.name[found.bar.at]}`));
    else if (marked) mark(0, 0, false);
  }

  canvas.addEventListener("keydown", (event) => {
    const keys = {
      ArrowLeft: () => pan(-0.12), ArrowRight: () => pan(0.12), ArrowUp: () => zoom(0.7), ArrowDown: () => zoom(1 / 0.7),
      "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), Home: home, "0": home,
      End: () => show(...limits), Escape: () => { mark(0, 0, false); focus = null; draw(); },
      "[": () => on.nextStep(-1), "]": () => on.nextStep(1), n: () => on.occurrence(1), p: () => on.occurrence(-1),
      s: () => mark(view[0], view[1], true),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key] || !data) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  });
  canvas.addEventListener("focus", draw);
  canvas.addEventListener("blur", draw);

  const size = new ResizeObserver(() => {
    const wide = Math.floor(root.clientWidth);
    if (!wide || wide === width) return;
    width = wide;
    overview();
    draw();
    want();
  });
  size.observe(root);

  async function overview() {
    if (!data) return;
    const asked = { run: data.run, ranks: data.ranks, start: limits[0], end: limits[1], width: Math.max(Math.round(plot()), 50) };
    const reply = await ask("overview", asked).catch(() => null);
    if (!reply) return;
    const [column, code, ns] = reply.buffers;
    over = { ...asked, column: numbers(column, Uint32Array), code: numbers(code, Uint8Array), ns: numbers(ns, Float64Array) };
    draw();
  }

  return {
    root, draw, show, zoom, home,
    /** Other data: `{ run, ranks, shown: [{rank, lanes, steps}], window, step, zero }`. */
    set(given) {
      const other = !data || data.run !== given.run || String(data.ranks) !== String(given.ranks);
      if (data?.run !== given.run) { names.clear(); short.clear(); wantedNames = new Set(); marked = null; focus = null; asked = null; }
      data = given;
      limits = [...given.window];
      layOut();
      if (other) { tile = null; overview(); want(); }
      draw();
    },
    again() { tile = null; want(); draw(); },
    mark(a, b) { mark(a, b, a !== null && b > a); },
    focusOn(rank, row) { focus = { rank, row }; draw(); },
    state: () => ({ view, marked, tile, places, width, height, plot: plot(), gutter: GUTTER }),
    isFresh: () => Boolean(data) && covers(),
    close() { size.disconnect(); },
  };
}
