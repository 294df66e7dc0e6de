// MapSection: the run map on the page, whole or as low lanes. Its slider is
// transparent: it takes the focus and the keys, and tells screen readers where the run is.

import { element, iconButton, setAttribute, setText } from "../draw/elements.js";
import { CanvasPen } from "../draw/pen.js";
import { contextOf } from "../draw/text.js";
import { MapLegend } from "../map/maplegend.js";
import { RunMap } from "../map/runmap.js";
import { MapPointer } from "./mappointer.js";
import { runName } from "./run.js";
import { Section } from "./section.js";

/** @import { Desk, Drawable, Palette } from "../types.d.ts" */
/** @import { Shell } from "./shell.js" */

const ZOOM = 1.6;

export class MapSection extends Section {
  /** @param {Shell} shell */
  constructor(shell) {
    const map = new RunMap(
      shell,
      shell.runs.map(({ film }) => runName(film)),
    );
    super(deskOf(shell), map, [new MapLegend(map)]);
    this.shell = shell;
    this.map = map;
    this.pointer = new MapPointer(this);
    /** @type {{ key: string, palette: Palette, canvas: HTMLCanvasElement } | null} */
    this.lanes = null;
    this.slider = this._makeSlider();
    this.ways = [false, true].map((byTime) => this._way(byTime));
    this.totals = element("div", { class: "sv-totals" });
    this.said = element("p", { class: "sv-said", "aria-live": "polite" });
    this.addTools([this._tools()]);
    this.body.append(this.slider, this.totals, this.said);
  }

  _makeSlider() {
    const { shell } = this;
    const last = String(Math.max(shell.clocks - 1, 0));
    const range = { type: "range", min: "0", max: last, step: "1", value: "0" };
    const on = {
      input: () => shell.go(Number(this.slider.value)),
      keydown: (/** @type {KeyboardEvent} */ event) => this._key(event),
    };
    return element("input", { ...range, class: "sv-slider", "aria-label": "step", on });
  }

  /** @param {boolean} byTime */
  _way(byTime) {
    const click = () => this.setByTime(byTime);
    const attributes = { type: "button", class: "sv-small", title: "x", on: { click } };
    return element("button", attributes, byTime ? "time" : "rounds");
  }

  _tools() {
    /** @param {number} factor */
    const zoom = (factor) => () => this.zoom(factor);
    const ways = element("div", { class: "sv-group", role: "group", "aria-label": "across" });
    ways.append(...this.ways);
    ways.hidden = !this.map.axis.canTime;
    return element(
      "div",
      { class: "sv-group sv-maptools" },
      ways,
      iconButton("minus", "more of the run", "−", zoom(1 / ZOOM)),
      iconButton("fit", "the whole run", "0", zoom(0)),
      iconButton("plus", "less of the run", "+", zoom(ZOOM)),
    );
  }

  get low() {
    return this.map.low;
  }

  /** @param {boolean} low without heading, strips and legend */
  setLow(low) {
    this.map.low = low;
    this.root.classList.toggle("sv-low", low);
    this.desk.touch(this);
  }

  /** @param {number} width */
  fullHeight(width) {
    return this.map.layout(width, false).height + this.under[0].height(width);
  }
  /** @param {number} width */
  lowHeight(width) {
    return this.map.layout(width, true).height;
  }

  get byTime() {
    return this.map.axis.byTime;
  }

  // -- what the reader asks for

  /** @param {boolean} byTime */
  setByTime(byTime) {
    this.map.setByTime(byTime);
    this.desk.touch(this);
  }

  /** @param {number} factor 0 for the whole run */
  zoom(factor) {
    const { axis, middle } = this.map;
    if (factor) axis.zoomBy(factor, middle);
    else axis.reset();
    this.desk.touch(this);
  }

  mark() {
    this.map.mark();
    this.changed();
  }

  clear() {
    this.map.clear();
    this.changed();
  }

  changed() {
    this.desk.touch(this);
    const { lines } = this.map.totals();
    setText(this.said, lines.map(({ name, head, words }) => `${name}${head}: ${words}`).join(". "));
  }

  /**
   * With the focus on the map, the keys of the slots zoom and slide the map.
   * @param {KeyboardEvent} event
   */
  _key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    /** @type {Record<string, () => void>} */
    const actions = {
      "+": () => this.zoom(ZOOM),
      "=": () => this.zoom(ZOOM),
      "-": () => this.zoom(1 / ZOOM),
      0: () => this.zoom(0),
      ",": () => this._pan(-0.2),
      ".": () => this._pan(0.2),
      Escape: () => this.clear(),
    };
    const act = actions[event.key];
    if (!act || (event.key === "Escape" && !this.map.range)) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  /** @param {number} share */
  _pan(share) {
    this.map.axis.panBy(share);
    this.desk.touch(this);
  }

  // -- the pointer

  /** @param {PointerEvent} event */
  _press(event) {
    this.pointer.press(event);
  }
  /** @param {PointerEvent} event */
  _move(event) {
    this.pointer.move(event);
  }
  _release() {
    if (this.pointer.release()) this.changed();
  }
  /** @param {PointerEvent} event */
  _click(event) {
    this.slider.focus({ preventScroll: true });
    this.pointer.click(event);
    if (event.pointerType === "touch") this.pointer.move(event);
  }
  /** @param {WheelEvent} event */
  _wheel(event) {
    this.pointer.wheel(event, event.ctrlKey || document.activeElement === this.slider);
  }

  // -- drawing

  /**
   * The lanes are kept as a picture for as long as they look the same.
   * @param {any} canvas
   * @param {{ key: string, palette: Palette, panel: Drawable, ratio: number }} look
   */
  _redraw(canvas, look) {
    if (canvas !== this.canvas) return super._redraw(canvas, look);
    const height = this.map.height(this.width);
    const lanes = this._lanes(look, height);
    const context = this._clear(canvas, { height, ratio: look.ratio });
    const pen = this._pen(canvas, context, look);
    pen.forget();
    this.map.drawPlace(pen, this.width, () => {
      context.save();
      context.resetTransform();
      context.drawImage(lanes, 0, 0);
      context.restore();
      pen.forget();
    });
    return height;
  }

  /**
   * @param {{ palette: Palette, ratio: number }} look
   * @param {number} height
   */
  _lanes({ palette, ratio }, height) {
    const key = [this.map.lanesKey(), this.width, ratio].join();
    if (this.lanes?.key === key && this.lanes.palette === palette) return this.lanes.canvas;
    const canvas = this.lanes?.canvas ?? element("canvas");
    canvas.width = Math.round(this.width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = contextOf(canvas);
    context.scale(ratio, ratio);
    this.map.drawLanes(new CanvasPen(palette, context), this.width);
    this.lanes = { key, palette, canvas };
    return canvas;
  }

  tell() {
    super.tell();
    const { clock, clocks, phases, runs } = this.shell;
    const [{ film, view }] = runs;
    this.slider.value = String(clock);
    if (clocks) {
      const place = `round ${Math.floor(clock / phases)} of 0 to ${clocks / phases - 1}`;
      setAttribute(this.slider, "aria-valuetext", `${place}, ${film.phaseName(view.step)}`);
    }
    this.ways.forEach((button, n) =>
      setAttribute(button, "aria-pressed", String(this.map.axis.byTime === (n === 1))),
    );
    this._tellTotals();
  }

  _tellTotals() {
    const { lines, last } = this.map.totals();
    const key = JSON.stringify([lines, last]);
    if (key === this.totals.dataset.key) return;
    this.totals.dataset.key = key;
    const shown = lines.map(({ name, head, words }) =>
      element("p", {}, element("strong", {}, `${name}${head}`), ` ${words}`),
    );
    this.totals.replaceChildren(...shown, ...(last ? [element("p", {}, last)] : []));
  }
}

/**
 * @param {Shell} shell
 * @returns {Desk}
 */
function deskOf(shell) {
  return {
    palette: () => shell.palette,
    scale: () => shell.screen?.scale ?? 1,
    touch: (section) => shell.frames.touch(section),
    tip: (hint, event) => shell.tip.show(hint, event),
    point() {},
    pick: (row) => shell.pick(row),
    go: (step) => shell.go(step),
    happening: () => false,
    focus() {},
  };
}
