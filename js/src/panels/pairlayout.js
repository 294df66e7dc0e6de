// PairLayout: where the rows of one of two runs lie, so that each request's rows stand one above the
// other on one axis: both runs have the same scale, and the rows of a request begin alike. Knows no
// colours and draws nothing.

import { mostLines, mostPairs, pairsAt } from "../film/pairing.js";
import { StageLayout } from "./layout.js";
import { stripIn } from "./strip.js";

/** @import { Film, Pair, RowEntry, View } from "../types.d.ts" */
/** @import { RowPair } from "../film/pairing.js" */

const BETWEEN = 5; // px between the rows of two requests
export const MOST_OPEN = 8; // rows of both runs up to which all may be open
const MOST_READ = 24; // rows up to which those that are not open show texts
const SPREAD = 8; // slots that the rows of a request may lie apart and still be seen both

export class PairLayout extends StageLayout {
  /** @returns {Pair} */
  get pair() {
    return /** @type {Pair} */ (this.view.pair);
  }
  get views() {
    return this.pair.views;
  }
  get number() {
    return this.pair.number;
  }
  get name() {
    return this.pair.names[this.number];
  }
  _pair() {
    const { views } = this;
    return pairsAt(
      views.map(({ film }) => film),
      views.map(({ step }) => step),
    );
  }
  /** How far a round goes at most behind the pending token. */
  get own() {
    return Math.max(...this.views.map(({ film, step }) => super._span(film.rows(step))));
  }

  /**
   * The pending slots of a request's rows when their rounds began; those in the batch only.
   * @param {RowPair} pair
   */
  _begins({ rows }) {
    return this._each(rows, ({ film, step }, row) => beginOf(film, step, row));
  }
  /**
   * The number of committed tokens then.
   * @param {RowPair} pair
   */
  _lengths({ rows }) {
    return this._each(rows, (_, row) => row.length);
  }
  /**
   * Behind the last position that their rounds may take.
   * @param {RowPair} pair
   */
  _ends({ rows }) {
    return this._each(rows, ({ film, step }, row) => {
      const number = film.rowOf(step, row.request);
      const last = film
        .lane(step, "tokens", number)
        .filter(([, , , index]) => index >= 0)
        .at(-1);
      const [from, stop, , index, position] = last ?? [0, 0, 0, 0, 0];
      const behind = (position < 0 ? index : position) + stop - from;
      return Math.max(row.length + this.own + 1, behind + 1);
    });
  }
  /**
   * @param {number[]} rows
   * @param {(view: View, row: RowEntry) => number} of
   */
  _each(rows, of) {
    return this.views.flatMap((view, run) =>
      rows[run] < 0 ? [] : [of(view, view.film.rows(view.step)[rows[run]])],
    );
  }

  _last() {
    return Math.max(...this.views.map(({ film, step }) => super._last(film, step)));
  }

  _span() {
    /** @param {number[]} places */
    const spread = (places) => Math.max(...places) - Math.min(...places);
    const apart = this.pairs.map((pair) =>
      this.view.turn > 0.5
        ? Math.max(...this._ends(pair)) - Math.min(...this._lengths(pair)) - this.own - 1
        : spread(this._begins(pair)),
    );
    return this.own + Math.min(Math.max(...apart, 0), SPREAD);
  }

  /** The rows of a request begin with the same slot. */
  _firsts() {
    const slid = Math.round(this.view.pan ?? 0);
    const most = Math.max(this.last - this.count, 0);
    const firsts = this.rows.map(() => 0);
    for (const pair of this.pairs) {
      const ends = this._each(pair.rows, ({ film, step }, row) =>
        Math.max(beginOf(film, step, row) + this.own + 2, row.pending_after + 1),
      );
      const row = pair.rows[this.number];
      if (row >= 0)
        firsts[row] = Math.min(Math.max(Math.max(...ends) - this.count - slid, 0), most);
    }
    return firsts;
  }

  /** By row, the first position at full width, the same one in both runs. */
  heads() {
    const slid = Math.round(this.view.pan ?? 0);
    const heads = this.rows.map(() => 0);
    for (const pair of this.pairs) {
      const row = pair.rows[this.number];
      const end = Math.max(...this._ends(pair));
      if (row >= 0) heads[row] = Math.max(end - this.count - slid, 0);
    }
    return heads;
  }

  _rowTops() {
    const { comparison } = this.pair;
    const { lanes } = comparison;
    const most = mostLines(comparison);
    const open = this.openHeight;
    const all = most <= MOST_OPEN && !this.view.dense;
    const read = most <= MOST_READ && this.view.dense < 2;
    const compact = all ? open : read ? 25 : 13;
    const between = all || read ? BETWEEN : 2;
    const { chosen } = this;
    let y = this.top;
    for (const { request, rows } of this.pairs) {
      const wide = all || chosen.includes(request);
      const height = wide ? open : compact;
      const [own, other] = [rows[this.number], rows[1 - this.number]];
      const top = this.number && !(lanes && other < 0) ? y + height : y;
      if (own >= 0) this.lanes[own] = this._lane(top, height, wide);
      // That a request is in the other lane is the rule, and needs neither room nor words.
      else if (!lanes) this.gaps.push({ request, y: top, height });
      y += (lanes ? rows.filter((row) => row >= 0).length : 2) * height + between;
    }
    const reserved = (most - 2) * compact + 2 * open + between * mostPairs(comparison);
    this.bottom = Math.max(this.top + reserved, y);
    if (this.number) this.bottom += stripIn(this.views[0].film.capacity, this.room).height;
  }

  /** The requests whose rows are chosen: the first run's, and of two lanes the second one's, too. */
  get chosen() {
    const choosing = this.pair.comparison.lanes ? this.views : this.views.slice(0, 1);
    return choosing.map(({ film, step, row }) => film.rows(step)[row]?.request);
  }
}

/**
 * Slot of a row's pending token when the round began, where it lies now.
 * @param {Film} film
 * @param {number} step
 * @param {RowEntry} row
 */
function beginOf(film, step, row) {
  const moved = film.phase(step) === film.phases - 1 ? row.start_after - row.start : 0;
  return row.pending + moved;
}
