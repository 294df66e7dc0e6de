// Tour: seven stops of about a minute on the run at hand: which steps and rows show best what a round
// is. Knows no page.

import { counted } from "../draw/words.js";
import { drafterName } from "./head.js";

/** @import { Film, RowEntry } from "../types.d.ts" */

/**
 * lens: the panel to be seen, null for that of the phase; turned: whether rows stand by positions;
 * spot: the part of the page that is meant.
 * @typedef {{ step: number, row: number, lens: string | null, turned: number, spot: string,
 *   words: string }} Stop
 */

/**
 * The round whose rows gained most differently; the first one of these.
 * @param {Film} film
 */
export function unevenRound(film) {
  const spreads = film.json.rounds.map(({ rows }) => {
    const gains = rows.filter(({ gained }) => gained > 0).map(({ gained }) => gained);
    return gains.length ? Math.max(...gains) - Math.min(...gains) : -1;
  });
  return Math.max(spreads.indexOf(Math.max(...spreads)), 0);
}

/**
 * @param {Film} film
 * @returns {Stop[]}
 */
export function tourOf(film) {
  const round = unevenRound(film);
  const rows = film.json.rounds[round].rows;
  const gains = rows.map(({ gained }) => gained);
  const most = gains.indexOf(Math.max(...gains));
  const least = gains.indexOf(Math.min(...gains.filter((gain) => gain > 0)));
  const short = Math.max(least, 0);
  const begin = round * film.phases;
  /**
   * @param {number} phase
   * @param {number} row
   * @param {string} spot
   * @param {string} words
   * @param {Partial<Stop>} [more]
   * @returns {Stop}
   */
  const stop = (phase, row, spot, words, more = {}) => ({
    step: begin + phase,
    row,
    lens: null,
    turned: 0,
    spot,
    words,
    ...more,
  });
  const drafter = drafterName(film);
  const sizes = `${counted(film.json.requests.length, "request")}, ${counted(film.json.rounds.length, "round")}`;
  return [
    stop(
      0,
      most,
      "map",
      `This is the whole run: ${sizes}. Each block is a round of a request: green is accepted, ` +
        "amber is the target's own token, the low orange part was thrown away. Click a block to go there.",
    ),
    stop(
      0,
      most,
      "stage",
      `Round ${round} begins. Each line is a row of the batch. A bar stands for committed tokens; the ` +
        "last ones can be read. The blue frame is the pending token: its K/V does not exist yet.",
    ),
    stop(
      1,
      most,
      "lens",
      `The ${drafter} proposes tokens for every row, with the probability q of each. The lens beside ` +
        "the batch shows the chosen row. Press ↓ or click a row to choose another one.",
    ),
    stop(
      2,
      most,
      "lens",
      "One forward of the target reads the pending token and all drafts of all rows. The mask shows " +
        "which slots each query sees: its own row up to itself, and nothing else.",
    ),
    stop(3, short, "stage", acceptWords(film, rows, most, short)),
    stop(
      3,
      short,
      "stage",
      "The same rows by the positions of their tokens instead of by slots of the cache. Rows of a " +
        "batch share slots, but each has its own length. Press c to go to and fro.",
      { turned: 1 },
    ),
    stop(
      4,
      short,
      "lens",
      `${syncWords(film, begin + 4)} Press ? for all keys, → for the next phase.`,
    ),
  ];
}

/**
 * @param {Film} film
 * @param {RowEntry[]} rows
 * @param {number} most
 * @param {number} least
 */
function acceptWords(film, rows, most, least) {
  const first = `Row ${most} gained most: ${counted(rows[most].gained, "token")}.`;
  const row = rows[least];
  if (rows[most].gained === row.gained)
    return `${first} Accepted drafts are green, the bonus is amber.`;
  const draft = film.rejectedDraft(row);
  const why = draft === null ? "" : " Its rejected draft hangs below the token that replaced it.";
  return `${first} Row ${least} gained ${row.gained}.${why} So the rows are ragged now.`;
}

/**
 * @param {Film} film
 * @param {number} step
 */
function syncWords(film, step) {
  const moved = new Set(film.stage(step).moves.map((move) => move[4])).size;
  if (!moved)
    return "Nothing moves here: this strategy leaves the K/V where it is. The list says where it ends.";
  return `To end in one column again, ${counted(moved, "row")} moved their K/V. The list says how far.`;
}
