// PairTable: the chosen request's rows in both runs, place by place.

import { differing } from "../film/pairing.js";
import { slotKv, slotState } from "./slotwords.js";

/** @import { TableData, View } from "../types.d.ts" */
/** @import { RowPair } from "../film/pairing.js" */

const LISTED = 400; // places of a table, the last ones

/**
 * @param {View[]} views
 * @param {RowPair[]} pairs
 * @returns {TableData}
 */
export function pairTable(views, pairs) {
  const [first] = views;
  const chosen = first.film.rows(first.step)[first.row]?.request;
  const byPosition = first.turn > 0.5;
  const { names } = /** @type {import("../types.d.ts").Pair} */ (first.pair);
  const pair = pairs.find(({ request }) => request === chosen) ?? pairs[0];
  const sides = views.map((view, run) => heldBy(view, pair?.rows[run] ?? -1, byPosition));
  const lanes = views.map(({ film, step }, run) =>
    pair && pair.rows[run] >= 0 ? film.lane(step, "tokens", pair.rows[run]) : [],
  );
  const films = views.map(({ film }) => film);
  const apart = new Set(
    [0, 1].flatMap((run) =>
      differing([films[run], films[1 - run]], [lanes[run], lanes[1 - run]], byPosition).map(
        ({ place }) => place,
      ),
    ),
  );
  const held = [...new Set(sides.flatMap((side) => [...side.keys()]))].sort((a, b) => a - b);
  const blank = ["", "", "", ""];
  return {
    caption: `Request ${pair?.request ?? ""}: ${names.join(" beside ")}, ${byPosition ? "position by position" : "slot by slot"}`,
    head: [
      byPosition ? "position" : "slot",
      "differs",
      ...names.flatMap((name) => [
        `${name} token`,
        `${name} state`,
        `${name} ${byPosition ? "slot" : "position"}`,
        `${name} target K/V`,
      ]),
    ],
    rows: held
      .slice(-LISTED)
      .map((place) => [
        place,
        apart.has(place) ? "yes" : "",
        ...sides.flatMap((side) => side.get(place) ?? blank),
      ]),
  };
}

/**
 * By place, what the row holds there: token, state, slot or position, K/V.
 * @param {View} view
 * @param {number} row
 * @param {boolean} byPosition
 */
function heldBy(view, row, byPosition) {
  const { film, step } = view;
  /** @type {Map<number, (string | number)[]>} */
  const found = new Map();
  if (row < 0) return found;
  for (const run of film.lane(step, "tokens", row))
    for (let slot = run[0]; slot < run[1]; slot++) {
      const cell = film.cellOf(run, slot);
      if (cell.kind === "empty" || (byPosition && (cell.index < 0 || cell.kind === "stale")))
        continue;
      const position = cell.position < 0 ? cell.index : cell.position;
      const shown = byPosition ? slot : cell.position < 0 ? "" : cell.position;
      found.set(byPosition ? position : slot, [
        film.text(cell.token),
        slotState(view, row, cell),
        shown,
        slotKv(view, "target", row, slot, cell),
      ]);
    }
  return found;
}
