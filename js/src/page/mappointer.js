// MapPointer: what the pointer does on the run map. A click leads to a round of a request, a drag
// selects rounds, a drag along the axis goes through the steps, and the wheel zooms.

import { GUTTER } from "../map/layout.js";

/** @import { MapSection } from "./mapsection.js" */

const STILL = 4; // px that a click may move
const SPEED = 0.003; // of zooming, for each px of the wheel
const LANES = 3; // that one turn of the wheel slides

export class MapPointer {
  /** @param {MapSection} section */
  constructor(section) {
    this.section = section;
    this.map = section.map;
    this.shell = section.shell;
    this.pressed = false;
    this.scrubs = false; // along the axis
    this.selects = false;
    this.x = 0;
    this.value = 0;
  }

  /** @param {PointerEvent} event */
  press(event) {
    if (event.button !== 0) return;
    const { offsetX: x, offsetY: y } = event;
    const { part, value } = this.map.spot(x, y, this.section.width);
    Object.assign(this, { pressed: true, scrubs: part === "ruler", selects: false, x, value });
    this.section.canvas.setPointerCapture(event.pointerId);
    if (this.scrubs) this._scrub(x);
  }

  /** @param {PointerEvent} event */
  move(event) {
    const { offsetX: x, offsetY: y } = event;
    const { desk, width } = this.section;
    if (!this.pressed) return desk.tip(this.map.hint(x, y, width), event);
    if (this.scrubs) return this._scrub(x);
    if (!this.selects && Math.abs(x - this.x) < STILL) return;
    this.selects = true;
    desk.tip(null);
    const value = this.map.value(Math.max(x, GUTTER), width);
    this.map.select([Math.min(value, this.value), Math.max(value, this.value)]);
    desk.touch(this.section);
  }

  /** Whether a range has been selected. */
  release() {
    this.pressed = false;
    return this.selects;
  }

  /** @param {PointerEvent} event */
  click({ offsetX: x, offsetY: y }) {
    const { shell, map, section } = this;
    if (this.selects || this.scrubs) return;
    const { part, run, request, round } = map.spot(x, y, section.width);
    if (map.range) section.clear();
    if (part === "none") return;
    const { film, view } = shell.runs[run];
    const at = Math.min(Math.max(round, 0), map.tallies[run].rounds - 1);
    if (x >= GUTTER) shell.goTo(shell.runs[run], at * film.phases + film.phase(view.step));
    if (request !== null) shell.pick(request);
  }

  /**
   * To the step at a place of the axis.
   * @param {number} x
   */
  _scrub(x) {
    const { map, shell, section } = this;
    const value = map.value(x, section.width);
    shell.goTo(shell.runs[map.lead], map.axis.stepAt(map.tallies[map.lead], value));
  }

  /**
   * Over the names it slides lanes that do not all fit; sideways it slides what is seen. It zooms
   * if `zooms` is true; else it is the page's.
   * @param {WheelEvent} event
   * @param {boolean} zooms
   */
  wheel(event, zooms) {
    const { map, section } = this;
    const { deltaX, deltaY, offsetX, offsetY } = event;
    const sideways = event.shiftKey || Math.abs(deltaX) > Math.abs(deltaY);
    if (sideways) {
      if (!map.axis.zoomed) return;
      map.axis.panBy((deltaX || deltaY) / section.width);
    } else if (offsetX < GUTTER) {
      const { run } = map.spot(offsetX, offsetY, section.width);
      if (!map.scroll(run, Math.sign(deltaY) * LANES)) return;
    } else {
      const about = map.value(offsetX, section.width);
      if (!zooms || !map.axis.zoomBy(Math.exp(-deltaY * SPEED), about)) return;
    }
    event.preventDefault();
    section.desk.touch(section);
  }
}
