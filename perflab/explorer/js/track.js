// The picture of a timeline: steps, axis, lanes, marks and overview, drawn from a state that is only read.

import { fitted, inkOn, showTime, ticks, unitOf } from "./dom.js";

export const GUTTER = 104;
export const STEPS = 18;
export const AXIS = 22;
export const LANE = 30;
export const HOST = 16;
export const GAP = 5;
export const RANK = 20;
export const OVERVIEW = 26;
const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

/** Draw a state of the timeline (see `draw` in timeline.js); `wide` is the width of its lanes, `x` places a time. */
export function paint(g, state) {
  const { data, view, limits, tile, over, places, width, height, pointer, drag, marked, focus, short, look, x, wide, hasFocus } = state;
  const theme = look.theme();
  g.font = FONT;
  g.textBaseline = "middle";
  drawLabels(g, theme);
  g.save();
  g.beginPath();
  g.rect(GUTTER, 0, wide, height);
  g.clip();
  drawSteps(g, theme);
  drawAxis(g, theme);
  drawLanes(g, theme);
  drawMarks(g, theme);
  g.restore();
  drawOverview(g, theme);
  drawFocus(g, theme);

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
      const from = Math.max(left, GUTTER), to = Math.min(right, GUTTER + wide);
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
    for (const at of ticks(low, high, wide / 110)) {
      const place = x(at * unit + base);
      g.fillStyle = theme.grid;
      g.fillRect(Math.round(place), STEPS + 2, 1, height - OVERVIEW - STEPS - 14);
      g.fillStyle = theme.muted;
      const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(Math.max((high - low) / 12, 1e-9)))));
      const text = `${at.toLocaleString("en-US", { maximumFractionDigits: digits })} ${word}`, half = g.measureText(text).width / 2;
      g.fillText(text, Math.min(Math.max(place, GUTTER + half), GUTTER + wide - half), y - 2);
    }
  }

  function alpha(code, hit) {
    if (look.searching()) return hit ? 1 : 0.16;
    const chosen = look.chosen();
    return !chosen.size || chosen.has(look.codes[code]) ? 1 : 0.14;
  }

  function drawLanes(g, theme) {
    for (const place of places) {
      g.fillStyle = theme.card;
      g.fillRect(GUTTER, place.top, wide, place.high);
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
      const broad = right - left, code = bars.code[at], hit = bars.hit[at] === 1;
      g.globalAlpha = alpha(code, hit);
      g.fillStyle = look.colour(code);
      if (!bars.only_named) {
        if (broad >= 1.5) {
          g.fillRect(left, place.top, Math.max(broad - (broad > 4 ? 0.7 : 0), 0.8), place.high);
        } else {
          // What is narrower than a pixel fills it as far as it lasts; what is too short to be seen still shows.
          const mine = Math.floor(left);
          if (mine !== column) { column = mine; filled = 0; }
          const part = Math.max(Math.min(broad, 1 - filled), 0.04) * place.high;
          g.fillRect(mine, place.top + place.high - filled * place.high - part, 1, part);
          filled = Math.min(filled + part / place.high, 0.96);
        }
      }
      if (hit && searching) {
        g.fillStyle = theme.mark;
        g.globalAlpha = 1;
        g.fillRect(left, place.top - 3, Math.max(broad, 1.5), 2.5);
      }
      if (focus && focus.rank === place.rank && focus.row === bars.row[at] && place.kind !== "host") {
        g.strokeStyle = theme.ink;
        g.lineWidth = 1.6;
        g.strokeRect(left - 1, place.top - 1, Math.max(broad, 2) + 2, place.high + 2);
      }
      const from = Math.max(left, GUTTER), room = Math.min(right, GUTTER + wide) - from - 8;
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
        const half = g.measureText(text).width / 2 + 6, middle = (left + right) / 2;
        g.fillStyle = theme.paper;
        g.fillRect(middle - half, STEPS + 3, 2 * half, AXIS - 6);
        g.textAlign = "center";
        g.fillStyle = theme.accent;
        g.fillText(text, middle, STEPS + AXIS - 10);
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
    const top = height - OVERVIEW - 4, whole = limits[1] - limits[0];
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
    if (!hasFocus) return;
    g.strokeStyle = theme.accent;
    g.lineWidth = 2;
    g.strokeRect(1, 1, width - 2, height - 2);
  }
}

/** The first place whose value is at least `wanted`. */
export function lowest(sorted, wanted) {
  let low = 0, high = sorted.length;
  while (low < high) { const middle = (low + high) >> 1; if (sorted[middle] < wanted) low = middle + 1; else high = middle; }
  return low;
}
