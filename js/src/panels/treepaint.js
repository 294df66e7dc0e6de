// TreePainter: how the drafts of a tree look: thick green lines along what was accepted, hollow what
// the target does not verify, blue the branch that is pointed at.

import { chance, drawChip } from "../draw/words.js";
import { MARKS } from "../film/cards.js";
import { HOLLOW } from "./cut.js";
import { OWN, ROOT } from "./treelayout.js";

/** @import { CardData, LineLook, Pen, TreeNode, TreePlace, View } from "../types.d.ts" */
/** @import { TreeLayout } from "./treelayout.js" */

const CHIP = 20; // px, the height of a token

export class TreePainter {
  /**
   * @param {Pen} pen
   * @param {View} view
   * @param {TreeLayout} at
   * @param {{ nodes: TreeNode[], cards: CardData[], lit: number[] }} tree
   */
  constructor(pen, view, at, { nodes, cards, lit }) {
    this.pen = pen;
    this.p = pen.p;
    this.view = view;
    this.at = at;
    this.nodes = nodes;
    this.cards = cards;
    this.lit = new Set(lit);
  }

  paint() {
    const own = this.cards.find((card) => card.own);
    const shown = this.at.places.filter(
      (each) => each.number === ROOT || (each.own ? own !== undefined : this.nodes.length > 0),
    );
    // What is thick lies over what is thin.
    const edges = shown.filter((each) => each.number !== ROOT);
    const ranked = edges.map((each) => /** @type {const} */ ([this._edge(each), each]));
    ranked.sort(([one], [other]) => (one.width ?? 1) - (other.width ?? 1));
    for (const [look, place] of ranked) this._line(place, look);
    for (const place of shown) this._node(place);
  }

  /** @param {TreePlace} place */
  _card({ number, own }) {
    return this.cards.find((card) => (own ? card.own : card.number === number)) ?? null;
  }

  /**
   * @param {TreePlace} place
   * @param {CardData} card
   */
  _fate({ own }, { fate }) {
    return own && fate !== "wrong" ? "bonus" : fate;
  }

  /**
   * @param {TreePlace} place
   * @returns {LineLook}
   */
  _edge(place) {
    const { p } = this;
    const fate = this._card(place)?.fate ?? "";
    if (this.lit.has(place.number)) return { stroke: p.blue, width: 2.5 };
    if (place.own) return { stroke: fate === "wrong" ? p.red : p.amber, width: 3 };
    if (fate === "accepted" || fate === "kept") return { stroke: p.green, width: 3 };
    if (fate === "unverified") return { stroke: p.grey, dash: HOLLOW };
    return { stroke: p.grey, width: 1 };
  }

  /**
   * From the parent's right edge to the child's left one, at right angles.
   * @param {TreePlace} place
   * @param {LineLook} look
   */
  _line(place, look) {
    const { pen, at } = this;
    const parent = at.place(place.parent);
    if (!parent) return;
    const from = parent.x + at.w;
    const middle = (from + place.x) / 2;
    const half = (look.width ?? 1) / 2;
    pen.line(from, parent.y, middle, parent.y, look);
    const down = Math.sign(place.y - parent.y) * half;
    if (down) pen.line(middle, parent.y - down, middle, place.y + down, look);
    pen.line(middle, place.y, place.x, place.y, look);
  }

  /** @param {TreePlace} place */
  _node(place) {
    if (place.number === ROOT) return this._root(place);
    const { pen, p, at } = this;
    const card = this._card(place);
    if (!card) return;
    const token = place.own ? card.emitted : card.draft;
    const lit = this.lit.has(place.number);
    const fate = this._fate(place, card);
    const { strong, soft } = this._colours(fate);
    const hollow = fate === "unverified";
    const taken = ["accepted", "kept", "bonus"].includes(fate);
    drawChip(pen, this.view.film.text(token), place.x, place.y, at.w, {
      fill: hollow ? undefined : lit ? p.blueSoft : soft,
      stroke: lit ? p.blue : strong,
      dash: hollow ? HOLLOW : taken ? undefined : [3, 2],
      height: CHIP,
      width: at.w,
    });
    if (lit)
      pen.rect(place.x, place.y - CHIP / 2, at.w, CHIP, { stroke: p.blue, width: 2, radius: 5 });
    if (at.detail) this._name(place, card, strong);
    if (at.detail === 2 && !place.own) this._numbers(place, card);
  }

  /** @param {TreePlace} place */
  _root(place) {
    const { pen, p, at } = this;
    const { film, step, row } = this.view;
    const { request, length } = film.rows(step)[row];
    const text = film.text(film.token(request, length - 1));
    drawChip(pen, text, place.x, place.y, at.w, {
      fill: p.page,
      stroke: p.blue,
      height: CHIP,
      width: at.w,
    });
    if (at.detail)
      pen.text("pending", place.x, place.y - CHIP / 2 - 7, {
        size: 10.5,
        fill: p.muted,
        max: at.w,
      });
  }

  /**
   * Over the token: its name, its rank among the drafts of its parent, and the sign of its fate.
   * @param {TreePlace} place
   * @param {CardData} card
   * @param {string} strong
   */
  _name(place, card, strong) {
    const { pen, p, at } = this;
    const y = place.y - CHIP / 2 - 7;
    const fate = this._fate(place, card);
    const sign = MARKS[fate]?.sign ?? "";
    const quiet = MARKS[fate]?.pale || fate === "waiting";
    const own = place.own ? "bonus" : card.name;
    const name = { size: 10.5, weight: 700, fill: quiet ? p.muted : p.ink };
    pen.text(own, place.x, y, { ...name, max: at.w - 14 });
    pen.text(sign, place.x + at.w, y, {
      size: 11,
      weight: 700,
      fill: quiet ? p.muted : strong,
      align: "right",
    });
    const node = this.nodes[place.number];
    if (!node || place.number === OWN || node.siblings < 2) return;
    const x = place.x + pen.measure(card.name, name) + 5;
    const rank = `${node.rank}/${node.siblings}`;
    if (x + pen.measure(rank, { size: 10 }) < place.x + at.w - 14)
      pen.text(rank, x, y, { size: 10, fill: p.muted });
  }

  /**
   * Under the token: q and p.
   * @param {TreePlace} place
   * @param {CardData} card
   */
  _numbers(place, card) {
    const { pen, p, at } = this;
    const y = place.y + CHIP / 2 + 8;
    const look = { size: 10.5, fill: p.muted, max: at.w };
    const q = `q ${chance(card.q)}`;
    const target = card.p === null ? "" : `p ${chance(card.p)}`;
    pen.text(q, place.x, y, look);
    if (!target) return;
    if (at.stacked) pen.text(target, place.x, y + 12, look);
    else pen.text(target, place.x + at.w, y, { ...look, align: "right" });
  }

  /** @param {string} fate */
  _colours(fate) {
    const { p } = this;
    /** @type {Record<string, { strong: string, soft: string }>} */
    const colours = {
      waiting: { strong: p.blue, soft: p.blueSoft },
      accepted: { strong: p.green, soft: p.greenSoft },
      kept: { strong: p.green, soft: p.greenSoft },
      rejected: { strong: p.orange, soft: p.orangeSoft },
      bonus: { strong: p.amber, soft: p.amberSoft },
      discarded: { strong: p.amber, soft: p.amberSoft },
      wrong: { strong: p.red, soft: p.redSoft },
    };
    return colours[fate] ?? { strong: p.grey, soft: p.greySoft };
  }
}
