// Link: the step that is shown, as the end of the page's address: #round=2&phase=verify&row=3. Works
// from a file, too. Knows no canvas and no page.

/** @import { Film } from "../types.d.ts" */

/** @typedef {{ phases: string[], rounds: number }} Extent what a link may name */

/**
 * What the films of a page have together.
 * @param {Film[]} films
 * @returns {Extent}
 */
export function extentOf(films) {
  const rounds = Math.max(...films.map(({ json }) => json.rounds.length));
  return { phases: films[0].json.phases, rounds };
}

/**
 * @param {Extent} extent
 * @param {{ step: number, row: number }} at
 */
export function linkTo({ phases }, { step, row }) {
  const round = Math.floor(step / phases.length);
  return `#round=${round}&phase=${phases[step % phases.length]}&row=${row}`;
}

/**
 * The place that a link names; null if it names none. What it leaves out is the first. wrong: what
 * it names and the run does not have, "" for nothing.
 * @param {Extent} extent
 * @param {string} hash
 */
export function placeOfLink({ phases, rounds }, hash) {
  const named = new URLSearchParams(hash.replace(/^#/, ""));
  if (!["round", "phase", "row"].some((name) => named.has(name))) return null;
  const round = wholeNumber(named.get("round"));
  const row = wholeNumber(named.get("row"));
  const phase = phases.indexOf(named.get("phase") ?? phases[0]);
  const wrong = [
    ...(round === null || round >= rounds ? [`a round that is none of 0 to ${rounds - 1}`] : []),
    ...(phase < 0 ? [`a phase that is none of ${phases.join(", ")}`] : []),
    ...(row === null ? ["a row that is no number"] : []),
  ];
  const known = Math.min(round ?? 0, Math.max(rounds - 1, 0));
  return {
    step: known * phases.length + Math.max(phase, 0),
    row: row ?? 0,
    wrong: wrong.length ? `The link names ${wrong.join(" and ")}.` : "",
  };
}

/** @param {string | null} text */
function wholeNumber(text) {
  if (text === null) return 0;
  return /^\d{1,9}$/.test(text) ? Number(text) : null;
}
