// InvariantPanel: what is out of step in this round, up to the phase that is shown, in words that
// lead to row and slot. A page lists the items as buttons; a picture draws them as text.

import { Kept } from "../draw/text.js";
import { counted, PAD, rangeWords, wrapWords } from "../draw/words.js";
import { drafterName } from "../film/head.js";
import { joinedRanges } from "../film/ranges.js";

/** @import { Item, Pen, StepViolation, View } from "../types.d.ts" */

const LISTED = 50;
const DRAWN = 8; // entries of the list for a round on the page, and in a picture
const APART = 2; // rows up to which each has an entry of its own

export class InvariantPanel {
  static id = "invariants";

  /** @param {View} view */
  constructor(view) {
    this.view = view;
    /** @type {Kept<StepViolation[]>} */
    this._known = new Kept();
  }

  key() {
    return `${this.view.step} ${this.view.row}`;
  }

  empty() {
    return !this.view.film.steps;
  }

  // Violations of this round up to this phase, those of the chosen row first.
  _found() {
    return this._known.get(`${this.view.step} ${this.view.row}`, () => this._search());
  }

  _search() {
    const { film, step, row } = this.view;
    const first = step - film.phase(step);
    const found = [];
    for (let at = first; at <= step; at++) found.push(...film.violationsAt(at));
    /** @param {StepViolation} each */
    const rank = (each) => (film.rowOf(step, each.request) === row ? 0 : 1);
    return found.sort((a, b) => rank(a) - rank(b));
  }

  title() {
    const { film, step } = this.view;
    const all = film.violations.length;
    const found = this._found().length;
    if (!film.checked) return "Invariants · not checked here";
    const checked = this.unchecked() ? "all that were checked" : "all";
    const rounds = counted(film.json.rounds.length, "round");
    if (!all) return `Invariants · ${checked} hold in all ${rounds}`;
    const here = found ? counted(found, "violation") : "none violated";
    return `Invariants · ${here} in round ${film.round(step)} so far, ${all} in the run`;
  }

  // What was not checked, because a log lacks what it needs.
  unchecked() {
    const { checked, json } = this.view.film;
    const unchecked = checked ? (json.gaps?.unchecked ?? []) : [];
    return unchecked.length ? `Not checked: ${unchecked.join("; ")}.` : "";
  }

  /** @param {StepViolation} at */
  _row({ step, request, row }) {
    const found = this.view.film.rowOf(step, request);
    return found < 0 ? row : found;
  }

  /** @param {StepViolation} each */
  _text(each) {
    const more = each.count > 1 ? ` (${this._size([each])})` : "";
    const where = `row ${this._row(each)} (request ${each.request})`;
    return `${each.rule}, ${where}, ${this._place(each)}: ${each.expected}; ${each.found}${more}`;
  }

  /** @param {StepViolation} at */
  _place({ phase, model }) {
    const words = `${this.view.film.json.phases[phase]} phase`;
    const { head } = this.view.film.json;
    return model < 0 ? words : `${words}, ${["target model", head ?? "draft model"][model]}`;
  }

  /** @param {StepViolation[]} some */
  _size(some) {
    return counted(
      some.reduce((sum, each) => sum + each.count, 0),
      some[0].slot === null ? "token" : "slot",
    );
  }

  /**
   * Violations of one rule in one phase and model: an entry for all of them where many rows have
   * one, with the first as its example.
   * @param {StepViolation[]} some
   */
  _together(some) {
    if (some.length <= APART) return some.map((each) => this._item(each));
    const rows = joinedRanges(some.map((each) => [this._row(each), this._row(each) + 1]));
    const [first] = some;
    const where = `rows ${rangeWords(rows)}`;
    const example = `in row ${this._row(first)} ${first.expected}; ${first.found}`;
    return [
      {
        ...this._item(first),
        text: `${first.rule}, ${where}, ${this._place(first)}, ${this._size(some)}: ${example}`,
      },
    ];
  }

  /** @param {StepViolation[]} found */
  _grouped(found) {
    const groups = new Map();
    for (const each of found) {
      const key = `${each.step} ${each.rule} ${each.model}`;
      groups.set(key, [...(groups.get(key) ?? []), each]);
    }
    return [...groups.values()].flatMap((some) => this._together(some));
  }

  /** @param {StepViolation} each */
  _item(each) {
    return { text: this._text(each), row: this._row(each), slot: each.slot, step: each.step };
  }

  // What leads somewhere: this round's violations, or else where the next or the last ones are.
  /** @returns {Item[]} */
  items() {
    const { film, step } = this.view;
    const found = this._found();
    const listed = this._grouped(found);
    if (listed.length > LISTED) return [...listed.slice(0, LISTED), this._rest(listed)];
    if (found.length || !film.violations.length) return listed;
    const next = film.violations.find((each) => each.step > step);
    const near = next ?? film.violations.findLast((each) => each.step < step);
    if (!near) return [];
    const same = film.round(near.step) === film.round(step);
    const when = same ? "in this round" : `in round ${film.round(near.step)}`;
    return [
      { ...this._item(near), text: `${next ? "next" : "last"} one ${when}: ${this._text(near)}` },
    ];
  }

  /** @param {Item[]} listed */
  _rest(listed) {
    return {
      ...listed[LISTED],
      text: `and ${listed.length - LISTED} more, the first of them: ${listed[LISTED].text}`,
    };
  }

  describe() {
    const [item] = this.items();
    if (!item) return `${this.title()}. ${this.unchecked()}`.trim();
    return `${this.title()}. ${this._found().length ? "First" : "Nearest"}: ${item.text}.`;
  }

  table() {
    const { film } = this.view;
    const head = [
      "row",
      "request",
      "phase",
      "model",
      "rule",
      "slot",
      "how many",
      "expected",
      "found",
    ];
    const rows = this._found()
      .slice(0, 400)
      .map((each) => [
        this._row(each),
        each.request,
        film.json.phases[each.phase],
        ["–", "target", drafterName(film)][each.model + 1],
        each.rule,
        each.slot ?? "–",
        each.count,
        each.expected,
        each.found,
      ]);
    return { caption: this.unchecked(), head, rows };
  }

  /**
   * {sign, lines} of what a picture says.
   * @param {number} width
   */
  _paragraphs(width) {
    const items = this.items();
    const sign = this._found().length ? "▲" : "→";
    const all = items.length;
    const entries = items.slice(0, DRAWN).map(({ text }) => ({ sign, text }));
    if (!items.length)
      entries.push({
        sign: "✓",
        text: `Nothing is out of step in ${counted(this.view.film.json.rounds.length, "round")}.`,
      });
    if (all > DRAWN) entries.push({ sign: "", text: `and ${all - DRAWN} more of them` });
    if (this.unchecked()) entries.push({ sign: "", text: this.unchecked() });
    return entries.map(({ text, ...rest }) => ({
      ...rest,
      lines: wrapWords(text, width - 2 * PAD - 18, { size: 12 }),
    }));
  }

  /** @param {number} width */
  height(width) {
    return this._paragraphs(width).reduce((sum, { lines }) => sum + lines.length * 17 + 7, 4);
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    const { p } = pen;
    /** @type {Record<string, string>} */
    const colours = { "▲": p.red, "✓": p.green, "→": p.muted };
    let y = 10;
    for (const { sign, lines } of this._paragraphs(width)) {
      const size = sign === "▲" ? 10 : 12;
      if (sign) pen.text(sign, PAD, y, { size, weight: 700, fill: colours[sign] });
      lines.forEach((line, n) => pen.text(line, PAD + 18, y + n * 17, { size: 12, fill: p.ink }));
      y += lines.length * 17 + 7;
    }
  }

  hit() {
    return null;
  }
}
