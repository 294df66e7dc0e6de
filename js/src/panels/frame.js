// FramePainter: what stands behind and around the rows of the batch panel: the band of the chosen
// row, the slots' numbers, and each row's label.

import { keepsNothing } from "../film/head.js";
import { isFull } from "../film/tree.js";
import { GUTTER } from "./layout.js";
import { draftsWord } from "./marks.js";

/** @import { Pen, RowEntry, RowLanes } from "../types.d.ts" */
/** @import { StageLayout } from "./layout.js" */

const TICKS = [1, 5, 10, 25, 50, 100, 250, 500, 1000];
// Over rows of different ends, as long as there is room:
const OWN_ENDS = [
  "each row has its own end; bars are to scale",
  "each row has its own end",
  "own ends",
];

export class FramePainter {
  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   */
  constructor(pen, at) {
    this.pen = pen;
    this.at = at;
  }

  paint() {
    this.backdrop();
    this.axis();
  }

  backdrop() {
    const { pen, at } = this;
    const lane = at.lanes[at.view.row];
    if (lane && at.rows.length > 1)
      pen.rect(4, lane.y, at.width - 8, lane.height, { fill: pen.p.blueSoft, radius: 6 });
  }

  axis() {
    const { pen, at } = this;
    const y = at.top - 8;
    const look = { size: 10, fill: pen.p.muted };
    if (!at.shared) {
      const turned = at.view.turn > 0.5;
      pen.text(turned ? "position" : "slot", GUTTER - 8, y, { ...look, align: "right" });
      const room = at.x(0, at.begin(at.rows[0])) - GUTTER - 4;
      const words = turned ? "0" : (OWN_ENDS.find((each) => pen.measure(each, look) <= room) ?? "");
      pen.text(words, GUTTER + 2, y, look);
      return;
    }
    const every = TICKS.find((each) => each * at.cell >= 44) ?? 2000;
    const first = Math.ceil(Math.max(at.firsts[0], 0) / every) * every;
    const stop = Math.min((at.firsts[0] ?? 0) + at.count, at.last);
    if (at.fold && at.firsts[0]) pen.text("0", GUTTER + 2, y, look);
    const { from, to } = draftsWord(at);
    for (let slot = first; slot < stop; slot += every) {
      const x = at.x(0, slot) + at.cell / 2;
      if (x < from || x > to) pen.text(String(slot), x, y, { ...look, align: "center" });
    }
    pen.text("slot", GUTTER - 8, y, { ...look, align: "right" });
  }

  /**
   * @param {RowEntry} row
   * @param {number} number
   * @param {string} [run] before the row, where there are two
   */
  label(row, number, run = "") {
    const { pen, at } = this;
    const lane = at.lanes[number];
    const judged = at.film.judged(at.step);
    const middle = lane.tokens.y + lane.tokens.h / 2;
    const small = lane.height <= 14;
    const size = lane.open ? 12.5 : small ? 9.5 : 11;
    const name = small ? `${run}${number}` : `${run && `${run} `}row ${number}`;
    const gain = run ? 30 : 38;
    const bold = { size: run ? Math.min(size, 10.5) : size, weight: 650 };
    const room = GUTTER - 8 - gain - 12 - 2; // up to what the row gained
    bold.size *= Math.min(1, room / pen.measure(name, bold));
    pen.text(name, 12, middle, bold);
    if (judged) this._gain(row, middle, small, gain);
    else {
      const look = { size: small ? 9 : 10.5, fill: pen.p.muted, align: "right" };
      pen.text(`n ${row.length}`, GUTTER - 8, middle, look);
    }
    if (lane.open && at.signs) this._details(row, number);
  }

  /**
   * Under the name of a row that is open: its length, its request, and what its lanes are.
   * @param {RowEntry} row
   * @param {number} number
   */
  _details(row, number) {
    const { pen, at } = this;
    const judged = at.film.judged(at.step);
    const named = number === at.view.row && at.texts;
    const end = row.finished ? " · end" : "";
    const words = judged
      ? `n ${row.length}→${row.length + row.gained}${end}`
      : `request ${row.request}`;
    const { tokens, notes } = at.lanes[number];
    const y = notes ? notes.y + notes.h / 2 : tokens.y + tokens.h + 6;
    pen.text(words, 12, y, { size: 10.5, fill: pen.p.muted, max: GUTTER - 18 });
    if (named) this._laneNames(at.lanes[number]);
  }

  /** @param {RowLanes} lane */
  _laneNames(lane) {
    const { pen } = this;
    const look = { size: 8.5, fill: pen.p.muted, align: "right" };
    const positions = lane.positions ?? lane.tokens;
    pen.text("position", GUTTER - 4, positions.y + positions.h / 2, look);
    const drafter = this.at.film.json.head ? "head" : "draft";
    const names = keepsNothing(this.at.film) ? "target K/V" : `target, ${drafter} K/V`;
    pen.text(names, GUTTER - 4, lane.target.y + lane.target.h, look);
    if (lane.states) pen.text("states", GUTTER - 4, lane.states.y + lane.states.h / 2, look);
  }

  /**
   * @param {RowEntry} row
   * @param {number} y
   * @param {boolean} small
   * @param {number} w
   */
  _gain(row, y, small, w) {
    const { p } = this.pen;
    const x = GUTTER - 8 - w;
    const [h, size] = small ? [11, 9] : [16, w < 38 ? 10 : 11];
    const full = isFull(row);
    const fill = row.gained === 0 ? p.greySoft : row.accepted ? p.greenSoft : p.orangeSoft;
    const stroke = row.gained === 0 ? p.grey : full ? p.green : undefined;
    const words = row.gained ? `+${row.gained}` : "idle";
    this.pen.rect(x, y - h / 2, w, h, { fill, stroke, radius: h / 2 });
    this.pen.text(words, x + w / 2, y, { size, weight: 650, align: "center" });
  }
}
