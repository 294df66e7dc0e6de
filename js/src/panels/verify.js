// VerifyPanel: what the draft said about the chosen row, what the target says to that, and what was
// taken: a card for each draft, and one for the token behind the last. What became of each is known
// to `draftCards`.

import { Kept } from "../draw/text.js";
import { chance, counted, drawChip, LONGEST, PAD, quoted, wrapWords } from "../draw/words.js";
import { draftCards } from "../film/cards.js";
import { drafterName } from "../film/head.js";
import { leftOut, shareWords } from "../film/selection.js";
import { branches, slotsOf } from "../film/tree.js";
import { linePlaces } from "./cardline.js";
import { CARD, CardPainter } from "./cardpaint.js";
import { drawCut } from "./cut.js";

/** @import { CardData, CardPlace, Cell, Choice, Pen, RowEntry, View } from "../types.d.ts" */

const CONTEXT = 34; // px: the row so far, over the cards

export class VerifyPanel {
  static id = "verify";

  /** @param {View} view */
  constructor(view) {
    this.view = view;
    /** @type {Kept<CardData[]>} */
    this._known = new Kept();
    /** @type {Kept<{ places: CardPlace[], height: number }>} */
    this._grids = new Kept(20);
  }

  empty() {
    return !this.view.film.rows(this.view.step)[this.view.row];
  }

  // What is judged stays as it is to the end of the round.
  key() {
    const { film, step, row, hover } = this.view;
    const pointed = hover?.row === row ? `${hover.index} ${hover.draft ?? hover.slot}` : "";
    const { room } = this.view;
    return [film.round(step), Math.min(film.phase(step), 3), row, room, pointed].join(" ");
  }

  /** @param {number} [step] */
  cards(step = this.view.step) {
    const { film, row } = this.view;
    return this._known.get(`${step} ${row}`, () => draftCards(film, step, row));
  }

  get _entry() {
    return this.view.film.rows(this.view.step)[this.view.row];
  }

  title() {
    const name = `Row ${this.view.row}`;
    if (!this._entry.gained) return `${name} idles: its request has ended`;
    if (!this._entry.drafted) return `${name} · the target's next token`;
    const drafter = drafterName(this.view.film);
    const unsaid = this.view.film.json.gaps?.cards;
    if (unsaid) return `${name} · verification; ${unsaid}`;
    return `${name} · verification: what the ${drafter} said, what the target says`;
  }

  heading() {
    const plain = !this._entry.gained || !this._entry.drafted || this.view.film.json.gaps?.cards;
    const phase = this.view.film.phase(this.view.step);
    if (plain) return this.title();
    const name = drafterName(this.view.film);
    const said = phase < 2 ? `what the ${name} said (q)` : `${name} (q) and target (p)`;
    return `Row ${this.view.row} · ${said}`;
  }

  /**
   * Where the cards lie: {x, y, w, h} in px, {bars, lines} of a card, chip: px of what the draft
   * said. The phases of a round share it.
   * @param {number} width
   */
  _grid(width) {
    const { film, step, row } = this.view;
    const last = step - film.phase(step) + 4;
    const { room } = this.view;
    return this._grids.get(`${last} ${row} ${width} ${room}`, () => {
      const cards = this.cards(last);
      const forms = [4, 3, 2, 1].map((most) => () => this._places(cards, width, most));
      const fits = forms.map((form) => form()).find(({ height }) => height <= (room ?? Infinity));
      const at = { x: PAD, y: CONTEXT, w: width - 2 * PAD };
      return fits ?? linePlaces(cards.length, at, room ?? 0) ?? forms[3]();
    });
  }

  /**
   * @param {CardData[]} cards
   * @param {number} width
   * @param {number} most choices on a card
   */
  _places(cards, width, most) {
    const room = width - 2 * PAD;
    const beside = Math.max(Math.floor((room + CARD.gap) / (CARD.least + CARD.gap)), 1);
    const rows = Math.ceil(cards.length / beside);
    const across = Math.ceil(cards.length / Math.max(rows, 1));
    const bars = Math.min([4, 4, 3][rows] ?? 2, most);
    const chip = cards.length > 1 ? CARD.chip : 20;
    const w = Math.min(
      (room - (across - 1) * CARD.gap) / Math.max(across, 1),
      cards.length === 1 ? room : CARD.most,
    );
    /** @type {CardPlace[]} */
    const places = [];
    let y = CONTEXT;
    for (let n = 0; n < rows; n++) {
      const some = cards.slice(n * across, (n + 1) * across);
      const lines = Math.max(...some.map((card) => this._words(card, w).length));
      const h = CARD.head + chip + 18 + bars * CARD.bar + 8 + lines * CARD.line + CARD.foot;
      some.forEach((_, k) =>
        places.push({ x: PAD + k * (w + CARD.gap), y, w, h, bars, lines, chip }),
      );
      y += h + CARD.gap;
    }
    return { places, height: y + 2 };
  }

  /**
   * @param {CardData} card
   * @param {number} w
   */
  _words(card, w) {
    return wrapWords(card.words, w - 2 * CARD.pad, { size: 11 });
  }

  /** @param {number} width */
  height(width) {
    return this._entry.gained ? this._grid(width).height : CONTEXT + 8;
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    this._context(pen, width);
    const { places } = this._grid(width);
    const cards = this.cards();
    cards.forEach((card, n) => new CardPainter(pen, this.view, card, places[n]).paint());
    const last = places[cards.findIndex((card) => card.fate === "unverified") - 1];
    if (last) drawCut(pen, last.x + last.w + CARD.gap / 2 + 1, last.y, last.h, 3);
  }

  /**
   * The row's last tokens before the round, as far as they fit, and its pending one.
   * @param {Pen} pen
   * @param {number} width
   */
  _context(pen, width) {
    const { film } = this.view;
    const { request, length } = this._entry;
    const { p } = pen;
    const y = CONTEXT / 2 - 3;
    const look = { size: 11.5, mono: true };
    const pending = film.text(film.token(request, length - 1));
    const chip = Math.min(pen.measure(pending, look) + 28, 160);
    let x = PAD + pen.measure("the row so far", { size: 11 }) + 10;
    let first = length - 1;
    let room = width - PAD - x - chip - 14;
    pen.text("the row so far", PAD, y, { size: 11, fill: p.muted });
    /** @param {number} index */
    const textOf = (index) => pen.cut(film.text(film.token(request, index)), LONGEST, look);
    /** @param {string} text */
    const widthOf = (text) => pen.measure(text, look) + 4;
    while (first > 0 && widthOf(textOf(first - 1)) <= room) room -= widthOf(textOf(--first));
    if (first) pen.text("…", x, y, { size: 11, fill: p.muted });
    if (first) x += 14;
    for (let index = first; index < length - 1; index++) {
      pen.text(textOf(index), x, y, { ...look, fill: p.muted });
      x += widthOf(textOf(index));
    }
    drawChip(pen, pending, x, y, chip, { fill: p.page, stroke: p.blue, sign: "○" });
  }

  describe() {
    const { film, step, row } = this.view;
    const entry = this._entry;
    const phase = film.phase(step);
    if (!entry.gained) return `${this.title()}.`;
    const drafts = entry.drafts.map((token) => quoted(film.text(token))).join(" ");
    if (phase === 0)
      return `Row ${row} holds ${counted(entry.length, "token")}; nothing is drafted yet.`;
    if (phase < 3 && !entry.drafted) return `Row ${row} drafts nothing.`;
    const partly = leftOut(entry) > 0;
    const share = `${shareWords(entry, phase > 1)}.`;
    const waiting = phase === 1 ? "The target has not read them." : "Not judged yet.";
    const unread = partly ? `${waiting} ${share}` : waiting;
    if (phase < 3) return `Row ${row}, drafted: ${drafts}. ${unread}`;
    const emitted = entry.emitted.map((token) => quoted(film.text(token))).join(" ");
    if (branches(entry)) return `Row ${row}: ${this._accepted(entry, partly)}emitted ${emitted}.`;
    const stop = this.cards().find(
      (card) => !["accepted", "bonus", "unverified"].includes(card.fate),
    );
    const why = stop && entry.drafted ? ` ${stop.name}: ${stop.words}.` : "";
    const accepted = this._accepted(entry, partly);
    const first = partly ? this.cards()[entry.verified + 1] : null;
    const left = first ? ` ${share} ${first.name}: ${first.words}.` : "";
    return `Row ${row}: ${accepted}emitted ${emitted}.${why}${left}`;
  }

  /**
   * @param {RowEntry} entry
   * @param {boolean} partly
   */
  _accepted(entry, partly) {
    if (!entry.drafted) return "";
    const drafts = counted(entry.verified, partly ? "verified draft" : "draft");
    const names = (entry.path ?? []).map((j) => `d${j + 1}`).join(" ");
    const branch = branches(entry) && names ? ` (${names})` : "";
    return `${entry.accepted} of ${drafts} accepted${branch}, `;
  }

  table() {
    const { film } = this.view;
    /** @param {number | null} token */
    const text = (token) => (token === null ? "–" : film.text(token));
    /** @param {Choice[]} choices */
    const list = (choices) =>
      choices.map(([token, p]) => `${film.text(token)} ${chance(p)}`).join(", ") || "–";
    const rows = this.cards().map((card) => [
      card.name,
      card.index ?? "–",
      text(card.draft),
      chance(card.q),
      chance(card.p),
      card.words,
      text(card.emitted),
      list(card.draftChoices),
      list(card.targetChoices),
    ]);
    const head = [
      "",
      "index",
      "draft",
      "q",
      "target's p of it",
      "what became of it",
      "emitted",
      `${drafterName(film)}'s choices`,
      "target's choices",
    ];
    return { caption: "", head, rows };
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    if (!this._entry.gained) return null;
    /** @param {CardPlace} at */
    const holds = (at) => x >= at.x && x < at.x + at.w && y >= at.y && y < at.y + at.h;
    const card = this.cards()[this._grid(width).places.findIndex(holds)];
    if (!card) return null;
    const { film, row } = this.view;
    const said =
      card.draft === null ? "" : ` ${quoted(film.text(card.draft), 60)}, q ${chance(card.q)}`;
    const p = card.p === null ? "" : `, p ${chance(card.p)}`;
    return {
      row,
      slot: this._slotOf(card),
      index: card.index,
      hint: `${card.name}${said}${p} — ${card.words}`,
      ...(card.number === undefined || card.number === null ? {} : { draft: card.number }),
    };
  }

  /**
   * Where a card's token stands in the batch now, null if nowhere.
   * @param {CardData} card
   */
  _slotOf(card) {
    // From the verification on, another token may stand where this one would.
    const gone = card.fate === "unverified" && this.view.film.phase(this.view.step) > 1;
    if (gone) return null;
    const { film, step, row } = this.view;
    if (card.index === null) return null;
    if (typeof card.number === "number") return slotsOf(film, step, row)[card.number];
    const { index } = card;
    const wanted = card.emitted ?? card.draft;
    /** @type {{ slot: number, cell: Cell }[]} */
    const found = [];
    for (const run of film.lane(step, "tokens", row)) {
      const slot = run[0] + index - run[3];
      const inside = run[3] >= 0 && slot >= run[0] && slot < run[1];
      if (inside) found.push({ slot, cell: film.cellOf(run, slot) });
    }
    const best = found.find(({ cell }) => cell.token === wanted) ?? found[0];
    return best?.slot ?? null;
  }
}
