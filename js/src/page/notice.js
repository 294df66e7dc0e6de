// Notice: a sentence about where the view has just gone and why, or why it went nowhere. It stands
// behind the sentence of the phase, where there is room for it; the next step removes it.

import { element } from "../draw/elements.js";

/** @import { Film } from "../film/film.js" */
/** @import { Run } from "./run.js" */

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
  const row = asLong(film.mostRows);
  const words = reached.flatMap((step) => film.stage(step).words_of ?? [""]);
  const sample = longestArrival(shell.runs.map((run) => run.film));
  const first = opening.step < film.steps ? film.stage(opening.step).words_of?.[opening.row] : "";
  return [
    ...sentences,
    `Row ${row}: ${first ?? ""}. __ ${opening.words} __`,
    ...words.map((own) => `Row ${row}: ${own}. ${sample}`),
  ];
}

/**
 * As long as the words of any jump, with their padding; of two runs, they name one.
 * @param {Film[]} films
 */
function longestArrival(films) {
  const rounds = films.flatMap(({ json }) => json.rounds);
  const which = films.length > 1 ? ", second run" : "";
  const round = asLong(Math.max(...films.map(({ json }) => json.rounds.length)));
  const row = asLong(Math.max(...films.map(({ mostRows }) => mostRows)));
  const request = asLong(films[0].json.requests.length);
  const slot = asLong(Math.max(...rounds.map(({ slots }) => slots)));
  return `__ Full acceptance${which}: round ${round}, row ${row} (request ${request}), slot ${slot}. __`;
}

/**
 * A number with as many digits as those from 0 on that are less than `end`.
 * @param {number} end
 */
export function asLong(end) {
  return "9".repeat(`${Math.max(end - 1, 0)}`.length);
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
