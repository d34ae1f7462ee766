// Kernel names by time, a search in them, and the way from one occurrence to the next.

import { el, fill, showCount, showShare, showTime } from "./dom.js";
import { newest } from "./link.js";

/**
 * @param now { search(): {text, pattern}, where(): {run, ranks, categories, scope}, scopes: [[value, word]] }
 * @param on  { search(text, pattern), jump(by, name), scope(value) }
 */
export function kernels(ask, look, now, on) {
  const box = el("input", {
    type: "search", class: "pl-search", placeholder: look.words.search_hint, "aria-label": look.words.search, spellcheck: "false",
    autocomplete: "off",
  });
  const pattern = el("button", { type: "button", class: "pl-toggle pl-mono", title: look.words.pattern, "aria-label": look.words.pattern, "aria-pressed": "false" }, ".*");
  const back = el("button", { type: "button", class: "pl-tool", "aria-label": look.words.previous, title: look.words.previous, onclick: () => on.jump(-1) }, "‹");
  const ahead = el("button", { type: "button", class: "pl-tool", "aria-label": look.words.next, title: look.words.next, onclick: () => on.jump(1) }, "›");
  const scope = el("select", { "aria-label": look.words.scope, onchange: () => on.scope(scope.value) },
    now.scopes.map(([value, word]) => el("option", { value }, word)));
  const told = el("span", { class: "pl-found", role: "status" });
  const body = el("tbody");
  const table = el("table", { class: "pl-table" },
    el("thead", {}, el("tr", {}, [["kernel", ""], ["count", "n"], ["time", "n"], ["mean", "n"], ["share", "n"]].map(([word, kind]) =>
      el("th", { class: kind ? "pl-num" : "", scope: "col" }, look.words[`column_${word}`])))), body);
  const root = el("section", { class: "pl-kernels", "data-view": "kernels" },
    el("div", { class: "pl-tools" }, el("h3", {}, look.words.kernels), box, pattern, back, ahead, told, el("span", { class: "pl-grow" }), scope),
    el("div", { class: "pl-scroll", tabindex: 0 }, table));

  box.addEventListener("input", () => on.search(box.value, pattern.getAttribute("aria-pressed") === "true"));
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    on.jump(event.shiftKey ? -1 : 1);
  });
  pattern.addEventListener("click", () => {
    pattern.setAttribute("aria-pressed", String(pattern.getAttribute("aria-pressed") !== "true"));
    on.search(box.value, pattern.getAttribute("aria-pressed") === "true");
  });

  const fetch = newest((asked) => ask("kernels", asked), (reply, asked, error) => {
    box.classList.toggle("pl-wrong", Boolean(error));
    if (error) { told.textContent = error.message; return; }
    show(reply, asked);
  });

  function show(reply, asked) {
    const searching = Boolean(asked.text);
    back.disabled = ahead.disabled = !searching;
    told.textContent = searching
      ? look.say("found", { names: showCount(reply.names), count: showCount(reply.count), share: reply.ns ? showShare(reply.found_ns / reply.ns) : "" })
      : "";
    const longest = Math.max(...reply.rows.map((row) => row.ns), 1);
    fill(body, reply.rows.map((row) => {
      const colour = look.colour(look.codes.indexOf(row.category));
      return el("tr", {},
        el("td", {}, el("button", {
          type: "button", class: "pl-name", title: row.name, "aria-label": look.say("show_next", { name: row.short }), onclick: () => on.jump(1, row.name),
        }, el("i", { class: "pl-swatch", style: `background:${colour}` }), el("span", {}, row.short))),
        el("td", { class: "pl-num" }, showCount(row.count)),
        el("td", { class: "pl-num pl-barred" }, el("i", { style: `width:${(row.ns / longest) * 100}%;background:${colour}` }), el("span", {}, showTime(row.ns))),
        el("td", { class: "pl-num" }, showTime(row.ns / Math.max(row.count, 1))),
        el("td", { class: "pl-num" }, showShare(row.share)));
    }), reply.rows.length ? null : el("tr", {}, el("td", { colspan: 5, class: "pl-none" }, searching ? look.words.nothing_found : look.words.nothing_ran)),
    reply.names > reply.rows.length ? el("tr", {}, el("td", { colspan: 5, class: "pl-none" }, look.say("more_names", { count: showCount(reply.names - reply.rows.length) }))) : null);
  }

  return {
    root,
    follow() {
      const { text, pattern: on_ } = now.search();
      if (document.activeElement !== box) box.value = text;
      pattern.setAttribute("aria-pressed", String(on_));
      const where = now.where();
      if (where) fetch({ ...where, text, pattern: on_ });
    },
    /** How far the walk through what was found has come. */
    at(number, count) { told.textContent = look.say("occurrence", { number: showCount(number), count: showCount(count) }); },
    scope(value) { scope.value = value; },
  };
}
