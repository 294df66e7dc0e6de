// Words about the attention mask of one row in one forward. What is right and wrong about it is
// known to `maskCells`.

import { counted, quoted, rangeWords } from "../draw/words.js";
import { drafterName } from "../film/head.js";
import { joinedRanges } from "../film/ranges.js";

/** @import { Film, MaskCells, Query, Range, Segment, Sight, Windowed } from "../types.d.ts" */

/**
 * @param {Film} film
 * @param {MaskCells} at
 */
export function forwardWords(film, { kind, queries }) {
  const drafter = drafterName(film);
  const forwards = new Set(queries.map((query) => query.forward)).size;
  return [
    "prefill",
    forwards === 1 ? `${drafter}'s forward` : `${drafter}'s ${forwards} forwards`,
    "verification",
  ][kind];
}

/**
 * [whether all is well, what there is to say]
 * @param {Film} film
 * @param {number} step
 * @param {MaskCells | null} cells
 * @returns {[boolean, string]}
 */
export function maskVerdict(film, step, cells) {
  if (!cells) return [true, absence(film, step)];
  if (!film.checked) return [true, "Whether a query should see what it sees is not judged here."];
  const wrong = [];
  const { drifts, window } = cells;
  if (cells.leaks.length)
    wrong.push(`${slotCount(cells.leaks, "leaks", "leak")}: ${nature(film, cells)}`);
  if (cells.holes.length)
    wrong.push(`${slotCount(cells.holes, "is", "are")} not seen, which hold the row's own tokens`);
  if (cells.lost > 0) wrong.push(`K/V of ${counted(cells.lost, "token")} of the row is in no slot`);
  if (drifts)
    wrong.push(
      counted(
        drifts,
        "position is not its token's index",
        "positions are not their tokens' indices",
      ),
    );
  const layers = window && `in layers with ${windowWords(window)}`;
  if (window?.leaks.length)
    wrong.push(`${layers}, ${slotCount(window.leaks, "is seen", "are seen")} and should not be`);
  if (window?.holes.length)
    wrong.push(`${layers}, ${slotCount(window.holes, "is", "are")} not seen and should be`);
  if (wrong.length) return [false, `✗ ${wrong.join("; ")}.`];
  const narrow = window ? ` Layers with ${windowWords(window)} see no further back.` : "";
  const all = cells.block
    ? "✓ All of the block see the tokens before it and one another, each once, and nothing else."
    : "✓ Every query sees its row's tokens up to itself, each once, and nothing else.";
  return [true, all + narrow];
}

/**
 * @param {Windowed} window
 */
export function windowWords({ width, layers, chunks }) {
  const size = chunks ? `chunks of ${width} tokens` : `a window of ${width} tokens`;
  return layers ? `${size} (${layers})` : size;
}

/**
 * Why there is no mask.
 * @param {Film} film
 * @param {number} step
 */
function absence(film, step) {
  const unknown = film.json.gaps?.masks[film.phase(step) === 1 ? 1 : 0];
  if (unknown) return unknown;
  if (film.phase(step) === 0)
    return "This row was prefilled in an earlier round: no forward reads its K/V in this phase.";
  if (!film.json.meta.num_draft_tokens) return "Nothing is drafted in this run.";
  if (film.json.head)
    return `The ${film.json.head} reads one state of the target, so there is nothing to mask.`;
  return "Drafting feeds no model here, so there is nothing to mask.";
}

/**
 * @param {Range[]} ranges
 * @param {string} one
 * @param {string} many
 */
function slotCount(ranges, one, many) {
  const total = ranges.reduce((sum, [start, stop]) => sum + stop - start, 0);
  return total === 1
    ? `slot ${ranges[0][0]} ${one}`
    : `${total} slots (${rangeWords(ranges)}) ${many}`;
}

/**
 * What the first slot that leaks is to the first query that sees it.
 * @param {Film} film
 * @param {MaskCells} cells
 */
function nature(film, cells) {
  const slot = cells.leaks[0][0];
  /** @param {Segment} at */
  const sees = ([first, stop, verdict]) => verdict === "leak" && slot >= first && slot < stop;
  const query = cells.queries.find((each) => each.segments.some(sees));
  const held = cells.holds(slot);
  const ahead =
    held && query && held.index > query.index && (held.kind === "held" || held.kind === "drafted");
  return ahead
    ? `index ${held.index} lies ahead of query ${query.name}`
    : contentWords(film, cells, slot);
}

/**
 * What a slot holds.
 * @param {Film} film
 * @param {MaskCells} cells
 * @param {number} slot
 */
export function contentWords(film, cells, slot) {
  const held = cells.holds(slot);
  if (!held || held.kind === "empty") return "empty";
  if (held.index < 0) return "padding";
  const counts = held.kind === "held" || held.kind === "drafted";
  const token = held.token < 0 ? "a mask entry" : quoted(film.text(held.token));
  return `${counts ? "" : "stale, "}${token}, index ${held.index}`;
}

/**
 * The slots that a query saw in any of these ways.
 * @param {Query} query
 * @param {Sight[]} sights
 */
export function rangesOf(query, sights) {
  /** @type {Range[]} */
  const ranges = [];
  for (const [start, stop, sight] of query.segments) {
    if (sights.includes(sight)) ranges.push([start, stop]);
  }
  return joinedRanges(ranges);
}
