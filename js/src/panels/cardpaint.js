// CardPainter: what the panel of the verification shows of one draft, or of the token behind the
// last one.

import { chance, drawChip, wrapWords } from "../draw/words.js";
import { MARKS } from "../film/cards.js";
import { drafterName } from "../film/head.js";
import { draftAt } from "../film/tree.js";
import { drawCardLine } from "./cardline.js";
import { HOLLOW } from "./cut.js";

/** @import { CardData, CardPlace, Choice, Pen, TextLook, View } from "../types.d.ts" */

export const CARD = {
  least: 88,
  most: 230,
  gap: 8,
  pad: 9,
  line: 15,
  bar: 21,
  head: 30,
  chip: 46,
  foot: 46,
}; // px

export class CardPainter {
  /**
   * @param {Pen} pen
   * @param {View} view
   * @param {CardData} card
   * @param {CardPlace} at
   */
  constructor(pen, view, card, at) {
    this.pen = pen;
    this.view = view;
    this.card = card;
    this.at = at;
    this.p = pen.p;
    this.left = at.x + CARD.pad;
    this.inner = at.w - 2 * CARD.pad;
    this.fate = MARKS[card.fate];
    this.hollow = card.fate === "unverified";
    const [strong, soft] = this._colours();
    this.strong = strong;
    this.soft = soft;
  }

  /** @returns {[string, string]} */
  _colours() {
    const { p } = this;
    /** @type {Record<string, [string, string]>} */
    const colours = {
      waiting: [p.blue, p.blueSoft],
      accepted: [p.green, p.greenSoft],
      kept: [p.green, p.greenSoft],
      rejected: [p.orange, p.orangeSoft],
      bonus: [p.amber, p.amberSoft],
      discarded: [p.amber, p.amberSoft],
      wrong: [p.red, p.redSoft],
    };
    return colours[this.card.fate] ?? [p.grey, p.greySoft];
  }

  /**
   * @param {string} words
   * @param {number} x
   * @param {number} y
   * @param {TextLook} [look]
   */
  text(words, x, y, look = {}) {
    this.pen.text(words, x, y, { size: 11, fill: this.p.muted, ...look });
  }

  paint() {
    const { pen, p, at, card } = this;
    if (!at.bars) return drawCardLine(pen, this.view, card, at, [this.strong, this.soft]);
    const lit = this._lit();
    pen.rect(at.x, at.y, at.w, at.h, {
      fill: this.hollow ? undefined : p.page,
      stroke: lit ? p.blue : this.hollow ? p.grey : p.faint,
      width: lit ? 2 : 1,
      radius: 8,
      dash: this.hollow ? HOLLOW : undefined,
    });
    if (!this.hollow) pen.rect(at.x + 8, at.y, at.w - 16, 3, { fill: this.strong });
    this._head(at.y + 17);
    this._draft(at.y + CARD.head);
    this._target(at.y + CARD.head + at.chip);
    const foot = at.y + at.h - CARD.foot;
    const words = wrapWords(card.words, this.inner, { size: 11 });
    const fill =
      this.fate.pale || card.fate === "waiting" ? p.muted : card.fate === "wrong" ? p.red : p.ink;
    words.forEach((line, n) =>
      this.text(line, this.left, foot + (n - at.lines + 0.5) * CARD.line, {
        fill,
        max: this.inner,
      }),
    );
    this._emitted(foot + 4);
  }

  // Several drafts of a tree have one index.
  _lit() {
    const { film, step, row, hover } = this.view;
    if (hover?.row !== row || hover.index === null) return false;
    const { number, index } = this.card;
    if (number === undefined) return hover.index === index;
    const draft = draftAt(film, step, row, hover);
    return number === null ? draft < 0 && hover.index === index : draft === number;
  }

  /** @param {number} y */
  _head(y) {
    const { card, at, fate } = this;
    const quiet = fate.pale || card.fate === "waiting";
    this.text(card.name, this.left, y, {
      size: 13,
      weight: 700,
      fill: quiet ? this.p.muted : this.p.ink,
    });
    const x = this.left + 8 + this.pen.measure(card.name, { size: 13, weight: 700 });
    const index = `index ${card.index}`;
    if (card.index !== null && x + this.pen.measure(index) + 24 < at.x + at.w)
      this.text(index, x, y + 1);
    this.text(fate.sign, at.x + at.w - CARD.pad, y, {
      size: 13,
      weight: 700,
      fill: quiet ? this.p.muted : this.strong,
      align: "right",
    });
  }

  /** @param {number} y */
  _draft(y) {
    const { card, p, pen } = this;
    if (card.last) {
      const { drafted } = this.view.film.rows(this.view.step)[this.view.row];
      const none = drafted ? "no draft verified" : "nothing drafted";
      this.text(card.name === "next" ? none : "no draft", this.left, y + 7);
      return;
    }
    const q = card.q === null ? "" : `q ${chance(card.q)}`;
    const room = this.inner - this.pen.measure(q) - 6;
    const name = drafterName(this.view.film);
    const short = this.pen.measure(name, { size: 11 }) > room && this.view.film.json.head;
    this.text(short ? "head" : name, this.left, y + 7);
    if (q) this.text(q, this.left + this.inner, y + 7, { align: "right" });
    const taken = card.fate === "accepted" || card.fate === "kept";
    const dash = taken ? undefined : [3, 2];
    const look =
      card.draft === null
        ? { fill: p.page, stroke: p.grey, dash }
        : { fill: this.hollow ? undefined : this.soft, stroke: this.strong, dash };
    drawChip(
      pen,
      card.draft === null ? "?" : this._text(card.draft),
      this.left,
      y + 27,
      this.inner,
      look,
    );
  }

  /** @param {number | null} token */
  _text(token) {
    return this.view.film.text(token);
  }

  /**
   * The target's choices; before it was asked, the draft's own.
   * @param {number} y
   */
  _target(y) {
    const { card, at } = this;
    const asked = card.targetChoices.length > 0;
    const choices = asked ? card.targetChoices : card.draftChoices;
    this.text(asked || !choices.length ? "target" : "choices", this.left, y + 7);
    if (choices.length)
      this.text(asked ? "p" : "q", this.left + this.inner, y + 7, { align: "right" });
    this._choices(choices, card.p).forEach(([token, p], n) =>
      this._bar(token, p, y + 17 + n * CARD.bar),
    );
    for (let n = 0; n < at.bars && !choices.length; n++) {
      this.pen.rect(this.left, y + 20 + n * CARD.bar, this.inner * (0.7 - 0.13 * n), CARD.bar - 8, {
        fill: this.p.greySoft,
        radius: 3,
      });
    }
  }

  /**
   * As many as fit, the draft's token among them.
   * @param {Choice[]} choices
   * @param {number | null | undefined} p
   * @returns {[number | null, number | null][]}
   */
  _choices(choices, p) {
    const { card, at } = this;
    const shown = choices.slice(0, at.bars);
    if (
      p === null ||
      p === undefined ||
      !choices.length ||
      shown.some(([token]) => token === card.draft)
    )
      return shown;
    return [...shown.slice(0, at.bars - 1), [card.draft, p]];
  }

  /**
   * A token, its probability, and that as a bar under both.
   * @param {number | null} token
   * @param {number | null | undefined} p
   * @param {number} y
   */
  _bar(token, p, y) {
    const { pen, card, p: colours } = this;
    const own = token === card.draft;
    const taken = card.own && token === card.emitted;
    const middle = y + 7.5;
    const fill = this.fate.pale ? colours.muted : colours.ink;
    const number = chance(p);
    const room = this.inner - pen.measure(number) - 8;
    pen.text(this._text(token), this.left, middle, {
      size: 11,
      mono: true,
      fill,
      weight: own || taken ? 700 : 400,
      max: room,
    });
    pen.text(number, this.left + this.inner, middle, { size: 11, fill, align: "right" });
    pen.rect(this.left, y + 15, this.inner, 3, { fill: colours.greySoft });
    const bar = taken ? colours.amber : own ? this.strong : colours.draft;
    pen.rect(this.left, y + 15, Math.max(this.inner * Math.min(p ?? 0, 1), 1.5), 3, { fill: bar });
  }

  /** @param {number} y */
  _emitted(y) {
    const { pen, card, p, at } = this;
    pen.line(this.left, y, at.x + at.w - CARD.pad, y, { stroke: p.faint });
    if (card.emitted === null) {
      this.text(this.view.film.judged(this.view.step) ? "emits nothing" : "–", this.left, y + 24);
      return;
    }
    const look = card.own
      ? { fill: p.amberSoft, stroke: p.amber, sign: "●" }
      : { fill: p.greenSoft, stroke: p.green, sign: "✓" };
    const wrong = card.fate === "wrong" ? { fill: p.redSoft, stroke: p.red, sign: "▲" } : {};
    drawChip(pen, this._text(card.emitted), this.left, y + 24, this.inner, { ...look, ...wrong });
  }
}
