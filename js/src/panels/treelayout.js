// TreeLayout: where the drafts of a tree lie, in px: parents left of their children, each branch in
// a line of its own. Draws nothing.

import { PAD } from "../draw/words.js";

/** @import { RowEntry, TreePlace } from "../types.d.ts" */

// From how many branches on nodes have less to say: without q and p, then without a name.
const PLAIN_FROM = 13;
const BARE_FROM = 25;
const WIDEST = 150; // px of a column
const GAP = 20; // px between columns, where the lines run
const TOP = 6;
const FOOT = 26; // px of the line of words under the tree

export const ROOT = -1;
export const OWN = -2;

export class TreeLayout {
  /**
   * @param {RowEntry} entry
   * @param {{ last: number, gained: boolean }} own the draft that the target's own token follows
   * @param {number} width
   */
  constructor(entry, own, width) {
    /** @type {Map<number, number[]>} */
    this.children = new Map();
    const parents = entry.parents ?? entry.drafts.map((_, j) => j - 1);
    parents.forEach((parent, j) => this._add(parent, j));
    if (own.gained) this._add(own.last, OWN);
    /** @type {Map<number, { depth: number, line: number }>} */
    this._nodes = new Map();
    this.lines = 0;
    this.deepest = 0;
    this._lay(ROOT, 0);
    this.detail = this.lines < PLAIN_FROM ? 2 : this.lines < BARE_FROM ? 1 : 0;
    this.pitch = [24, 40, 56][this.detail];
    const columns = this.deepest + 1;
    const room = width - 2 * PAD;
    this.column = Math.min(room / columns, WIDEST + GAP);
    this.w = this.column - GAP;
    // In narrow columns q and p stand under each other.
    this.stacked = this.detail === 2 && this.w < 92;
    if (this.stacked) this.pitch += 12;
    this.height = TOP + this.lines * this.pitch + FOOT;
    this.words = this.height - FOOT / 2;
    /** @type {TreePlace[]} */
    this.places = [...this._nodes].map(([number, { depth, line }]) => ({
      number,
      parent: number === OWN ? own.last : number === ROOT ? ROOT : parents[number],
      x: PAD + depth * this.column,
      y: TOP + (line + 0.5) * this.pitch - [0, -6, this.stacked ? 6 : 0][this.detail],
      own: number === OWN,
    }));
  }

  /**
   * @param {number} parent
   * @param {number} child
   */
  _add(parent, child) {
    this.children.set(parent, [...(this.children.get(parent) ?? []), child]);
  }

  /**
   * A node without children takes a line; any other stands in the middle of its children.
   * @param {number} number
   * @param {number} depth
   * @returns {number}
   */
  _lay(number, depth) {
    const lines = (this.children.get(number) ?? []).map((child) => this._lay(child, depth + 1));
    const line = lines.length ? (lines[0] + lines[lines.length - 1]) / 2 : this.lines++;
    this._nodes.set(number, { depth, line });
    this.deepest = Math.max(this.deepest, depth);
    return line;
  }

  /** @param {number} number */
  place(number) {
    return this.places.find((each) => each.number === number) ?? null;
  }

  /**
   * The node at a point, null beside all of them.
   * @param {number} x
   * @param {number} y
   */
  at(x, y) {
    /** @param {TreePlace} at */
    const holds = (at) =>
      x >= at.x && x < at.x + this.w && Math.abs(y - at.y) < Math.min(this.pitch / 2, 30);
    return this.places.find(holds) ?? null;
  }
}
