// Fold: the part of a row that is folded to a bar with its length, what hangs below the row, and
// strips of cells that are too small for signs.

import { cellLooks, HUNG, signFills, SIGNS } from "./lanelooks.js";

/** @import { Cell, CellLook, LaneRun, Pen, RowLanes } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

const FLAT = new Set(["held", "stale", "drafted"]); // kinds that are told by their colour

/**
 * The folded slots of a row: its prompt, what is committed, what is stale, and how many tokens.
 * @param {Pen} pen
 * @param {StageLayout} at
 * @param {number} number
 * @param {number} slide
 */
export function drawFolds(pen, at, number, slide) {
  if (!at.fold) return;
  const { tokens } = at.lanes[number];
  const looks = cellLooks(pen.p);
  const inset = Math.min(3, tokens.h / 6);
  const band = { y: tokens.y + inset, h: tokens.h - 2 * inset };
  let count = 0;
  /** @type {number[][]} */
  const stretches = [];
  for (const run of at.film.lane(at.step, "tokens", number)) {
    const kind = at.film.json.kinds[run[2]];
    if (kind === "padding" && at.places.shows(run)) drawPadding(pen, at, number, run);
    if (run[3] < 0 || !at.places.shows(run)) continue;
    for (const [slot, stop, origin] of foldedParts(at, number, run)) {
      const first = at.places.firstPosition(run) + slot - run[0];
      const x = at.x(number, slot, first) + slide;
      const w = at.x(number, stop, first + stop - slot) + slide - x;
      pen.rect(x, band.y, w, band.h, foldLook(looks, kind === "held" ? origin : kind, w));
      if (kind !== "held") continue;
      count += stop - slot;
      stretches.push([x, x + w]);
    }
  }
  if (count) drawLength(pen, at, number, count, widest(stretches));
}

/**
 * The widest of the stretches once those that touch are joined: there nothing lies over words.
 * @param {number[][]} stretches [left, right] px, from left to right
 */
function widest(stretches) {
  /** @type {number[][]} */
  const joined = [];
  for (const [left, right] of stretches) {
    const last = joined.at(-1);
    if (last && left - last[1] < 1) last[1] = Math.max(last[1], right);
    else joined.push([left, right]);
  }
  return joined.reduce((one, other) => (other[1] - other[0] > one[1] - one[0] ? other : one));
}

/**
 * @param {Pen} pen
 * @param {StageLayout} at
 * @param {number} number
 * @param {LaneRun} run
 */
function drawPadding(pen, at, number, [first, stop]) {
  const { tokens } = at.lanes[number];
  const end = at.x(number, Math.min(stop, at.firsts[number]));
  const y = tokens.y + tokens.h / 2;
  if (!at.view.turn)
    pen.line(at.x(number, first) + 2, y, end - 4, y, { stroke: pen.p.grey, dash: [1.5, 4] });
}

/**
 * The parts [slot, stop, origin] of a run that are folded; what is held is divided behind the prompt.
 * @param {StageLayout} at
 * @param {number} number
 * @param {LaneRun} run
 * @returns {[number, number, string][]}
 */
function foldedParts(at, number, run) {
  const [first, stop, , index, , request] = run;
  const [low, high] = at.places.full(number, first, stop, at.places.firstPosition(run));
  const prompt = Math.min(
    Math.max(first + at.film.json.requests[request].prompt - index, first),
    stop,
  );
  /** @type {[number, number][]} */
  const outside =
    low >= high
      ? [[first, stop]]
      : [
          [first, low],
          [high, stop],
        ];
  return outside.flatMap(([from, to]) => {
    const cut = Math.min(Math.max(prompt, from), to);
    /** @type {[number, number, string][]} */
    const parts = [
      [from, cut, "p"],
      [cut, to, "a"],
    ];
    return parts.filter(([one, other]) => other > one);
  });
}

/**
 * @param {Record<string, CellLook>} looks
 * @param {string} kind
 * @param {number} w
 */
function foldLook(looks, kind, w) {
  const look = looks[kind];
  if (kind === "p" || kind === "a") return { fill: look.fill };
  return { fill: look.strip ?? look.fill, hatch: w > 4 ? look.hatch : undefined };
}

/**
 * How many tokens are folded, in the middle of a stretch of their bar.
 * @param {Pen} pen
 * @param {StageLayout} at
 * @param {number} number
 * @param {number} count
 * @param {number[]} stretch
 */
function drawLength(pen, at, number, count, [left, right]) {
  const lane = at.lanes[number];
  const look = { size: lane.open ? 10 : 9, align: "center" };
  const room = right - left - 4;
  const words = [`${count} tokens`, `${count}`].find((each) => pen.measure(each, look) <= room);
  const middle = lane.tokens.y + lane.tokens.h / 2;
  if (words) pen.text(words, (left + right) / 2, middle, { ...look, fill: pen.p.ink });
}

/**
 * A draft that the round threw away, below the text of its row.
 * @param {Pen} pen
 * @param {StageLayout} at
 * @param {RowLanes} lane
 * @param {Cell} cell
 * @param {number} x
 */
export function drawHung(pen, at, lane, { kind, token }, x) {
  const { notes } = lane;
  if (!notes) return;
  const look = cellLooks(pen.p)[kind];
  pen.rect(x + 1, notes.y, at.cell - 2, notes.h, { ...look, radius: 3 });
  const middle = notes.y + notes.h / 2 + 0.5;
  const fill = signFills(pen.p)[kind] ?? pen.p.muted;
  const sign = { size: 9, fill, weight: 700 };
  if (!at.texts)
    return pen.text(SIGNS[kind], x + at.cell / 2, middle, { ...sign, align: "center" });
  pen.text(SIGNS[kind], x + 4, middle, sign);
  const text = { size: Math.min(notes.h - 2, 10.5), mono: true, fill: pen.p.ink };
  pen.text(at.film.text(token), x + 14, middle, { ...text, max: at.cell - 17 });
}

/**
 * Cells of one kind side by side. What is told apart must not need colours: what is accepted fills
 * the height, the target's own token has a hole and a gap before it, what is thrown away is low.
 * @param {Pen} pen
 * @param {CellLook} look
 * @param {string} kind
 * @param {{ x: number, y: number, w: number, h: number }} box
 * @param {number} cell
 */
export function drawStrip(pen, look, kind, { x, y, w, h }, cell) {
  const { p } = pen;
  const fill = look.strip ?? look.fill;
  if (FLAT.has(kind))
    return pen.rect(x, y, w, h, { fill, hatch: cell > 3 ? look.hatch : undefined });
  const low = Math.max(Math.round(h * 0.38), 1); // as in the map of the run
  if (HUNG.has(kind)) return pen.rect(x, y + h - low, w, low, { fill: p.orange });
  const own = kind === "bonus_now" || kind === "wrong_now";
  if (!own || w < 4 || h < 5)
    return pen.rect(x, y, w, h, { fill: kind === "bonus_now" ? p.bonus : fill });
  pen.rect(x + 1, y, w - 1, h, { fill: kind === "bonus_now" ? p.bonus : fill });
  pen.rect(x + w / 2 - 1, y + h / 2 - 1.5, 3, 3, { fill: p.page });
}
