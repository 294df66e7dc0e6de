// How much room the sentences of a run need, so that nothing moves from one step to the next.

import { wrapWords } from "../draw/words.js";
import { mostLines } from "./fit.js";
import { asLong, withNotices } from "./notice.js";
import { capital } from "./run.js";

/** @import { Run } from "./run.js" */

// px of letters, of the phase and of the row, and lines to a letter; as in the style sheet
const USUAL = { words: 14.5, own: 13, line: 1.42 };
const TELLER = 102; // px of the buttons that stand beside the sentence of one of two runs
const TIGHT = { words: 13, own: 12, line: 1.36 };

/**
 * px of the longest sentence of the run.
 * @param {Run} run
 * @param {number} width
 * @param {boolean} tight
 */
export function wordsHeight(run, width, tight) {
  const { rounds, phases } = run.film.json;
  const letters = tight ? TIGHT : USUAL;
  const beside = run.shell.duo ? TELLER : 0;
  const named = run.shell.duo ? "A · " : "";
  const room = Math.min(width - beside, 1150) - 8;
  const said = rounds.flatMap(({ stages }) =>
    stages.map(({ words }, phase) => `${named}${capital(phases[phase])}. ${words}`),
  );
  const row = asLong(run.film.mostRows);
  const own = rounds.flatMap(({ stages }) =>
    stages.flatMap(({ words_of }) => (words_of ?? []).map((words) => `Row ${row}: ${words}.`)),
  );
  /** @param {number} size */
  const lines = (size) => (/** @type {string} */ words) =>
    wrapWords(words, room, { size, weight: 500 }).length;
  const most = mostLines(said, lines(letters.words));
  const mostOwn = mostLines(withNotices(run, own), lines(letters.own));
  return Math.ceil((most * letters.words + mostOwn * letters.own) * letters.line) + 2;
}
