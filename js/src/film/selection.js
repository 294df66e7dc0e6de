// Selection: which of a round's drafts the target verifies, and what the round's capacity is spent
// on. Knows no pixels.

import { counted } from "../draw/words.js";

/** @import { Film, RowEntry } from "../types.d.ts" */

/**
 * How many of a row's drafts the target does not verify.
 * @param {RowEntry} entry
 */
export function leftOut(entry) {
  return entry.gained ? entry.drafted - entry.verified : 0;
}

/**
 * The drafts that a round's capacity is spent on, row by row; null in a run without a selector.
 * Before the drafts exist, none is.
 * @param {Film} film
 * @param {number} step
 */
export function spending(film, step) {
  const { capacity, rows } = film.scene(step);
  if (capacity === undefined) return null;
  const known = film.phase(step) > 0;
  const drafts = rows.flatMap(({ verified }, row) =>
    Array.from({ length: known ? verified : 0 }, (_, draft) => ({ row, draft })),
  );
  return { capacity, known, drafts };
}

/**
 * Why draft j of a row is not verified, with its score if it has one.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @param {number} j
 */
export function leftOutWords(film, step, row, j) {
  const score = film.rows(step)[row].scores?.[j];
  const scored = score === null || score === undefined ? "" : ` (score\u00a0${signed(score)})`;
  return `not verified: ${reason(film, step, row)}${scored}`;
}

/**
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 */
function reason(film, step, row) {
  const spent = spending(film, step);
  if (spent === null) return "the drafter left it out";
  if (spent.drafts.length < spent.capacity) return "the selector stopped before it";
  const elsewhere = spent.drafts.some((each) => each.row !== row);
  return elsewhere
    ? "the selector spent the capacity on other rows"
    : "the capacity is spent on the drafts before it";
}

/** @param {number} score */
function signed(score) {
  const digits = Math.abs(score) >= 100 ? 0 : 2;
  return `${score < 0 ? "−" : ""}${Math.abs(score).toFixed(digits)}`;
}

/**
 * "3 of 5 drafts to be verified": of a row that leaves some out.
 * @param {RowEntry} entry
 * @param {boolean} done
 */
export function shareWords({ verified, drafted }, done) {
  return `${verified} of ${counted(drafted, "draft")} ${done ? "verified" : "to be verified"}`;
}
