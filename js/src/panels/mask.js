// MaskPanel: the attention mask of one row in one forward, queries x slots. What is right and wrong
// about it is known to `maskCells`.

import { fontOf, Kept, measureText } from "../draw/text.js";
import { counted, PAD, quoted, rangeWords, wrapWords } from "../draw/words.js";
import { maskCells } from "../film/sight.js";
import { slotsOf } from "../film/tree.js";
import { MASK_CELL, MASK_LINE, MASK_TALLEST, MASK_TICKS, MaskLayout } from "./masklayout.js";
import { drawSight, MaskPainter } from "./maskpaint.js";
import { contentWords, forwardWords, maskVerdict, rangesOf, windowWords } from "./maskwords.js";

/** @import { MaskCells, Pen, Query, Sight, View } from "../types.d.ts" */

/** @type {Record<Sight, string>} */
const SIGHTS = {
  seen: "sees",
  own: "sees: a draft of this round",
  beyond: "beyond",
  blank: "does not see",
  hidden: "stale, rightly hidden",
  leak: "leak: must not be seen",
  hole: "hole: should be seen",
};

export class MaskPanel {
  static id = "mask";

  /** @param {View} view */
  constructor(view) {
    this.view = view;
    /** @type {Kept<MaskCells | null>} */
    this._judged = new Kept();
    /** @type {Kept<MaskLayout>} */
    this._places = new Kept(20);
  }

  empty() {
    return !this.view.film.rows(this.view.step)[this.view.row];
  }

  // The phases behind the verification show its forward again; what is pointed at lies where the
  // step has it.
  key() {
    const { film, step, row, hover } = this.view;
    const lit = hover?.row === row ? `${step} ${hover.slot} ${hover.index} ${hover.draft}` : "";
    return `${film.round(step)} ${Math.min(film.phase(step), 2)} ${row} ${lit}`;
  }

  /**
   * Verdicts of a phase of this round, or null.
   * @param {number} [phase]
   */
  cells(phase = this.view.film.phase(this.view.step)) {
    const { film, step, row } = this.view;
    const at = step - film.phase(step) + phase;
    return this._judged.get(`${at} ${row}`, () => maskCells(film, at, row));
  }

  /** @param {number} width */
  _layout(width) {
    const cells = this.cells();
    return (
      cells &&
      this._places.get(
        `${this.view.step} ${this.view.row} ${width}`,
        () => new MaskLayout(cells, width),
      )
    );
  }

  title() {
    const cells = this.cells();
    const name = `Row ${this.view.row} · attention mask`;
    if (!cells && this._unknown()) return name;
    if (!cells) return `${name}, which no forward needs in this phase`;
    const queries = counted(cells.queries.length, "query", "queries");
    return `${name} of the ${forwardWords(this.view.film, cells)}, ${queries} × ${counted(cells.slots, "slot")}`;
  }

  heading() {
    const cells = this.cells();
    if (!cells) return this.title();
    const size = `${counted(cells.queries.length, "query", "queries")} × ${counted(cells.slots, "slot")}`;
    return `Row ${this.view.row} · ${forwardWords(this.view.film, cells)}, ${size}`;
  }

  // Why a log does not say what this phase's queries saw; nothing where it does.
  _unknown() {
    const { film, step } = this.view;
    return film.json.gaps?.masks[film.phase(step) === 1 ? 1 : 0];
  }

  /**
   * [whether all is well, what there is to say]
   * @param {MaskCells | null} [cells]
   */
  verdict(cells = this.cells()) {
    return maskVerdict(this.view.film, this.view.step, cells);
  }

  describe() {
    const text = `${this.title()}. ${this.verdict()[1]}`;
    if (this.cells()) return text;
    return `${text} Its queries and slots are listed in the phases with a forward.`;
  }

  table() {
    const cells = this.cells();
    const caption = this.verdict()[1];
    const judged = this.view.film.checked;
    const head = [
      "query",
      "token",
      "index",
      "position",
      "its slot",
      "sees slots",
      ...(cells?.window ? [`of these beyond ${windowWords(cells.window)}`] : []),
      ...(judged ? ["leaks", "holes", "stale, hidden"] : []),
    ];
    /**
     * @param {Query} query
     * @param {...Sight} verdicts
     */
    const of = (query, ...verdicts) => rangeWords(rangesOf(query, verdicts), 12) || "–";
    const rows = (cells?.queries ?? [])
      .slice(-400)
      .map((query) => [
        query.name,
        query.text,
        query.index,
        query.position < 0 ? "–" : query.position,
        query.slot,
        of(query, "seen", "own", "beyond", "leak"),
        ...(cells?.window ? [of(query, "beyond")] : []),
        ...(judged ? [of(query, "leak"), of(query, "hole"), of(query, "hidden")] : []),
      ]);
    return { caption, head, rows };
  }

  /**
   * The phases of a round keep one height, so that nothing below jumps from one to the next.
   * @param {number} width
   */
  height(width) {
    /** @param {(cells: MaskCells | null) => number} size */
    const most = (size) => Math.max(...[0, 1, 2].map((phase) => size(this.cells(phase))));
    const matrix = most((cells) =>
      Math.min((cells?.queries.length ?? 3) * MASK_CELL, MASK_TALLEST),
    );
    const words =
      most((cells) => this._legend(width, cells).length) +
      most((cells) => this._words(width, cells).length);
    return MASK_TICKS + matrix + 20 + MASK_LINE * words;
  }

  /**
   * @param {number} width
   * @param {MaskCells | null} cells
   */
  _words(width, cells) {
    const [right, words] = this.verdict(cells);
    return wrapWords(words, width - 2 * PAD, { size: 12, weight: right ? 400 : 600 });
  }

  /** @param {Sight} verdict */
  _sightWords(verdict) {
    const { film, step } = this.view;
    const window = verdict === "beyond" ? this.cells()?.window : null;
    if (window) return `beyond ${windowWords(window)}`;
    const masks = film.phase(step) === 1 && film.json.meta.draft_kv === "masks";
    return masks && verdict === "own" ? "sees: a mask entry of this round" : SIGHTS[verdict];
  }

  /**
   * Lines of [verdict, x].
   * @param {number} width
   * @param {MaskCells | null} cells
   */
  _legend(width, cells) {
    /** @type {[Sight, number][][]} */
    const lines = [];
    let x = width;
    const names = /** @type {Sight[]} */ (Object.keys(SIGHTS));
    for (const verdict of names.filter((each) => cells?.sights.has(each))) {
      const w = 20 + measureText(this._sightWords(verdict), fontOf({ size: 11 })) + 14;
      if (x + w - 14 > width - PAD) {
        lines.push([]);
        x = PAD;
      }
      lines[lines.length - 1].push([verdict, x]);
      x += w;
    }
    return lines;
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    const at = this._layout(width);
    const cells = this.cells();
    const [right] = this.verdict();
    const { p } = pen;
    let y = MASK_TICKS + (at ? at.height + 12 : 0) + MASK_LINE / 2;
    if (at) new MaskPainter(pen, this.view, at).paint();
    for (const line of this._legend(width, cells)) {
      for (const [verdict, x] of line) {
        drawSight(pen, verdict, x, y - 6, 12, 12, true);
        pen.text(this._sightWords(verdict), x + 20, y, { size: 11, fill: p.muted });
      }
      y += MASK_LINE;
    }
    if (at) y += 4;
    const look = { size: 12, fill: right ? p.muted : p.red, weight: right ? 400 : 600 };
    this._words(width, cells).forEach((line, n) => pen.text(line, PAD, y + n * MASK_LINE, look));
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    const at = this._layout(width);
    const n = at ? Math.floor((y - MASK_TICKS) / at.line) : -1;
    const query = at?.cells.queries[n];
    if (!query) return null;
    const { film, step, row } = this.view;
    const { cells } = at;
    const slot = at.slotAt(x);
    const draft = query.node > 0 && query.name !== "other" ? query.node - 1 : -1;
    const drift = film.checked && query.position === query.index ? "" : `, index ${query.index}`;
    const position = `position ${query.position < 0 ? "not known" : query.position}${drift}`;
    const name = `query ${query.name} ${quoted(query.text)} (${position})`;
    if (slot === null) {
      const hint = `${name}, in slot ${query.slot}`;
      const place = { row, slot: cells.now(query.slot), index: query.index, hint };
      return draft < 0 ? place : { ...place, slot: slotsOf(film, step, row)[draft], draft };
    }
    const verdict = query.segments.find((each) => slot >= each[0] && slot < each[1])?.[2];
    const held = cells.holds(slot);
    const does =
      verdict === "blank" || verdict === "hidden" || verdict === "hole" ? "does not see" : "sees";
    const beyond = verdict === "beyond" && cells.window;
    const wrong =
      verdict === "leak" || verdict === "hole"
        ? ` — a ${verdict}`
        : beyond
          ? `, beyond ${windowWords(beyond)}`
          : "";
    const hint = `${name} ${does} slot ${slot}: ${contentWords(film, cells, slot)}${wrong}`;
    return { row, slot: cells.now(slot), index: held?.index ?? -1, hint };
  }
}
