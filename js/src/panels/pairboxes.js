// PairBoxes: the places of a run's rows, in px, that differ from the other run's. Draws nothing.

import { differing } from "../film/pairing.js";
import { statesOf } from "../film/states.js";
import { HUNG } from "./lanelooks.js";
import { GUTTER } from "./layout.js";
import { MarkPainter } from "./marks.js";

/** @import { LaneName, LaneRun, RowEntry } from "../types.d.ts" */
/** @import { PairLayout } from "./pairlayout.js" */
/** @typedef {{ run: number, row: number, other: number, slide: number }} Lanes */

/**
 * [x, y, w, h] of what differs. slides: px by which each row is away from its place.
 * @param {PairLayout[]} both
 * @param {number} run
 * @param {number[]} slides
 */
export function differingBoxes(both, run, slides) {
  const at = both[run];
  return at.pairs.flatMap(({ rows }) => {
    const row = rows[run];
    if (row < 0) return [];
    const lanes = { run, row, other: rows[1 - run], slide: slides[row] };
    const { target, draft } = at.lanes[row];
    return [
      ...tokenBoxes(both, lanes),
      ...barBoxes(both, lanes, "target", target),
      ...(draft.h ? barBoxes(both, lanes, "draft", draft) : []),
      ...stateBoxes(both, lanes),
      ...noteBoxes(both, lanes),
    ];
  });
}

/**
 * What differs of a lane, as [x, w, whether the round threw it away] of each place.
 * @param {PairLayout[]} both
 * @param {Lanes} lanes
 * @param {LaneName} which
 */
function places(both, { run, row, other, slide }, which) {
  const [at, beside] = [both[run], both[1 - run]];
  /** @type {LaneRun[]} */
  const partner = other < 0 ? [] : beside.film.lane(beside.step, which, other);
  const lane = at.film.lane(at.step, which, row);
  const found = differing([at.film, beside.film], [lane, partner], at.view.turn > 0.5);
  return found.flatMap(({ slot, position, kind }) => {
    const x = at.x(row, slot, position);
    const w = at.x(row, slot + 1, position < 0 ? undefined : position + 1) - x;
    const seen = w > 0 && x + w > GUTTER && x < at.right;
    return seen ? [{ x: x + slide, w, hung: HUNG.has(kind) }] : [];
  });
}

/**
 * @param {PairLayout[]} both
 * @param {Lanes} lanes
 */
function tokenBoxes(both, lanes) {
  const { tokens, notes, positions } = both[lanes.run].lanes[lanes.row];
  return places(both, lanes, "tokens").flatMap(({ x, w, hung }) => [
    [x, tokens.y - 1, w, tokens.h + 2],
    ...(positions ? [[x, positions.y, w, positions.h]] : []),
    ...(hung && notes ? [[x, notes.y, w, notes.h]] : []),
  ]);
}

/**
 * @param {PairLayout[]} both
 * @param {Lanes} lanes
 * @param {"target" | "draft"} which
 * @param {{ y: number, h: number }} band
 */
function barBoxes(both, lanes, which, { y, h }) {
  // What was written now has an outline of a pixel around it.
  return places(both, lanes, which).map(({ x, w }) => [x, y - 0.5, w, h + 1]);
}

/**
 * The states of a row, if they are of other tokens than the other row's, or wrong.
 * @param {PairLayout[]} both
 * @param {Lanes} lanes
 */
function stateBoxes(both, { run, row, other }) {
  const at = both[run];
  const { states } = at.lanes[row];
  if (!states) return [];
  const [own, theirs] = [row, other].map((number, n) => {
    const { film, step } = both[n ? 1 - run : run];
    const lanes = number < 0 ? [] : statesOf(film, step, number);
    return JSON.stringify(
      lanes.map(([model, marks]) => [model, marks.map(([kind, , index]) => [kind, index])]),
    );
  });
  return own === theirs ? [] : [[GUTTER - 1, states.y, at.right - GUTTER, states.h]];
}

/**
 * The notes under a row, if its K/V moved otherwise or another draft was turned down for its last
 * token.
 * @param {PairLayout[]} both
 * @param {Lanes} lanes
 */
function noteBoxes(both, { run, row, other }) {
  const at = both[run];
  const { notes } = at.lanes[row];
  if (!notes) return [];
  const said = [row, other].map((number, n) => noted(both[n ? 1 - run : run], number));
  return said[0] === said[1] ? [] : [[GUTTER - 1, notes.y, at.right - GUTTER, notes.h]];
}

/**
 * @param {PairLayout} at
 * @param {number} row
 */
function noted(at, row) {
  const entry = at.rows[row];
  if (!entry) return "";
  const shift = new MarkPainter(/** @type {any} */ (null), at).shifts.get(row);
  const turned = at.film.judged(at.step) ? at.film.rejectedDraft(entry) : null;
  const moved = at.view.turn > 0.5 ? "" : `${shift?.by} ${shift?.slots}`;
  return [moved, turned, turned === null ? "" : entry.length + entry.accepted].join();
}

/**
 * Whether a request's rows have gained, or are, as long as one another.
 * @param {PairLayout[]} both
 * @param {number} request
 */
export function sameGain(both, request) {
  const [own, other] = both.map((at) => at.rows.find((row) => row.request === request));
  return own !== undefined && other !== undefined && told(own) === told(other);
}

/** @param {RowEntry} row */
function told({ length, gained, finished }) {
  return [length, gained, finished].join();
}
