// Stage: the batch after one phase. For each row four lanes in the columns of the cache: tokens,
// position ids, and the K/V of target and draft.

import { Kept } from "../draw/text.js";
import { counted } from "../draw/words.js";
import { LanePainter, liesUnder } from "./lanes.js";
import { GUTTER, RIGHT, StageLayout, USUAL, ZOOMS } from "./layout.js";
import { drawReading } from "./reading.js";

/** @import { Cell, LaneName, Pen, RowEntry, RowLanes, View } from "../types.d.ts" */

export class Stage {
  static id = "stage";

  /** @param {View} view */
  constructor(view) {
    this.view = view;
    /** @type {Kept<StageLayout>} */
    this._layouts = new Kept(5);
  }

  key() {
    const { step, row, zoom, pan, progress, hover } = this.view;
    return [step, row, zoom, pan, progress, hover?.row, hover?.slot].join();
  }

  title() {
    const { film, step } = this.view;
    const size = `${counted(film.rows(step).length, "row")} × ${counted(film.stage(step).width, "slot")}`;
    return `Batch, ${size} · tokens, position ids, K/V of target and draft`;
  }

  empty() {
    return this.view.film.rows(this.view.step).length === 0;
  }
  /** @param {number} width */
  height(width) {
    return this._layout(width).height;
  }

  /** @param {number} width */
  _layout(width) {
    const { step, row, zoom, pan } = this.view;
    this._width = width;
    return this._layouts.get(
      [step, row, zoom, pan, width].join(),
      () => new StageLayout(this.view, width),
    );
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    const at = this._layout(width);
    this._backdrop(pen, at);
    if (at.mapped) this._map(pen, at);
    this._axis(pen, at);
    const shifts = this._shifts(at);
    const away = 1 - (this.view.progress ?? 1);
    const slides = at.rows.map((_, number) => -(shifts.get(number)?.by ?? 0) * at.cell * away);
    pen.clip(GUTTER - 1, at.top, at.right - GUTTER + 2, at.bottom - at.top, () =>
      new LanePainter(pen, at).paint(slides),
    );
    at.rows.forEach((row, number) => {
      this._label(pen, at, row, number);
      this._note(pen, at, number, shifts.get(number));
      this._refused(pen, at, row, number);
    });
    this._begin(pen, at);
    this._violations(pen, at);
    this._pointed(pen, at);
    drawReading(pen, at, this.view.row);
  }

  // -- what is behind and around the rows

  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   */
  _backdrop(pen, at) {
    const lane = at.lanes[this.view.row];
    if (lane && at.rows.length > 1)
      pen.rect(4, lane.y, at.width - 8, lane.height, { fill: pen.p.blueSoft, radius: 6 });
  }

  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   */
  _map(pen, at) {
    const p = pen.p;
    const h = at.mapHeight / at.rows.length;
    pen.text("whole cache", GUTTER - 12, at.mapTop + at.mapHeight / 2, {
      size: 10,
      fill: p.muted,
      align: "right",
    });
    pen.rect(GUTTER, at.mapTop, at.mapX(at.last) - GUTTER, at.mapHeight, { fill: p.greySoft });
    /** @type {Record<string, string>} */
    const colour = {
      held: p.target,
      drafted: p.blue,
      pending: p.blue,
      accepted_now: p.green,
      bonus_now: p.amber,
      rejected_now: p.orange,
      stale: p.stale,
      discarded_now: p.amber,
      unreached_now: p.stale,
    };
    at.rows.forEach((_row, number) => {
      for (const run of at.film.lane(at.step, "tokens", number)) {
        const fill = colour[at.film.json.kinds[run[2]]];
        const x = at.mapX(run[0]);
        if (fill)
          pen.rect(
            x,
            at.mapTop + number * h,
            Math.max(at.mapX(run[1]) - x, 1),
            Math.max(h - (h > 2 ? 1 : 0), 1),
            { fill },
          );
      }
    });
    at.rows.forEach((_row, number) => {
      if (at.shared && number) return;
      const first = Math.max(at.firsts[number], 0);
      const x = at.mapX(first);
      const w = at.mapX(Math.min(at.firsts[number] + at.count, at.last)) - x;
      const [y, tall] = at.shared
        ? [at.mapTop - 2, at.mapHeight + 4]
        : [at.mapTop + number * h - 1, h + 1];
      if (w > 0) pen.rect(x - 1, y, w + 2, tall, { stroke: p.blue, width: 1.5, radius: 2 });
    });
  }

  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   */
  _axis(pen, at) {
    const p = pen.p;
    const y = at.top - 8;
    const look = { size: 10, fill: p.muted };
    if (!at.shared) {
      pen.text("each row in its own window, so that all drafts begin in one column", GUTTER, y, {
        ...look,
        max: at.right - GUTTER,
      });
      return;
    }
    const every =
      [1, 5, 10, 25, 50, 100, 250, 500, 1000].find((each) => each * at.cell >= 44) ?? 2000;
    const first = Math.ceil(Math.max(at.firsts[0], 0) / every) * every;
    const stop = Math.min(at.firsts[0] + at.count, at.last);
    for (let slot = first; slot < stop; slot += every)
      pen.text(String(slot), at.x(0, slot) + at.cell / 2, y, { ...look, align: "center" });
    pen.text("slot", GUTTER - 12, y, { ...look, align: "right" });
  }

  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   * @param {RowEntry} row
   * @param {number} number
   */
  _label(pen, at, row, number) {
    const { p } = pen;
    const lane = at.lanes[number];
    const judged = at.film.judged(at.step);
    const middle = lane.tokens.y + lane.tokens.h / 2;
    const small = lane.height <= 14;
    const size = lane.open ? 12.5 : small ? 9.5 : 11;
    pen.text(small ? String(number) : `row ${number}`, 12, middle, { size, weight: 650 });
    if (judged) this._gain(pen, row, small ? 70 : 66, middle, small ? 11 : 16, small ? 9 : 11);
    else
      pen.text(`n ${row.length}`, 104, middle, {
        size: small ? 9 : 10.5,
        fill: p.muted,
        align: "right",
      });
    if (!lane.open || !at.signs) return;
    const second = judged ? `n ${row.length}→${row.length + row.gained}` : `request ${row.request}`;
    const named = number === this.view.row && at.texts;
    const look = { size: 10.5, fill: p.muted, max: named ? 62 : GUTTER - 20 };
    pen.text(second + (judged && row.finished ? " · end" : ""), 12, middle + 19, look);
    if (at.texts && judged)
      pen.text(`request ${row.request}`, 12, middle + 33, {
        size: 10,
        fill: p.muted,
        max: named ? 58 : GUTTER - 20,
      });
    if (named) this._laneNames(pen, lane);
  }

  /**
   * @param {Pen} pen
   * @param {RowLanes} lane
   */
  _laneNames(pen, lane) {
    const look = { size: 8.5, fill: pen.p.muted, align: "right" };
    const positions = lane.positions ?? lane.tokens;
    pen.text("position", GUTTER - 4, positions.y + positions.h / 2, look);
    pen.text("target K/V", GUTTER - 4, lane.target.y + lane.target.h / 2 - 1, look);
    pen.text("draft K/V", GUTTER - 4, lane.draft.y + lane.draft.h / 2 + 3, look);
  }

  /**
   * @param {Pen} pen
   * @param {RowEntry} row
   * @param {number} x
   * @param {number} y
   * @param {number} h
   * @param {number} size
   */
  _gain(pen, row, x, y, h, size) {
    const { p } = pen;
    const full = row.drafted > 0 && row.accepted === row.drafted;
    const fill = row.gained === 0 ? p.greySoft : row.accepted ? p.greenSoft : p.orangeSoft;
    const stroke = row.gained === 0 ? p.grey : full ? p.green : undefined;
    pen.rect(x, y - h / 2, 38, h, { fill, stroke, radius: h / 2 });
    pen.text(row.gained ? `+${row.gained}` : "idle", x + 19, y, {
      size,
      weight: 650,
      align: "center",
    });
  }

  // -- motion

  /**
   * Row number -> {by: slots to the right, from: null or where the K/V came from, slots: how many
   * the target's cache copied}
   * @param {StageLayout} at
   */
  _shifts(at) {
    /** @type {Map<number, { by: number, from: number | null, slots: number }>} */
    const found = new Map();
    for (const [model, , from, fromSlot, to, toSlot, length] of at.stage.moves) {
      if (to < 0) continue;
      const entry = found.get(to) ?? { by: 0, from: null, slots: 0 };
      if (from !== to) entry.from = from;
      else if (model === 0) entry.by = toSlot - fromSlot;
      if (model === 0) entry.slots += length;
      found.set(to, entry);
    }
    return found;
  }

  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   * @param {number} number
   * @param {{ by: number, from: number | null, slots: number } | undefined} shift
   */
  _note(pen, at, number, shift) {
    const { notes } = at.lanes[number];
    const { p } = pen;
    if (!shift || !notes) return;
    const y = notes.y + notes.h / 2;
    const row = at.rows[number];
    if (shift.from !== null) {
      const origin = shift.from < 0 ? `cache row ${-1 - shift.from}` : `row ${shift.from}`;
      return pen.text(`⇡ K/V copied here from ${origin}: ${shift.slots} slots`, GUTTER, y, {
        size: 10,
        fill: p.blue,
      });
    }
    if (!shift.by) return;
    const end = Math.min(
      Math.max(
        at.x(number, at.begin(row) + 1 + (at.film.judged(at.step) ? row.gained : 0)),
        GUTTER + 30,
      ),
      at.right,
    );
    const tail = Math.min(Math.max(end - shift.by * at.cell, GUTTER + 4), at.right - 4);
    pen.line(tail, y, end, y, { stroke: p.blue, width: 1.75, arrow: true });
    const words = `moved ${Math.abs(shift.by)} ${shift.by > 0 ? "right" : "left"}`;
    pen.text(words, Math.min(tail, end) - 8, y, { size: 10, fill: p.blue, align: "right" });
  }

  /**
   * Under the row's last token: the draft that was rejected there, and where that token goes on if
   * not in its slot.
   * @param {Pen} pen
   * @param {StageLayout} at
   * @param {RowEntry} row
   * @param {number} number
   */
  _refused(pen, at, row, number) {
    const { notes } = at.lanes[number];
    const { film } = at;
    const slot = row.pending + row.gained;
    const x = at.x(number, slot);
    if (
      !notes ||
      !at.texts ||
      !film.judged(at.step) ||
      row.gained <= row.accepted ||
      x < GUTTER ||
      x >= at.right
    )
      return;
    const rests = row.start === row.start_after;
    const stays = rests && row.pending_after === slot;
    const draft = film.rejectedDraft(row);
    if (film.phase(at.step) > 3 && !stays) return;
    const look = { size: 10 };
    const words = draft === null ? "" : `✗ ${pen.cut(film.text(draft), 90, look)} rejected`;
    const sign = film.wrongEnds(at.step).has(number) ? "▲" : "●";
    const onward =
      rests && !stays && !row.finished ? `${sign} goes to slot ${row.pending_after}` : "";
    const string = [words, onward].filter(Boolean).join(" · ");
    const left = Math.min(x + 2, at.width - RIGHT - pen.measure(string, look));
    pen.text(string, left, notes.y + notes.h / 2, { ...look, fill: pen.p.orange });
  }

  // -- marks

  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   */
  _begin(pen, at) {
    if (!at.signs) return;
    const xs = at.rows.map((row, number) => at.x(number, at.begin(row) + 1));
    at.rows.forEach((_row, number) => {
      const lane = at.lanes[number];
      const x = xs[number];
      const look = { stroke: pen.p.blue, dash: [2, 3] };
      if (x >= GUTTER && x <= at.right) pen.line(x, lane.y, x, lane.draft.y + lane.draft.h, look);
    });
    const y = at.top - (at.shared ? 19 : 8);
    if (at.rows.length && xs[0] < at.right - 60)
      pen.text("drafts →", xs[0] + 3, y, { size: 10, fill: pen.p.blue });
  }

  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   */
  _violations(pen, at) {
    for (const each of at.film.violationsAt(at.step)) {
      const lane = at.lanes[each.row];
      if (!lane) continue;
      pen.text("▲", GUTTER - 8, lane.tokens.y + lane.tokens.h / 2, {
        size: lane.open ? 11 : 8,
        fill: pen.p.red,
        align: "center",
      });
      if (each.slot === null || each.slot === undefined) continue;
      const x = at.x(each.row, each.slot);
      if (x < GUTTER - at.cell || x > at.right) continue;
      const of =
        { positions: lane.positions ?? lane.tokens, kv: lane.target }[each.rule] ?? lane.tokens;
      const where = each.model === 1 ? lane.draft : of;
      pen.rect(Math.max(x, GUTTER), where.y - 1, Math.max(at.cell, 3), where.h + 2, {
        stroke: pen.p.red,
        width: 2,
        radius: 3,
      });
    }
  }

  /**
   * @param {Pen} pen
   * @param {StageLayout} at
   */
  _pointed(pen, at) {
    const spot = this.view.hover;
    if (!spot || spot.row === null || spot.slot === null || spot.slot === undefined) return;
    const lane = at.lanes[spot.row];
    if (!lane) return;
    const x = at.x(spot.row, spot.slot);
    if (x < GUTTER || x + 1 > at.right) return;
    if (at.shared)
      pen.rect(x + at.cell / 2 - 0.5, at.top - 2, 1, at.bottom - at.top, { fill: pen.p.blue });
    pen.rect(x, lane.y + 1, Math.max(at.cell, 2), lane.draft.y + lane.draft.h - lane.y + 1, {
      stroke: pen.p.blue,
      width: 2,
      radius: 4,
    });
  }

  // -- asked by the shell

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    const at = this._layout(width);
    const row = at.rowAt(y);
    if (row < 0 || x > at.right) return null;
    const named = {
      row,
      slot: null,
      index: null,
      hint: `row ${row}: ${at.stage.words_of?.[row] ?? `request ${at.rows[row].request}`}`,
    };
    if (x < GUTTER) return named;
    const slot = at.slotAt(row, x);
    const cell = at.film.cell(at.step, "tokens", row, slot);
    if (!cell) return null;
    return {
      row,
      slot,
      index: cell.index < 0 ? null : cell.index,
      hint: this._hint(at, row, slot, cell),
    };
  }

  /**
   * @param {StageLayout} at
   * @param {number} row
   * @param {number} slot
   * @param {Cell} cell
   */
  _hint(at, row, slot, cell) {
    /** @param {LaneName} which */
    const held = (which) => at.film.cell(at.step, which, row, slot);
    const words = this._wordOf(row, cell);
    const token = cell.token >= 0 ? `“${at.film.text(cell.token)}” · ` : "";
    const drifts = at.film.checked && cell.position !== cell.index;
    const drift = drifts ? " (drift!)" : "";
    const place = cell.index < 0 ? "" : ` · index ${cell.index}, position ${cell.position}${drift}`;
    const target = `target K/V ${this._compared(held("target"), cell)}`;
    const kv = `${target}, draft K/V ${this._compared(held("draft"), cell)}`;
    const draft = cell.kind === "bonus_now" ? at.film.rejectedDraft(at.rows[row]) : null;
    const instead =
      draft === null ? "" : `, in place of the rejected draft “${at.film.text(draft)}”`;
    return `${token}row ${row}, slot ${slot}: ${words}${instead}${place} · ${kv}`;
  }

  /**
   * @param {number} row
   * @param {Cell} cell
   */
  _wordOf(row, cell) {
    const { film, step } = this.view;
    const wrong = cell.kind === "bonus_now" && film.wrongEnds(step).has(row);
    return film.wordOf(wrong ? { ...cell, kind: "wrong_now" } : cell);
  }

  /**
   * @param {Cell | null} held
   * @param {Cell} cell
   */
  _compared(held, cell) {
    if (!held || held.kind === "empty") return "empty";
    if (held.kind === "pending")
      return liesUnder(held.index, held.request, cell.request) ? "stale" : "empty";
    if (held.kind === "held") return held.index === cell.index ? "valid" : `of index ${held.index}`;
    return held.kind === "drafted" ? "of a draft" : held.kind;
  }

  /**
   * @param {number} _x
   * @param {number} y
   * @param {number} width
   */
  click(_x, y, width) {
    const at = this._layout(width);
    const row = at.rowAt(y);
    if (row >= 0) this.view.pick(row);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  drag(x, y, width) {
    const at = this._layout(width);
    if (!at.mapped || y > at.mapTop + at.mapHeight + 4 || x < GUTTER) return false;
    const now = at.firsts[this.view.row] ?? 0;
    this.panBy(at.mapSlot(x) - at.count / 2 - now);
    return true;
  }

  /** @param {number} direction */
  zoomBy(direction) {
    const automatic = this._width ? this._layout(this._width).cell : USUAL;
    const now = this.view.zoom ?? ZOOMS.findLastIndex((each) => each <= automatic);
    this.view.zoom = Math.min(Math.max(now + direction, 0), ZOOMS.length - 1);
  }

  /** @param {number} slots */
  panBy(slots) {
    const at = this._width && this._layout(this._width);
    const most = at ? Math.max(...at.firsts) + (this.view.pan ?? 0) : 0;
    this.view.pan = Math.min(Math.max((this.view.pan ?? 0) - slots, -8), Math.max(most, 0));
  }

  reset() {
    Object.assign(this.view, { zoom: null, pan: 0 });
  }

  describe() {
    const { film, step, row } = this.view;
    const rows = film.rows(step);
    const own = rows[row];
    if (!own) return "No row in this round.";
    const stage = film.stage(step);
    const lengths = stage.lengths;
    return (
      `${rows.length} rows of ${Math.min(...lengths)} to ${Math.max(...lengths)} committed tokens in ${stage.width} slots. ` +
      `Row ${row}: request ${own.request}, ${lengths[row]} tokens. ${stage.words_of?.[row] ?? ""}`
    );
  }

  table() {
    const { film, step, row } = this.view;
    const stage = film.stage(step);
    const cells = [];
    for (let slot = Math.max(0, stage.width - 400); slot < stage.width; slot++) {
      const cell = film.cell(step, "tokens", row, slot);
      if (!cell) continue;
      /** @param {LaneName} which */
      const of = (which) => this._compared(film.cell(step, which, row, slot), cell);
      /** @param {number} value */
      const number = (value) => (value < 0 ? "" : value);
      const kv = [of("target"), of("draft")];
      cells.push([
        slot,
        film.text(cell.token),
        this._wordOf(row, cell),
        number(cell.index),
        number(cell.position),
        ...kv,
      ]);
    }
    const head = ["slot", "token", "state", "index", "position", "target K/V", "draft K/V"];
    return { caption: `Row ${row}, slot by slot`, head, rows: cells };
  }
}
