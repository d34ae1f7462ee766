// How long each engine step took, over time: a click chooses one.

import { el, showCount, showTime } from "./dom.js";
import { scatter } from "./scatter.js";

/** @param on { step(number) } */
export function stepsView(look, on) {
  let steps = null, phase = "all", chosen = -1;
  const fits = (at) => phase === "all" || look.phaseNames[steps.phase[at]] === phase;
  const plot = scatter({
    label: look.words.steps_label, height: 168, view: "steps", theme: look.theme, follows: true,
    colour: (at) => (fits(at) ? look.phases[steps.phase[at]] : look.theme().idle),
    strong: (at) => steps.step[at] === chosen,
    tip: (at) => {
      const [prefill, prompt, decode, , kv] = steps.counts.map((one) => one[at]);
      return [
        el("div", { class: "pl-tip-head" }, look.say("step", { step: steps.step[at], phase: look.phaseNames[steps.phase[at]] }), el("b", {}, showTime(steps.dur[at]))),
        el("dl", {}, [[look.words.in_prefill, prefill], [look.words.prompt_tokens, prompt], [look.words.in_decode, decode], [look.words.kv_tokens, kv]]
          .filter(([, count]) => count > 0).flatMap(([name, count]) => [el("dt", {}, name), el("dd", {}, showCount(count))])),
      ];
    },
    pick: (at) => { if (at >= 0) on.step(steps.step[at]); },
    box: null,
  });
  return {
    root: plot.root, draw: plot.draw, close: plot.close,
    set(given, origin) {
      if (steps !== given) {
        steps = given;
        plot.set(Array.from(given.start, (one) => one - origin), given.dur);
      }
      plot.draw();
    },
    choose(step, of) {
      chosen = step;
      phase = of;
      if (steps) plot.point(steps.step.indexOf(step));
    },
    place: plot.place,
  };
}
