// Section: a panel on the page, with its heading, its canvas, and the same as a table. Knows no
// film.

import { element, setAttribute, setText, tableElement } from "../draw/elements.js";
import { CanvasPen } from "../draw/pen.js";
import { placeOf } from "./place.js";
import { bandOf } from "./tip.js";
import { sideways } from "./wheel.js";

/** @import { Desk, Drawable, Palette, Panel } from "../types.d.ts" */

/**
 * What a drawing depends on; a drawing that was prepared has a picture too.
 * @typedef {{ key: string, palette: Palette, panel: Drawable, ratio: number }} Look
 * @typedef {Look & { aside: OffscreenCanvas, height: number, picture: ImageBitmap }} Prepared
 */

export class Section {
  /**
   * under: what is drawn below the panel, and cannot be pointed at
   * @param {Desk} desk
   * @param {Panel} panel
   * @param {Drawable[]} [under]
   */
  constructor(desk, panel, under = []) {
    this.desk = desk;
    this.panel = panel;
    this.under = under;
    this.width = 0;
    this.asTable = false;
    this.aside = false; // another panel is seen in its place
    this.dragging = false;
    this.dragged = false;
    /** @type {Map<Element | OffscreenCanvas, CanvasPen & { ratio: number }>} */
    this.pens = new Map();
    /** @type {Map<HTMLCanvasElement, Look>} */
    this.drawn = new Map();
    /** @type {Map<HTMLCanvasElement, Prepared>} */
    this.ready = new Map();
    this.heading = element("h3");
    const click = () => this.showTable(!this.asTable);
    this.toggle = element(
      "button",
      { type: "button", class: "sv-small", "aria-pressed": "false", on: { click } },
      "table",
    );
    this.canvas = this._makeCanvas();
    this.legends = under.map(() => element("canvas", { role: "img", class: "sv-legend" }));
    this.tableBox = element("div", {
      class: "sv-table",
      tabindex: "0",
      role: "group",
      hidden: true,
    });
    this.body = element("div", { class: "sv-body" }, this.canvas, this.tableBox, ...this.legends);
    this.head = element("div", { class: "sv-head" }, this.heading, this.toggle);
    this.root = element(
      "div",
      { class: `sv-panel sv-${/** @type {any} */ (panel.constructor).id}` },
      this.head,
      this.body,
    );
    this.observer = new ResizeObserver(() => this._resized());
    this.observer.observe(this.body);
  }

  dispose() {
    this.observer.disconnect();
  }

  /** @param {HTMLElement[]} tools beside the heading */
  addTools(tools) {
    for (const tool of tools) this.head.insertBefore(tool, this.toggle);
  }

  _makeCanvas() {
    /** @type {Record<string, (event: any) => void>} */
    const on = {
      pointermove: (event) => this._move(event),
      pointerleave: () => this._leave(),
      pointerdown: (event) => this._press(event),
      pointerup: () => this._release(),
      pointercancel: () => this._release(),
      click: (event) => this._click(event),
      wheel: (event) => this._wheel(event),
    };
    return element("canvas", { role: "img", on });
  }

  _resized() {
    const width = Math.floor(this.body.clientWidth);
    if (width === this.width || !width) return; // out of sight it keeps its width
    this.width = width;
    this.desk.touch(this);
  }

  /** @param {boolean} shown */
  showTable(shown) {
    this.asTable = shown;
    this.toggle.setAttribute("aria-pressed", String(shown));
    this.canvas.hidden = shown;
    this.tableBox.hidden = !shown;
    this.desk.touch(this);
  }

  // False: it could not be drawn, because it has no place on the page yet.
  paint() {
    const hidden = this.aside || this.panel.empty();
    if (this.root.hidden !== hidden) this.root.hidden = hidden;
    if (hidden) return true;
    this.width ||= Math.floor(this.body.clientWidth);
    if (!this.width) return false;
    if (!this.asTable) this._draw(this.canvas, this.panel);
    this.under.forEach((panel, n) => this._draw(this.legends[n], panel));
    return true;
  }

  // All that is not drawn, once all panels are: a canvas asks for its style, which every change of
  // the page makes out of date.
  tell() {
    if (this.root.hidden || !this.width) return;
    const title = this.panel.title();
    setText(this.heading, this.panel.heading?.() ?? title);
    setAttribute(this.toggle, "aria-label", `show as table: ${title}`);
    if (this.asTable) this._fillTable();
    for (const [canvas, { panel }] of this.drawn)
      setAttribute(canvas, "aria-label", panel.describe());
  }

  _fillTable() {
    const table = this.panel.table();
    setAttribute(
      this.tableBox,
      "aria-label",
      [this.panel.title(), table.caption].filter(Boolean).join(". "),
    );
    this.tableBox.replaceChildren(tableElement(table));
  }

  /**
   * A panel looks the same as long as this does.
   * @param {Drawable} panel
   */
  _look(panel) {
    const ratio = (window.devicePixelRatio || 1) * this.desk.scale();
    return {
      key: `${panel.key()} ${this.width} ${ratio}`,
      palette: this.desk.palette(),
      panel,
      ratio,
    };
  }

  /**
   * What looks the same is not drawn again, and of what was drawn ahead the picture is shown.
   * @param {any} canvas
   * @param {Drawable} panel
   */
  _draw(canvas, panel) {
    const look = this._look(panel);
    const ready = this.ready.get(canvas);
    if (alike(this.drawn.get(canvas), look)) return;
    this.drawn.set(canvas, look);
    if (!ready || !alike(ready, look)) {
      this._redraw(canvas, look);
      return;
    }
    const context = this._clear(canvas, ready);
    context.resetTransform(); // pixel by pixel
    context.drawImage(ready.picture, 0, 0);
  }

  /**
   * @param {any} canvas
   * @param {Look} look
   */
  _redraw(canvas, look) {
    const height = Math.ceil(look.panel.height(this.width));
    const pen = this._pen(canvas, this._clear(canvas, { ...look, height }), look);
    pen.forget();
    look.panel.draw(pen, this.width, height);
    return height;
  }

  /**
   * @param {any} canvas
   * @param {{ height: number; ratio: number }} at
   */
  _clear(canvas, { height, ratio }) {
    const [w, h] = [Math.round(this.width * ratio), Math.round(height * ratio)];
    const context = canvas.getContext("2d");
    if (canvas.width !== w || canvas.height !== h) {
      [canvas.width, canvas.height] = [w, h];
      if (canvas.style) canvas.style.height = `${height}px`;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, height);
    return context;
  }

  // Draw out of sight what the panels will look like; the desk sees to it that they know.
  prepare() {
    if (this.aside || this.asTable || !this.width || this.panel.empty()) return;
    [this.panel, ...this.under].forEach((panel, n) => {
      const canvas = [this.canvas, ...this.legends][n];
      const look = this._look(panel);
      const known = this.ready.get(canvas);
      if (alike(this.drawn.get(canvas), look) || alike(known, look)) return;
      const aside = known?.aside ?? new OffscreenCanvas(1, 1);
      const height = this._redraw(aside, look);
      known?.picture.close();
      this.ready.set(canvas, { ...look, aside, height, picture: aside.transferToImageBitmap() });
    });
  }

  /**
   * A pen keeps patterns that belong to one palette and one resolution.
   * @param {any} canvas
   * @param {CanvasRenderingContext2D} context
   * @param {Look} at
   */
  _pen(canvas, context, { palette, ratio }) {
    const kept = this.pens.get(canvas);
    if (kept?.p === palette && kept.ratio === ratio) return kept;
    const pen = Object.assign(new CanvasPen(palette, context), { ratio });
    this.pens.set(canvas, pen);
    return pen;
  }

  /** @param {any} event */
  _move(event) {
    if (this.dragging) {
      if (this.panel.drag?.(event.offsetX, event.offsetY, this.width)) this.desk.touch(this);
      return;
    }
    const found = this.panel.hit(event.offsetX, event.offsetY, this.width);
    this.desk.point(found && placeOf(found));
    this.desk.tip(found?.hint, event, bandOf(event, found, this.desk.scale()));
  }

  _leave() {
    this.desk.point(null);
    this.desk.tip(null);
  }

  /** @param {any} event */
  _press(event) {
    this.dragged = Boolean(this.panel.drag?.(event.offsetX, event.offsetY, this.width));
    if (!this.dragged) return;
    this.dragging = true;
    this.canvas.setPointerCapture(event.pointerId);
    this.desk.touch(this);
  }

  _release() {
    this.dragging = false;
  }

  /** @param {any} event */
  _click(event) {
    if (this.dragged) return;
    const [x, y] = [event.offsetX, event.offsetY];
    if (this.panel.click) this.panel.click(x, y, this.width);
    else this._pick(x, y);
    // A finger cannot point without a tap.
    if (event.pointerType === "touch") this._move(event);
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  _pick(x, y) {
    const found = this.panel.hit(x, y, this.width);
    if (found && found.row !== null && found.row !== undefined) this.desk.pick(found.row);
  }

  /**
   * Sideways: the stage slides. Anything else belongs to the page.
   * @param {any} event
   */
  _wheel(event) {
    const px = sideways(event);
    if (!this.panel.panBy || !px) return;
    event.preventDefault();
    this.panel.panBy(px / 30);
    this.desk.touch(this);
  }
}

/**
 * @param {Look | undefined} one
 * @param {Look} other
 */
function alike(one, other) {
  return one?.key === other.key && one.palette === other.palette;
}
