// PlacePainter: where in the map the reader is: the round, the row, the range that is selected.

import { blockIn, GUTTER } from "./layout.js";

/** @import { Pen, Range } from "../types.d.ts" */
/** @import { MapLayout } from "./layout.js" */
/** @import { RunMap } from "./runmap.js" */

const CLOSEST = 13; // px between two numbers of lanes

export class PlacePainter {
  /**
   * @param {Pen} pen
   * @param {RunMap} map
   * @param {MapLayout} layout
   */
  constructor(pen, map, layout) {
    this.pen = pen;
    this.map = map;
    this.layout = layout;
    this.end = GUTTER + layout.room;
  }

  /**
   * px of a range of rounds of a run, cut to what is seen; null where none is.
   * @param {number} run
   * @param {Range} rounds
   * @returns {Range | null}
   */
  _across(run, [first, stop]) {
    const { axis, tallies } = this.map;
    const [left, right] = [first, stop].map(
      (round) => GUTTER + axis.x(axis.start(tallies[run], round), this.layout.room),
    );
    if (right < GUTTER - 0.5 || left > this.end + 0.5) return null;
    return [Math.max(left, GUTTER), Math.min(right, this.end)];
  }

  under() {
    const { pen, layout, map } = this;
    layout.groups.forEach((group, run) => {
      const { view } = map.shell.runs[run];
      const request = map.shell.runs[run].requestOf(view.row);
      const y = request === null ? null : layout.laneY(run, request);
      const { h } = blockIn(group.pitch);
      if (map.range) this._range(run, map.axis.roundsIn(map.tallies[run], map.range));
      if (y !== null)
        pen.rect(GUTTER, y - 1, layout.room, h + 2, { fill: pen.p.blueSoft, radius: 2 });
    });
  }

  /**
   * @param {number} run
   * @param {Range} rounds
   */
  _range(run, rounds) {
    const place = rounds[1] > rounds[0] ? this._across(run, rounds) : null;
    if (!place) return;
    const { pen, layout } = this;
    const { lanes, bottom } = layout.groups[run];
    const [left, right] = place;
    const [top, height] = [lanes - 3, bottom - lanes + 3];
    pen.rect(left, top, right - left, height, { fill: pen.p.blueSoft });
    for (const x of place)
      pen.rect(Math.min(x, right - 1.5), top, 1.5, height, { fill: pen.p.blue });
  }

  over() {
    const { pen, layout, map } = this;
    layout.groups.forEach((group, run) => {
      const { film, view } = map.shell.runs[run];
      const round = film.round(view.step);
      const place = this._across(run, [round, round + 1]);
      if (layout.two) this._name(run);
      this._numbers(run);
      this._bar(run);
      if (!place) return;
      const [left, right] = place;
      const w = Math.max(right - left, 3);
      const x = Math.min(left, this.end - w);
      const height = group.bottom - group.lanes + (layout.two ? -2 : 2);
      pen.rect(x - 1.5, group.lanes - 3, w + 2, height, {
        stroke: pen.p.blue,
        width: 1.75,
        radius: 2,
      });
    });
    this._playhead();
  }

  /** @param {number} run */
  _name(run) {
    const { pen, layout, map } = this;
    const { name } = layout.groups[run];
    const words = map.lanes ? map.names[run] : `${run ? "second" : "first"}: ${map.names[run]}`;
    pen.text(words, 12, name + 9, { size: 11, weight: 650, max: layout.width - 24 });
  }

  /**
   * The requests' numbers, as many as fit, and that of the chosen one.
   * @param {number} run
   */
  _numbers(run) {
    const { pen, layout, map } = this;
    const { lanes, first, shown, pitch } = layout.groups[run];
    const { h } = blockIn(pitch);
    const chosen = map.shell.runs[run].requestOf(map.shell.runs[run].view.row);
    const every = [1, 2, 4, 8, 16, 32].find((n) => n * pitch >= (n > 1 ? CLOSEST : 10)) ?? 64;
    const look = { size: 10, fill: pen.p.muted, align: "right" };
    const at = chosen === null ? -1 : chosen - first;
    for (let place = 0; place < shown; place++) {
      const request = first + place;
      const near = Math.abs(place - at) * pitch < 11 && at >= 0 && at < shown;
      if (request % every || near) continue;
      pen.text(`${request}`, GUTTER - 8, lanes + place * pitch + h / 2 + 0.5, look);
    }
    if (at < 0 || at >= shown) return;
    const y = Math.max(lanes + at * pitch + h / 2 + 0.5, 6);
    const own = { ...look, weight: 700, fill: pen.p.blue };
    const words = `request ${chosen}`;
    const size = own.size * Math.min(1, (GUTTER - 10) / pen.measure(words, own));
    pen.text(words, GUTTER - 8, y, { ...own, size });
  }

  /**
   * Which of the lanes are seen, where not all are.
   * @param {number} run
   */
  _bar(run) {
    const { pen, layout } = this;
    const { lanes, first, shown, count, pitch } = layout.groups[run];
    if (shown >= count) return;
    const height = shown * pitch;
    const x = layout.width - 5;
    pen.rect(x, lanes, 3, height, { fill: pen.p.greySoft });
    const top = lanes + (height * first) / count;
    pen.rect(x, top, 3, Math.max((height * shown) / count, 6), { fill: pen.p.grey });
  }

  /** px of the round's number on the axis; where it is not seen, none. */
  playhead() {
    const { words, x } = this._head();
    const half = this.map.measure(words) / 2;
    return /** @type {Range} */ ([x - half, x + half]);
  }

  _head() {
    const { map, layout } = this;
    const { film, view } = map.shell.runs[map.lead];
    const round = film.round(view.step);
    const place = this._across(map.lead, [round, round + 1]);
    const words = map.axis.byTime ? `round ${round}` : `${round}`;
    if (!place) return { words, x: -99, shown: false };
    const half = map.measure(words) / 2;
    const middle = (place[0] + place[1]) / 2;
    return { words, x: Math.min(middle, layout.width - half - 2), shown: true };
  }

  _playhead() {
    const { pen, layout } = this;
    const { words, x, shown } = this._head();
    const look = { size: 11, weight: 700, fill: pen.p.blue, align: "center" };
    if (shown) pen.text(words, x, layout.ruler + 11, look);
  }
}
