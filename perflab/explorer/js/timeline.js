// The timeline: lanes of device activity between two times, with zoom, pan, hover and marking of a stretch.

import { el, fill, fitted, inkOn, perFrame, sharp, showCount, showMany, showTime, ticks, unitOf } from "./dom.js";
import { newest, numbers } from "./link.js";

const GUTTER = 104, STEPS = 18, AXIS = 22, LANE = 30, HOST = 16, GAP = 5, RANK = 20, OVERVIEW = 26, MARGIN = 0.25;
const SHORTEST = 200;
const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

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
    const g = sharp(canvas, width, height), theme = look.theme();
    g.font = FONT;
    g.textBaseline = "middle";
    if (!data) return;
    drawLabels(g, theme);
    g.save();
    g.beginPath();
    g.rect(GUTTER, 0, plot(), height);
    g.clip();
    drawSteps(g, theme);
    drawAxis(g, theme);
    drawLanes(g, theme);
    drawMarks(g, theme);
    g.restore();
    drawOverview(g, theme);
    drawFocus(g, theme);
  });

  function drawLabels(g, theme) {
    g.textAlign = "right";
    let last = null;
    for (const place of places) {
      if (data.shown.length > 1 && place.rank !== last) {
        g.fillStyle = theme.muted;
        g.textAlign = "left";
        g.font = `600 ${FONT}`;
        g.fillText(`rank ${place.rank}`, 6, place.top - RANK / 2 - 1);
        g.font = FONT;
        g.textAlign = "right";
        last = place.rank;
      }
      g.fillStyle = theme.muted;
      g.fillText(fitted(g, place.label, GUTTER - 16), GUTTER - 8, place.top + place.high / 2);
    }
    g.fillText(look.words.steps, GUTTER - 8, STEPS / 2 + 1);
  }

  function drawSteps(g, theme) {
    const steps = data.shown[0]?.steps;
    if (!steps) return;
    const first = lowest(steps.start, view[0]) - 1;
    g.textAlign = "center";
    for (let at = Math.max(first, 0); at < steps.start.length && steps.start[at] < view[1]; at += 1) {
      const left = x(steps.start[at]), right = x(steps.start[at] + steps.dur[at]);
      if (right < GUTTER) continue;
      const chosen = steps.step[at] === data.step;
      g.fillStyle = look.phases[steps.phase[at]];
      g.globalAlpha = chosen ? 1 : 0.28;
      g.fillRect(left + 0.5, 2, Math.max(right - left - 1, 0.6), STEPS - 5);
      g.globalAlpha = 1;
      const from = Math.max(left, GUTTER), to = Math.min(right, GUTTER + plot());
      const text = `${steps.step[at]} ${look.phaseNames[steps.phase[at]]}`;
      g.fillStyle = chosen ? inkOn(look.phases[steps.phase[at]]) : theme.ink;
      const brief = [text, String(steps.step[at])].find((one) => g.measureText(one).width + 8 <= to - from);
      if (brief) g.fillText(brief, (from + to) / 2, STEPS / 2);
      if (right - left > 5) {
        g.fillStyle = theme.line;
        g.globalAlpha = 0.45;
        g.fillRect(Math.round(left), STEPS, 1, height - OVERVIEW - STEPS - 12);
        g.globalAlpha = 1;
      }
    }
  }

  function drawAxis(g, theme) {
    const base = data.zero ?? 0, [unit, word] = unitOf((view[1] - view[0]) / 2);
    const low = (view[0] - base) / unit, high = (view[1] - base) / unit, y = STEPS + AXIS - 8;
    g.textAlign = "center";
    for (const at of ticks(low, high, plot() / 110)) {
      const place = x(at * unit + base);
      g.fillStyle = theme.grid;
      g.fillRect(Math.round(place), STEPS + 2, 1, height - OVERVIEW - STEPS - 14);
      g.fillStyle = theme.muted;
      const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(Math.max((high - low) / 12, 1e-9)))));
      g.fillText(`${at.toLocaleString("en-US", { maximumFractionDigits: digits })} ${word}`, place, y - 2);
    }
  }

  const alpha = (code, hit) => {
    if (look.searching()) return hit ? 1 : 0.16;
    const chosen = look.chosen();
    return !chosen.size || chosen.has(look.codes[code]) ? 1 : 0.14;
  };

  function drawLanes(g, theme) {
    for (const place of places) {
      g.fillStyle = theme.card;
      g.fillRect(GUTTER, place.top, plot(), place.high);
    }
    if (!tile || tile.run !== data.run || String(tile.ranks) !== String(data.ranks)) return;
    for (const columns of tile.columns) drawColumns(g, theme, columns, false);
    for (const columns of tile.found) drawColumns(g, theme, columns, true);
    for (const bars of tile.bars) drawBars(g, theme, bars);
  }

  /** A column is filled as far as it is busy, by category; its height is the lane's. */
  function drawColumns(g, theme, columns, found) {
    const place = places[columns.lane], each = (tile.end - tile.start) / tile.width, dim = look.searching() && !found;
    if (!place) return;
    let last = -1, filled = 0;
    for (let at = 0; at < columns.column.length; at += 1) {
      const column = columns.column[at], code = columns.code[at];
      if (column !== last) { filled = 0; last = column; }
      const from = tile.start + Math.floor((column * (tile.end - tile.start)) / tile.width);
      const left = Math.round(x(from)), right = Math.max(Math.round(x(from + each)), left + 1);
      const part = Math.min(columns.ns[at] / each, 1 - filled) * place.high;
      const bottom = place.top + place.high - filled * place.high;
      filled += part / place.high;
      if (right < GUTTER || left > width) continue;
      g.fillStyle = found ? theme.mark : look.colour(code);
      g.globalAlpha = found ? 1 : dim ? 0.16 : alpha(code, false);
      g.fillRect(left, bottom - part, right - left, part);
      if (found && columns.count[at]) g.fillRect(left, place.top - 3, right - left, 2.5);
    }
    g.globalAlpha = 1;
  }

  function drawBars(g, theme, bars) {
    const place = places[bars.lane];
    if (!place) return;
    let column = -1, filled = 0;
    const searching = look.searching();
    for (let at = 0; at < bars.start.length; at += 1) {
      const left = x(bars.start[at]), right = x(bars.end[at]);
      if (right < GUTTER - 1 || left > width) continue;
      const wide = right - left, code = bars.code[at], hit = bars.hit[at] === 1;
      g.globalAlpha = alpha(code, hit);
      g.fillStyle = look.colour(code);
      if (!bars.only_named) {
        if (wide >= 1.5) {
          g.fillRect(left, place.top, Math.max(wide - (wide > 4 ? 0.7 : 0), 0.8), place.high);
        } else {
          // What is narrower than a pixel fills it as far as it lasts; what is too short to be seen still shows.
          const mine = Math.floor(left);
          if (mine !== column) { column = mine; filled = 0; }
          const part = Math.max(Math.min(wide, 1 - filled), 0.04) * place.high;
          g.fillRect(mine, place.top + place.high - filled * place.high - part, 1, part);
          filled = Math.min(filled + part / place.high, 0.96);
        }
      }
      if (hit && searching) {
        g.fillStyle = theme.mark;
        g.globalAlpha = 1;
        g.fillRect(left, place.top - 3, Math.max(wide, 1.5), 2.5);
      }
      if (focus && focus.rank === place.rank && focus.row === bars.row[at] && place.kind !== "host") {
        g.strokeStyle = theme.ink;
        g.lineWidth = 1.6;
        g.strokeRect(left - 1, place.top - 1, Math.max(wide, 2) + 2, place.high + 2);
      }
      const from = Math.max(left, GUTTER), room = Math.min(right, GUTTER + plot()) - from - 8;
      if (room > 22 && place.high >= LANE - 2) nameBar(g, bars, at, place, from, room, code, hit);
    }
    g.globalAlpha = 1;
  }

  function nameBar(g, bars, at, place, from, room, code, hit) {
    const text = fitted(g, short.get(`${place.rank}/${bars.name[at]}`) ?? "", room);
    if (!text) return;
    const strong = alpha(code, hit) > 0.5;
    g.globalAlpha = strong ? 1 : 0.55;
    g.fillStyle = strong ? inkOn(look.colour(code)) : look.theme().ink;
    g.textAlign = "left";
    g.fillText(text, from + 4, place.top + place.high / 2 + 0.5);
  }

  function drawMarks(g, theme) {
    const bottom = height - OVERVIEW - 10;
    const stretch = drag?.kind === "mark" ? [drag.from, drag.to].sort((a, b) => a - b) : marked;
    if (stretch) {
      const [left, right] = stretch.map(x);
      g.fillStyle = theme.accent;
      g.globalAlpha = 0.16;
      g.fillRect(left, STEPS, right - left, bottom - STEPS);
      g.globalAlpha = 1;
      g.fillRect(left, STEPS, 1, bottom - STEPS);
      g.fillRect(right, STEPS, 1, bottom - STEPS);
      const text = showTime(stretch[1] - stretch[0]);
      if (right - left > g.measureText(text).width + 12) {
        g.textAlign = "center";
        g.fillStyle = theme.accent;
        g.fillText(text, (left + right) / 2, STEPS + AXIS - 10);
      }
    }
    if (pointer && !drag && pointer.y < bottom) {
      g.fillStyle = theme.muted;
      g.globalAlpha = 0.5;
      g.fillRect(Math.round(pointer.x), STEPS, 1, bottom - STEPS);
      g.globalAlpha = 1;
    }
  }

  function drawOverview(g, theme) {
    const top = height - OVERVIEW - 4, whole = limits[1] - limits[0], wide = plot();
    g.fillStyle = theme.card;
    g.fillRect(GUTTER, top, wide, OVERVIEW);
    if (over && over.run === data.run) {
      let last = -1, filled = 0;
      const each = whole / over.width;
      for (let at = 0; at < over.column.length; at += 1) {
        if (over.column[at] !== last) { last = over.column[at]; filled = 0; }
        const left = GUTTER + Math.round((over.column[at] / over.width) * wide);
        const right = GUTTER + Math.round(((over.column[at] + 1) / over.width) * wide);
        const part = Math.min(over.ns[at] / each, 1 - filled) * OVERVIEW;
        g.fillStyle = look.colour(over.code[at]);
        g.globalAlpha = 0.85 * alpha(over.code[at], false);
        g.fillRect(left, top + OVERVIEW - filled * OVERVIEW - part, Math.max(right - left, 1), part);
        filled += part / OVERVIEW;
      }
      g.globalAlpha = 1;
    }
    const left = GUTTER + ((view[0] - limits[0]) / whole) * wide, right = GUTTER + ((view[1] - limits[0]) / whole) * wide;
    g.fillStyle = theme.paper;
    g.globalAlpha = 0.62;
    g.fillRect(GUTTER, top, Math.max(left - GUTTER, 0), OVERVIEW);
    g.fillRect(Math.min(right, GUTTER + wide), top, Math.max(GUTTER + wide - right, 0), OVERVIEW);
    g.globalAlpha = 1;
    g.strokeStyle = theme.accent;
    g.lineWidth = 1.5;
    const from = Math.max(left, GUTTER + 0.75);
    g.strokeRect(from, top + 0.75, Math.max(Math.min(right, GUTTER + wide - 0.75) - from, 2), OVERVIEW - 1.5);
    g.fillStyle = theme.muted;
    g.textAlign = "right";
    g.fillText(look.words.whole, GUTTER - 8, top + OVERVIEW / 2);
  }

  function drawFocus(g, theme) {
    if (document.activeElement !== canvas || !canvas.matches(":focus-visible")) return;
    g.strokeStyle = theme.accent;
    g.lineWidth = 2;
    g.strokeRect(1, 1, width - 2, height - 2);
  }

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

/** The first place whose value is at least `wanted`. */
export function lowest(sorted, wanted) {
  let low = 0, high = sorted.length;
  while (low < high) { const middle = (low + high) >> 1; if (sorted[middle] < wanted) low = middle + 1; else high = middle; }
  return low;
}
