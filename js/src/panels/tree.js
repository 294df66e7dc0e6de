// TreePanel: the drafts of the chosen row as a tree, from the pending token on the left. Only runs
// with trees have it. What became of each draft is known to `draftCards`.

import { Kept } from "../draw/text.js";
import { chance, counted, PAD, quoted, wrapWords } from "../draw/words.js";
import { draftCards } from "../film/cards.js";
import { draftAt, hasTrees, lastOf, lineOf, treeNodes } from "../film/tree.js";
import { OWN, ROOT, TreeLayout } from "./treelayout.js";
import { TreePainter } from "./treepaint.js";

/** @import { CardData, Hit, Pen, RowEntry, TreeNode, TreePlace, View } from "../types.d.ts" */

export class TreePanel {
  static id = "tree";

  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this._shown = hasTrees(view.film);
    /** @type {Kept<TreeLayout>} */
    this._layouts = new Kept(20);
    /** @type {Kept<CardData[]>} */
    this._cards = new Kept();
  }

  get _entry() {
    return this.view.film.rows(this.view.step)[this.view.row];
  }

  empty() {
    return !this._shown || !this._entry;
  }

  key() {
    const { film, step, row } = this.view;
    return [film.round(step), film.phase(step), row, this._pointed()].join(" ");
  }

  /** The draft that is pointed at, here or anywhere on the page; -1 for none. */
  _pointed() {
    const { film, step, row, hover } = this.view;
    return film.phase(step) ? draftAt(film, step, row, hover) : -1;
  }

  get _nodes() {
    const { film, step, row } = this.view;
    return this._entry.drafted ? treeNodes(film, step, row) : [];
  }

  get _judgedCards() {
    const { film, step, row } = this.view;
    return this._cards.get(`${step} ${row}`, () =>
      draftCards(film, step, row).map((card, n, all) => numbered(card, n, all)),
    );
  }

  title() {
    const entry = this._entry;
    const name = `Row ${this.view.row} · token tree`;
    if (!entry.gained) return `${name}: its request has ended`;
    if (!entry.drafted) return `${name}: nothing is drafted`;
    const deep = Math.max(...entry.drafts.map((_, j) => lineOf(entry, j).length));
    const ends = entry.drafts.filter((_, j) => !hasChild(entry, j)).length;
    const branches = counted(ends, "branch", "branches");
    return `${name}, ${counted(entry.drafted, "draft")} on ${branches}, ${deep} deep`;
  }

  /**
   * The phases of a round share one layout.
   * @param {number} width
   */
  _layout(width) {
    const { film, step, row } = this.view;
    const entry = this._entry;
    const own = { last: lastOf(entry), gained: entry.gained > entry.accepted };
    return this._layouts.get(
      `${film.round(step)} ${row} ${width}`,
      () => new TreeLayout(entry, own, width),
    );
  }

  /** @param {number} width */
  height(width) {
    const at = this._layout(width);
    return at.height + (this._lines(width) - 1) * 15;
  }

  /**
   * @param {number} width
   */
  _lines(width) {
    return wrapWords(LONGEST, width - 2 * PAD, { size: 11 }).length;
  }

  /**
   * @param {Pen} pen
   * @param {number} width
   */
  draw(pen, width) {
    const at = this._layout(width);
    const pointed = this._pointed();
    const lit = pointed < 0 ? [] : lineOf(this._entry, pointed);
    const tree = { nodes: this._nodes, cards: this._judgedCards, lit };
    new TreePainter(pen, this.view, at, tree).paint();
    wrapWords(this._words(), width - 2 * PAD, { size: 11 }).forEach((line, n) =>
      pen.text(line, PAD, at.words + n * 15, { size: 11, fill: pen.p.muted }),
    );
  }

  _words() {
    const { film, step } = this.view;
    const phase = film.phase(step);
    if (!this._entry.drafted) return "";
    if (phase === 0) return "Nothing is drafted yet.";
    if (phase < 3) return "Over a draft: its rank among those of one parent.";
    return LONGEST;
  }

  describe() {
    const { film, step } = this.view;
    const entry = this._entry;
    const title = `${this.title()}.`;
    const phase = film.phase(step);
    if (!entry.gained || !entry.drafted) return title;
    if (phase === 0) return `${title} Nothing is drafted yet.`;
    const first = this._nodes
      .filter((node) => node.parent < 0)
      .map((node) => quoted(film.text(node.token)));
    if (phase < 3) return `${title} Behind the pending token: ${first.join(", ")}.`;
    const path = (entry.path ?? []).map((j) => `d${j + 1} ${quoted(film.text(entry.drafts[j]))}`);
    const accepted = path.length ? `Accepted: ${path.join(", ")}` : "No draft is accepted";
    const own = this._judgedCards.find((card) => card.own);
    const emitted = own?.emitted;
    const behind =
      emitted === null || emitted === undefined
        ? ""
        : `; then the target's own ${quoted(film.text(emitted))}`;
    return `${title} ${accepted}${behind}. Arrow keys go from draft to draft.`;
  }

  table() {
    const { film } = this.view;
    const rows = this._nodes.map((node) => {
      const card = this._cardOf(node.number);
      return [
        `d${node.number + 1}`,
        node.parent < 0 ? "pending" : `d${node.parent + 1}`,
        node.depth,
        film.text(node.token),
        `${node.rank} of ${node.siblings}`,
        chance(card?.q),
        chance(card?.p),
        node.slot ?? "–",
        card?.words ?? "",
      ];
    });
    const head = [
      "draft",
      "follows",
      "depth",
      "token",
      "rank",
      "q",
      "target's p of it",
      "slot",
      "what became of it",
    ];
    return { caption: `Row ${this.view.row}, draft by draft`, head, rows };
  }

  /** @param {number} number */
  _cardOf(number) {
    return this._judgedCards.find((card) => card.number === number) ?? null;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   */
  hit(x, y, width) {
    const place = this._layout(width).at(x, y);
    return place && this._hitOf(place);
  }

  /**
   * @param {TreePlace} place
   * @returns {Hit | null}
   */
  _hitOf({ number }) {
    const { film, row } = this.view;
    const entry = this._entry;
    if (number === ROOT) {
      const index = entry.length - 1;
      const token = quoted(film.text(film.token(entry.request, index)), 60);
      return { row, slot: null, index, hint: `pending token ${token}: all drafts follow it` };
    }
    if (number === OWN) {
      const card = this._judgedCards.find((each) => each.own);
      if (!card || card.emitted === null) return null;
      const token = quoted(film.text(card.emitted), 60);
      return {
        row,
        slot: null,
        index: card.index,
        hint: `the target's own ${token} — ${card.words}`,
      };
    }
    const node = this._nodes[number];
    return node ? this._nodeHit(node) : null;
  }

  /**
   * @param {TreeNode} node
   * @returns {Hit}
   */
  _nodeHit(node) {
    const { film, row } = this.view;
    const card = this._cardOf(node.number);
    const p = card?.p == null ? "" : `, p ${chance(card.p)}`;
    const rank = node.siblings > 1 ? `, ${node.rank} of ${node.siblings} siblings` : "";
    const said = `d${node.number + 1} ${quoted(film.text(node.token), 60)}, q ${chance(card?.q)}`;
    return {
      row,
      slot: node.slot,
      index: this._entry.length + node.depth - 1,
      draft: node.number,
      hint: `${said}${p}${rank} — ${card?.words ?? ""}`,
    };
  }

  /**
   * What an arrow key leads to from the draft that is pointed at; null for any other key.
   * @param {string} key
   */
  steer(key) {
    const nodes = this._nodes;
    if (!nodes.length || !key.startsWith("Arrow")) return null;
    const now = nodes[this._pointed()];
    if (!now) return this._nodeHit(nodes[0]);
    const siblings = nodes.filter((node) => node.depth === now.depth);
    const at = siblings.indexOf(now);
    /** @type {Record<string, TreeNode | undefined>} */
    const next = {
      ArrowLeft: nodes[now.parent],
      ArrowRight: nodes.find((node) => node.parent === now.number),
      ArrowUp: siblings[at - 1],
      ArrowDown: siblings[at + 1],
    };
    return this._nodeHit(next[key] ?? now);
  }
}

const LONGEST = "Green: the accepted branch. Over a draft: its rank among those of one parent.";

/**
 * @param {RowEntry} entry
 * @param {number} j
 */
function hasChild(entry, j) {
  return entry.drafts.some((_, k) => (entry.parents ? entry.parents[k] : k - 1) === j);
}

/**
 * The cards of a chain say of which draft they are by their place alone.
 * @param {CardData} card
 * @param {number} n
 * @param {CardData[]} all
 * @returns {CardData}
 */
function numbered(card, n, all) {
  if (card.number !== undefined) return card;
  const own = all.findIndex((each) => each.last);
  if (card.last) return card;
  return { ...card, number: n > own ? n - 1 : n };
}
