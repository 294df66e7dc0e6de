// StateLane: the states of a row, below its K/V. A line reaches up to the last token that the row's
// states have read; what the round's forward left stands behind it.

import { statesOf } from "../film/states.js";
import { GUTTER, STATE } from "./layout.js";

/** @import { Pen, StateKind } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

/**
 * @param {Pen} pen
 * @param {StageLayout} at
 * @param {number} number
 * @param {number} slide
 */
export function drawStates(pen, at, number, slide) {
  const { states: band } = at.lanes[number];
  if (!band) return;
  statesOf(at.film, at.step, number).forEach(([model, marks], n) => {
    const y = band.y + STATE * (n + 0.5);
    const colour = pen.p[model];
    const placed = marks.filter(([, slot]) => slot >= 0);
    /** @param {number} slot */
    const middle = (slot) => {
      const position = at.film.cell(at.step, model, number, slot)?.position;
      const next = position === undefined || position < 0 ? undefined : position + 1;
      const x = at.x(number, slot, position);
      return (x + at.x(number, slot + 1, next)) / 2 + slide;
    };
    for (const [kind, slot] of placed) {
      if (kind !== "kept" && kind !== "wrong") continue;
      const fill = kind === "wrong" ? pen.p.red : colour;
      const from = Math.max(at.x(number, at.stage.starts[number]) + slide, GUTTER);
      const to = Math.min(middle(slot), at.right);
      if (to > from) pen.rect(from, y - 1, to - from, 2, { fill });
    }
    for (const [kind, slot] of placed) {
      const x = middle(slot);
      if (x > GUTTER && x < at.right) drawState(pen, kind, x, y, colour);
    }
  });
}

/**
 * @param {Pen} pen
 * @param {StateKind} kind
 * @param {number} x its middle
 * @param {number} y
 * @param {string} colour of the model
 */
export function drawState(pen, kind, x, y, colour) {
  const { p } = pen;
  const looks = {
    kept: { fill: colour },
    open: { fill: p.panel, stroke: colour, width: 1.5 },
    dropped: {},
    wrong: { fill: p.red },
    due: { stroke: p.red, width: 1.5, dash: [2, 1.5] },
  };
  const r = kind === "due" ? 5 : kind === "kept" || kind === "wrong" ? 4 : 3.5;
  pen.rect(x - r, y - r, 2 * r, 2 * r, { ...looks[kind], radius: r });
  if (kind !== "dropped" && kind !== "wrong") return;
  const [arm, stroke] = kind === "wrong" ? [1.5, p.panel] : [2.5, p.muted];
  pen.line(x - arm, y - arm, x + arm, y + arm, { stroke, width: 1.25 });
  pen.line(x - arm, y + arm, x + arm, y - arm, { stroke, width: 1.25 });
}
