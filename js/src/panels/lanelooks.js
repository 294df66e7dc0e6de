// How the cells of a row's lanes look: their signs and colours by kind.

import { HOLLOW } from "./cut.js";

/** @import { BoxLook, CellLook, Palette } from "../types.d.ts" */

/** @type {Record<string, string>} */
export const SIGNS = {
  padding: "·",
  drafted: "?",
  pending: "○",
  accepted_now: "✓",
  bonus_now: "●",
  rejected_now: "✗",
  discarded_now: "↺",
  unreached_now: "–",
  wrong_now: "▲",
  unverified: "⊘",
  a: "✓",
  b: "●",
};

/**
 * Whether in a slot that awaits the K/V of a row's pending token something of the row lies still,
 * which is stale.
 * @param {number} index
 * @param {number} request
 * @param {number} own
 */
export function liesUnder(index, request, own) {
  return index >= 0 && request === own;
}

// What a round threw away hangs below the row's text.
export const HUNG = new Set(["rejected_now", "unreached_now", "discarded_now"]);
export const PALE = new Set(["stale", "unreached_now", "unverified"]);
export const COMMITTED = new Set(["held", "pending", "accepted_now", "bonus_now", "wrong_now"]);

/**
 * How a kind of cell looks; `strip`: its colour where a cell is too small for an outline.
 * @param {Palette} p
 * @returns {Record<string, CellLook>}
 */
export function cellLooks(p) {
  return {
    p: { fill: p.prompt },
    a: { fill: p.held },
    b: { fill: p.held },
    held: { fill: p.held, strip: p.held },
    pending: { fill: p.page, stroke: p.blue, width: 2, strip: p.blue },
    drafted: { fill: p.blueSoft, stroke: p.blue, dash: [3, 2], strip: p.blue },
    accepted_now: { fill: p.greenSoft, stroke: p.green, width: 1.5, strip: p.green },
    bonus_now: { fill: p.amberSoft, stroke: p.amber, width: 2, strip: p.amber },
    wrong_now: { fill: p.redSoft, stroke: p.red, width: 2, strip: p.red },
    unreached_now: { fill: p.greySoft, stroke: p.grey, dash: [3, 2], strip: p.grey },
    rejected_now: { fill: p.orangeSoft, stroke: p.orange, dash: [3, 2], strip: p.orange },
    discarded_now: {
      fill: p.amberSoft,
      stroke: p.amber,
      dash: [2, 2],
      strip: p.amber,
      hatch: p.stale,
    },
    unverified: { stroke: p.grey, dash: HOLLOW, strip: p.faint },
    stale: { fill: p.page, stroke: p.faint, hatch: p.faint, strip: p.stale },
  };
}

/**
 * The colours of signs by kind of cell.
 * @param {Palette} p
 * @returns {Record<string, string>}
 */
export function signFills(p) {
  return {
    accepted_now: p.green,
    rejected_now: p.orange,
    bonus_now: p.amber,
    wrong_now: p.red,
    pending: p.blue,
    drafted: p.blue,
  };
}

/**
 * How a kind of K/V looks in a bar.
 * @param {Palette} p
 * @param {string} colour of the model
 * @param {number} h
 * @returns {Record<string, BoxLook>}
 */
export function barLooks(p, colour, h) {
  return {
    held: { fill: colour, radius: h / 2 },
    drafted: { fill: p.blueSoft, stroke: colour },
    stale: { fill: p.orangeSoft, hatch: p.orange },
    padding: { fill: p.greySoft },
  };
}
