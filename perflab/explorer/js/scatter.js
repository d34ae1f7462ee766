// Points over time: hover, click, a dragged box, and the keyboard. Steps and requests are drawn with it.

import { el, fill, perFrame, sharp, ticks, unitOf } from "./dom.js";

const LEFT = 62, BOTTOM = 24, TOP = 10, RIGHT = 8, NEAR = 12;
const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

/**
 * @param given { label, height, yWord, xWord, colour(at), strong(at), front(at): drawn over the others, tip(at): nodes, theme(), pick(at),
 *                box(indices, added) or null, view: name for tests }
 */
export function scatter(given) {
  const canvas = el("canvas", { class: "pl-canvas", tabindex: 0, role: "application", "aria-label": given.label, "data-view": given.view });
  const tip = el("div", { class: "pl-tip", role: "tooltip", hidden: true });
  const root = el("div", { class: "pl-scatter" }, canvas, tip);
  const { height } = given;
  let width = 300, xs = [], ys = [], reach = [0, 1], top = 1, at = -1, pointer = null, drag = null, limit = null;

  const px = (value) => LEFT + ((value - reach[0]) / (reach[1] - reach[0])) * (width - LEFT - RIGHT);
  const py = (value) => height - BOTTOM - (value / top) * (height - BOTTOM - TOP);

  const draw = perFrame(() => {
    if (!root.isConnected) return;
    const g = sharp(canvas, width, height), theme = given.theme();
    g.font = FONT;
    g.textBaseline = "middle";
    axes(g, theme);
    const faint = [], strong = [];
    for (let one = 0; one < xs.length; one += 1) if (!Number.isNaN(ys[one])) (given.strong(one) ? strong : faint).push(one);
    // Thousands of points would hide one another: the more, the smaller and the fainter.
    const size = xs.length > 4000 ? 1.6 : xs.length > 600 ? 2.4 : 3.6;
    if (given.front) faint.sort((one, other) => given.front(one) - given.front(other));
    dots(g, faint, size, given.picked?.() ? 0.28 : xs.length > 600 ? 0.6 : 0.8);
    dots(g, strong, size + 0.9, 1);
    if (at >= 0 && at < xs.length) {
      g.strokeStyle = theme.ink;
      g.lineWidth = 2;
      g.beginPath();
      g.arc(px(xs[at]), py(ys[at]), size + 3.2, 0, 7);
      g.stroke();
    }
    if (drag?.moved) {
      g.fillStyle = theme.accent;
      g.globalAlpha = 0.14;
      g.fillRect(drag.x, drag.y, drag.to.x - drag.x, drag.to.y - drag.y);
      g.globalAlpha = 1;
      g.strokeStyle = theme.accent;
      g.lineWidth = 1;
      g.strokeRect(drag.x, drag.y, drag.to.x - drag.x, drag.to.y - drag.y);
    }
    if (document.activeElement === canvas && canvas.matches(":focus-visible")) {
      g.strokeStyle = theme.accent;
      g.lineWidth = 2;
      g.strokeRect(1, 1, width - 2, height - 2);
    }
  });

  function dots(g, some, size, alpha) {
    g.globalAlpha = alpha;
    let last = null;
    for (const one of some) {
      const colour = given.colour(one);
      if (colour !== last) { g.fillStyle = colour; last = colour; }
      g.beginPath();
      g.arc(px(xs[one]), py(ys[one]), size, 0, 6.2832);
      g.fill();
    }
    g.globalAlpha = 1;
  }

  function axes(g, theme) {
    const [unit, word] = unitOf(top / 1.5), [along, name] = unitOf((reach[1] - reach[0]) / 1.5);
    g.textAlign = "right";
    for (const value of ticks(0, top / unit, 4)) {
      const y = Math.round(py(value * unit));
      g.fillStyle = theme.grid;
      g.fillRect(LEFT, y, width - LEFT - RIGHT, 1);
      g.fillStyle = theme.muted;
      g.fillText(`${value.toLocaleString("en-US", { maximumFractionDigits: 3 })} ${word}`, LEFT - 8, y);
    }
    g.textAlign = "center";
    for (const value of ticks(reach[0] / along, reach[1] / along, (width - LEFT) / 90)) {
      const x = px(value * along);
      if (x < LEFT - 1 || x > width - 14) continue;
      g.fillStyle = theme.muted;
      g.fillText(`${value.toLocaleString("en-US", { maximumFractionDigits: 3 })} ${name}`, x, height - BOTTOM / 2);
    }
  }

  const nearest = (place) => {
    let best = -1, close = NEAR * NEAR;
    for (let one = 0; one < xs.length; one += 1) {
      const far = (px(xs[one]) - place.x) ** 2 + (py(ys[one]) - place.y) ** 2;
      if (far < close) { best = one; close = far; }
    }
    return best;
  };
  const local = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  function tell(one) {
    tip.hidden = one < 0;
    if (one < 0) return;
    fill(tip, given.tip(one));
    const x = px(xs[one]), wide = tip.offsetWidth;
    tip.style.left = `${x + 14 + wide > width ? Math.max(x - wide - 14, 2) : x + 14}px`;
    tip.style.top = `${Math.min(py(ys[one]) + 12, height - 20)}px`;
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    drag = { ...local(event), to: local(event), moved: false, add: event.shiftKey || event.ctrlKey || event.metaKey };
  });
  canvas.addEventListener("pointermove", (event) => {
    pointer = local(event);
    if (drag) {
      drag.to = pointer;
      if (given.box && Math.hypot(pointer.x - drag.x, pointer.y - drag.y) > 4) drag.moved = true;
      tip.hidden = true;
    } else {
      const one = nearest(pointer);
      canvas.style.cursor = one >= 0 ? "pointer" : given.box ? "crosshair" : "default";
      tell(one);
    }
    draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    const was = drag;
    drag = null;
    if (was?.moved) {
      const [left, right] = [was.x, was.to.x].sort((a, b) => a - b), [low, high] = [was.y, was.to.y].sort((a, b) => a - b);
      const inside = [];
      for (let one = 0; one < xs.length; one += 1) {
        const x = px(xs[one]), y = py(ys[one]);
        if (x >= left && x <= right && y >= low && y <= high) inside.push(one);
      }
      given.box(inside, was.add);
    } else if (was) {
      const one = nearest(local(event));
      at = one;
      given.pick(one, was.add);
    }
    draw();
  });
  canvas.addEventListener("pointercancel", () => { drag = null; draw(); });
  canvas.addEventListener("pointerleave", () => { if (!drag) { tip.hidden = true; draw(); } });
  canvas.addEventListener("blur", () => { tip.hidden = true; draw(); });
  canvas.addEventListener("focus", draw);
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !xs.length) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) at = Math.min(Math.max(at + by, 0), xs.length - 1);
    else if (event.key === "Home") at = 0;
    else if (event.key === "End") at = xs.length - 1;
    else if (event.key === "Enter" || event.key === " ") given.pick(at, event.shiftKey);
    else if (event.key === "Escape") { at = -1; given.pick(-1, false); } else return;
    event.preventDefault();
    event.stopPropagation();
    if (by && given.follows) given.pick(at, false);
    tell(at);
    draw();
  });

  const size = new ResizeObserver(() => {
    const wide = Math.floor(root.clientWidth);
    if (wide && wide !== width) { width = wide; draw(); }
  });
  size.observe(root);

  return {
    root, draw,
    /** Other points: positions along and up, in ns; `least` is the least height of the axis. */
    set(along, up, least = 0) {
      xs = along; ys = up; limit = least;
      let low = Infinity, high = -Infinity, most = limit;
      for (let one = 0; one < xs.length; one += 1) {
        if (xs[one] < low) low = xs[one];
        if (xs[one] > high) high = xs[one];
        if (ys[one] > most) most = ys[one];
      }
      if (!(high >= low)) { low = 0; high = 1; }
      const slack = (high - low || 1) * 0.02;
      reach = [low - slack, high + slack];
      top = (most || 1) * 1.06;
      at = -1;
      draw();
    },
    point(one) { at = one; draw(); },
    place: (one) => ({ x: px(xs[one]), y: py(ys[one]) }),
    close() { size.disconnect(); },
  };
}
