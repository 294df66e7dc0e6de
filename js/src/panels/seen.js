// Seen: which signs and colours of the batch are on screen after a step, by the names that the
// legend gives them.

import { guessesOf } from "../film/head.js";
import { statesOf } from "../film/states.js";
import { compacted } from "../film/tree.js";
import { COMMITTED } from "./lanelooks.js";

/** @import { Comparison, Film, LaneRun, RowEntry } from "../types.d.ts" */

const KEPT = ["p", "a", "drafted"]; // K/V in the colour of its model
const ACCEPT = 3; // the phase in which only drafts of trees move

/** @type {WeakMap<Film, Map<number, string[]>>} */
const lanes = new WeakMap();

/**
 * What a lane holds; it is kept, since most lanes stand in several steps.
 * @param {Film} film
 * @param {number} number
 */
function heldIn(film, number) {
  const known = lanes.get(film) ?? new Map();
  lanes.set(film, known);
  if (!known.has(number)) known.set(number, kindsOf(film, film.json.lanes[number] ?? []));
  return known.get(number) ?? [];
}

/**
 * Whether a lane holds a committed token that the other run did not write.
 * @param {Film} film
 * @param {number} number
 * @param {Comparison} comparison
 */
function differsIn(film, number, comparison) {
  return film.json.lanes[number].some(([first, stop, kind, index, , request]) => {
    const parting = comparison.partings[request] ?? -1;
    if (parting < 0 || index < 0 || !COMMITTED.has(film.json.kinds[kind])) return false;
    for (let at = Math.max(index, parting); at < index + stop - first; at++)
      if (comparison.differs(request, at)) return true;
    return false;
  });
}

/**
 * @param {Film} film
 * @param {LaneRun[]} runs
 */
function kindsOf(film, runs) {
  const found = new Set();
  for (const [first, stop, kind, index, position, request] of runs) {
    const name = film.json.kinds[kind];
    if (name !== "held") found.add(name);
    else if (index < film.json.requests[request].prompt) found.add("p");
    const { prompt } = film.json.requests[request] ?? { prompt: Infinity };
    if (name === "held" && index + stop - first > prompt) found.add("a");
    if (film.checked && position >= 0 && position !== index && name !== "stale") found.add("drift");
    if (name === "pending" && index >= 0) found.add("under");
  }
  return [...found];
}

/**
 * @param {Film} film
 * @param {number} step
 * @param {Comparison | null} [comparison] with another run
 * @returns {Set<string>}
 */
export function seenAt(film, step, comparison = null) {
  const stage = film.stage(step);
  /** @type {Set<string>} */
  const found = new Set();
  for (const number of stage.tokens) for (const kind of heldIn(film, number)) found.add(kind);
  if (found.size) found.add("gap"); // it says what all these cells lack
  for (const which of /** @type {const} */ (["target", "draft"])) {
    const bars = stage[which].flatMap((number) => heldIn(film, number));
    if (KEPT.some((kind) => bars.includes(kind))) found.add(which);
  }
  if (comparison && stage.tokens.some((number) => differsIn(film, number, comparison)))
    found.add("differs");
  const bars = [...stage.target, ...stage.draft].flatMap((number) => heldIn(film, number));
  // Under a token that awaits its K/V may lie that of another one.
  if (bars.includes("stale") || bars.includes("under")) found.add("staleKV");
  if (stage.feeds.length) found.add("written");
  if (stage.violations.length) found.add("violation");
  rowsSeen(film, step, found);
  return found;
}

/**
 * @param {Film} film
 * @param {number} step
 * @param {Set<string>} found
 */
function rowsSeen(film, step, found) {
  const { moves } = film.stage(step);
  const phase = film.phase(step);
  if (moves.length && phase !== ACCEPT) found.add("moved");
  const wrong = film.wrongEnds(step);
  if (wrong.size) found.add("wrong_now");
  film.rows(step).forEach((row, number) => {
    if (phase >= ACCEPT && hangs(film, step, row, number)) found.add("rejected_now");
    if (phase === ACCEPT && moves.length && [...compacted(film, step, number)].length)
      found.add("compacted");
    for (const [, , source] of guessesOf(film, step, number)) found.add(source);
    for (const [, marks] of statesOf(film, step, number))
      for (const [kind] of marks) found.add(`state ${kind}`);
  });
}

/**
 * Whether the draft that was rejected for a row's last token hangs below it. Where that token has
 * moved on, it does not.
 * @param {Film} film
 * @param {number} step
 * @param {RowEntry} row
 * @param {number} number
 */
function hangs(film, step, row, number) {
  if (film.rejectedDraft(row) === null) return false;
  if (film.phase(step) === ACCEPT) return true;
  const slot = row.end ?? row.pending + row.gained;
  const kind = film.cell(step, "tokens", number, slot)?.kind;
  return row.pending_after === slot && (kind === "bonus_now" || kind === "wrong_now");
}
