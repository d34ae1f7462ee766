// The breakdown of the chosen phase: a bar a run and rank, by category; the parts of a bar are buttons.

import { el, fill, showShare, showTime } from "./dom.js";

/** @param on { row(run, rank), category(name) } */
export function bars(look, on) {
  const root = el("div", { class: "pl-bars", "data-view": "bars" });

  function part(row, name, ns, base, chosen) {
    const colour = name === "idle" ? look.theme().idle : look.colour(look.codes.indexOf(name)), share = ns / row.ns;
    const word = look.names[name] ?? name, faded = chosen.size && !chosen.has(name) && name !== "idle";
    const text = `${word}: ${showTime(ns / Math.max(row.steps, 1))}, ${showShare(share)}`;
    return el("button", {
      class: "pl-part", type: "button", title: text, "aria-label": text, "aria-pressed": chosen.has(name), disabled: name === "idle",
      style: `width:${(ns / base) * 100}%;${look.fill(colour, faded)}`,
      onclick: () => on.category(name),
    }, el("span", {}, word), el("em", {}, showShare(share)));
  }

  return {
    root,
    /** @param rows as the kernel tells them; `now` { run, ranks, phase, categories } */
    set(rows, now, waiting) {
      // One scale: the longest mean step, so that bars of different runs compare.
      const mean = (row) => row.ns / Math.max(row.steps, 1), longest = Math.max(...rows.map(mean), 1);
      const several = new Set(rows.map((row) => row.rank)).size > 1;
      fill(root, rows.map((row) => {
        const mine = row.run === now.run && now.ranks.includes(row.rank), wide = (mean(row) / longest) * 100;
        const parts = Object.entries(row.parts).filter(([, ns]) => ns > 0);
        return el("div", { class: `pl-row${mine ? " pl-mine" : ""}` },
          el("button", {
            class: "pl-row-name", type: "button", "aria-pressed": mine, title: row.device, onclick: () => on.row(row.run, row.rank),
          }, el("span", {}, row.name), several ? el("small", {}, `rank ${row.rank}`) : null),
          row.ns
            ? el("div", { class: "pl-track" }, el("div", { class: "pl-stack", style: `width:${wide}%` },
              parts.map(([name, ns]) => part(row, name, ns, row.ns, now.categories))))
            : el("div", { class: "pl-none" }, look.say("no_phase", { phase: now.phase })),
          el("div", { class: "pl-value" }, row.ns ? showTime(mean(row)) : ""),
        );
      }), waiting.map((name) => el("div", { class: "pl-row pl-waiting" }, el("span", { class: "pl-row-name" }, name),
        el("div", { class: "pl-none" }, look.say("reading", { name })))));
    },
  };
}
