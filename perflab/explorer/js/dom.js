// Elements, words and numbers. Text from traces only ever goes through textContent.

export const NS = { us: 1e3, ms: 1e6, s: 1e9 };

/** An element with attributes, listeners (`on...`) and children; strings become text. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("aria-") && typeof value === "boolean") made.setAttribute(name, String(value));
    else if (value === undefined || value === null || value === false) continue;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") made.style.cssText = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A sentence of the catalogue with its {fields} filled in. */
export function say(words, name, fields = {}) {
  return (words[name] ?? name).replace(/\{(\w+)\}/g, (whole, field) => (field in fields ? String(fields[field]) : whole));
}

/** Three significant digits and the unit that suits: as perflab.units.show_time. */
export function showTime(ns) {
  const size = Math.abs(ns);
  for (const [unit, name] of [[NS.s, "s"], [NS.ms, "ms"], [NS.us, "µs"]]) {
    if (size < unit) continue;
    const value = ns / unit, digits = Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
    return `${value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "\u2212")} ${name}`;
  }
  return `${String(Math.round(ns)).replace("-", "\u2212")} ns`;
}

export function showCount(count) {
  return Math.round(count).toLocaleString("en-US");
}

/** One or several: `1 kernel`, `2 kernels`. */
export function showMany(count, word) {
  return `${showCount(count)} ${word}${count === 1 ? "" : "s"}`;
}

export function showShare(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "";
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return `${(share * 100).toFixed(1)} %`;
}

/** Round steps for an axis: about `most` of them between two values. */
export function ticks(low, high, most) {
  const raw = (high - low) / Math.max(most, 1);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

/** The unit an axis is written in. */
export function unitOf(ns) {
  return ns >= NS.s ? [NS.s, "s"] : ns >= NS.ms ? [NS.ms, "ms"] : ns >= NS.us ? [NS.us, "µs"] : [1, "ns"];
}

/** Black or white, whichever stands out on a colour. */
export function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.36 ? "#ffffff" : "#1f2329";
}

/** Call at most once a frame, with the latest arguments. */
export function perFrame(draw) {
  let wanted = false;
  return () => {
    if (wanted) return;
    wanted = true;
    requestAnimationFrame(() => { wanted = false; draw(); });
  };
}

/** Call when nothing was asked for some time. */
export function later(wait, run) {
  let timer = 0;
  const ask = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => { timer = 0; run(...given); }, wait);
  };
  return Object.assign(ask, { waits: () => timer !== 0 });
}

/** A canvas as sharp as the screen; returns its context with one unit a CSS pixel. */
export function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** A text as long as there is room; its end is left out. */
export function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle; else high = middle - 1;
  }
  return low > 2 ? `${text.slice(0, low)}…` : "";
}
