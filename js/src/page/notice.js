// Notice: a sentence about where the view has just gone and why, or why it went nowhere. It stands
// behind the sentence of the phase, where there is room for it; the next step removes it.

import { element } from "../draw/elements.js";

/** @import { Run } from "./run.js" */

// As long as those of jumps, with its padding.
const SAMPLE = "__ Full acceptance, second run: round 99, row 99 (request 99), slot 999. __";
const ACCEPT = 3; // the phase to which most jumps lead

/**
 * What may stand in the line of the rows: their sentences, and notices behind them.
 * @param {Run} run
 * @param {string[]} sentences
 */
export function withNotices({ film, number, shell }, sentences) {
  if (number) return sentences;
  const opening = shell.model.get("_opening") ?? { step: 0, row: 0, words: "" };
  const steps = film.json.rounds.map((_, round) => round * film.phases + ACCEPT);
  const faults = film.violations.map(({ round, phase }) => round * film.phases + phase);
  const reached = [...new Set([...steps, ...faults])].filter((step) => step < film.steps);
  const words = reached.flatMap((step) => film.stage(step).words_of ?? [""]);
  const first = opening.step < film.steps ? film.stage(opening.step).words_of?.[opening.row] : "";
  return [
    ...sentences,
    `Row 99: ${first ?? ""}. __ ${opening.words} __`,
    ...words.map((own) => `Row 99: ${own}. ${SAMPLE}`),
  ];
}

export class Notice {
  constructor() {
    /** @type {HTMLElement} */
    this.root = element("span", { class: "sv-notice" }); // read out as a part of the sentence
  }

  /** @param {string} words */
  say(words) {
    if (words === this.root.textContent) return;
    this.root.replaceChildren(...(words ? [element("span", {}, words)] : []));
  }

  clear() {
    this.say("");
  }
}
