// Pens: one set of strokes for a canvas and for SVG, in CSS pixels from the top left. Knows no run
// and no panel.

import { contextOf, cutText, fontOf, measureText } from "./text.js";

/** @import { BoxLook, LineLook, Palette, TextLook } from "../types.d.ts" */

export class Pen {
  /** @param {Palette} palette */
  constructor(palette) {
    this.p = palette;
  }

  /**
   * Draw in the colours of another palette.
   * @param {Palette} palette
   * @param {() => void} draw
   */
  inColours(palette, draw) {
    const own = this.p;
    this.p = palette;
    draw();
    this.p = own;
  }
  /**
   * @param {string} string
   * @param {TextLook} [look]
   */
  measure(string, look = {}) {
    return measureText(string, fontOf(look));
  }
  /**
   * @param {string} string
   * @param {number} max
   * @param {TextLook} [look]
   */
  cut(string, max, look = {}) {
    return cutText(string, max, fontOf(look));
  }

  /**
   * @param {number[][]} _points
   * @param {BoxLook} _look
   */
  _path(_points, _look) {}

  /**
   * @param {number} x1
   * @param {number} y1
   * @param {number} x2
   * @param {number} y2
   * @param {LineLook} at
   */
  line(x1, y1, x2, y2, { stroke, width = 1, dash, arrow = false }) {
    this._path(
      [
        [x1, y1],
        [x2, y2],
      ],
      { stroke, width, dash },
    );
    if (!arrow) return;
    const angle = Math.atan2(y2 - y1, x2 - x1);
    const size = 4 + width;
    /** @param {number} turn */
    const wing = (turn) => [x2 - size * Math.cos(angle + turn), y2 - size * Math.sin(angle + turn)];
    this._path([wing(0.5), [x2, y2], wing(-0.5)], { fill: stroke });
  }
}

export class CanvasPen extends Pen {
  /**
   * @param {Palette} palette
   * @param {CanvasRenderingContext2D} context
   */
  constructor(palette, context) {
    super(palette);
    this.context = context;
    /** @type {Map<string, CanvasPattern>} */
    this._hatches = new Map();
    /** @type {Record<string, unknown>} */
    this._state = {};
    this.forget();
  }

  // Setting a property of the context is most of what drawing costs, so none is set twice to the
  // same value. To be called when the context may have lost its properties.
  forget() {
    this._state = {};
    Object.assign(this.context, { textBaseline: "middle", direction: "ltr" });
  }

  /**
   * @param {string} name
   * @param {unknown} value
   */
  _set(name, value) {
    if (this._state[name] === value) return;
    this._state[name] = value;
    /** @type {any} */ (this.context)[name] = value;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} w
   * @param {number} h
   * @param {BoxLook} at
   */
  rect(x, y, w, h, { fill, stroke, width = 1, radius = 0, dash, hatch }) {
    const c = this.context;
    if (!radius && !stroke && !hatch) {
      this._set("fillStyle", fill);
      c.fillRect(x, y, w, h);
      return;
    }
    c.beginPath();
    const inset = stroke ? width / 2 : 0;
    if (radius)
      c.roundRect(
        x + inset,
        y + inset,
        Math.max(w - 2 * inset, 0),
        Math.max(h - 2 * inset, 0),
        radius,
      );
    else c.rect(x + inset, y + inset, w - 2 * inset, h - 2 * inset);
    for (const style of [fill, hatch && this._hatch(hatch)]) {
      if (!style) continue;
      this._set("fillStyle", style);
      c.fill();
    }
    if (stroke) this._stroke(stroke, width, dash);
  }

  /**
   * @param {string} stroke
   * @param {number} width
   * @param {number[] | undefined} dash
   */
  _stroke(stroke, width, dash) {
    const c = this.context;
    const pattern = dash ?? [];
    const key = pattern.join();
    if (this._state.dash !== key) c.setLineDash(pattern);
    this._state.dash = key;
    this._set("strokeStyle", stroke);
    this._set("lineWidth", width);
    c.stroke();
  }

  /** @param {string} colour */
  _hatch(colour) {
    if (!this._hatches.has(colour)) {
      const tile = document.createElement("canvas");
      const scale = Math.max(window.devicePixelRatio || 1, 1);
      tile.width = tile.height = 6 * scale;
      const c = contextOf(tile);
      c.scale(scale, scale);
      c.strokeStyle = colour;
      c.lineWidth = 1.5;
      for (const x of [-6, 0, 6]) {
        c.beginPath();
        c.moveTo(x, 6);
        c.lineTo(x + 6, 0);
        c.stroke();
      }
      const pattern = /** @type {CanvasPattern} */ (this.context.createPattern(tile, "repeat"));
      pattern.setTransform(new DOMMatrix().scale(1 / scale));
      this._hatches.set(colour, pattern);
    }
    return this._hatches.get(colour);
  }

  /**
   * @param {string} string
   * @param {number} x
   * @param {number} y
   * @param {TextLook} look
   */
  text(string, x, y, look) {
    const font = fontOf(look);
    const shown = look.max === undefined ? string : cutText(string, look.max, font);
    if (shown === "") return;
    this._set("font", font);
    this._set("fillStyle", look.fill ?? this.p.ink);
    this._set("textAlign", look.align ?? "left");
    this.context.fillText(shown, x, y);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} w
   * @param {number} h
   * @param {() => void} draw
   */
  clip(x, y, w, h, draw) {
    this.clipTo([[x, y, w, h]], draw);
  }

  /**
   * @param {number[][]} boxes [x, y, w, h] of each
   * @param {() => void} draw
   */
  clipTo(boxes, draw) {
    const c = this.context;
    c.save();
    c.beginPath();
    for (const [x, y, w, h] of boxes) c.rect(x, y, w, h);
    c.clip();
    draw();
    this._restore();
  }

  /**
   * Draw what follows moved by (x, y).
   * @param {number} x
   * @param {number} y
   * @param {() => void} draw
   */
  shifted(x, y, draw) {
    this.context.save();
    this.context.translate(x, y);
    draw();
    this._restore();
  }

  _restore() {
    this.context.restore();
    this.forget();
  }

  /**
   * @param {number[][]} points
   * @param {BoxLook} at
   */
  _path(points, { stroke, fill, width = 1, dash }) {
    const c = this.context;
    c.beginPath();
    points.forEach(([x, y], n) => (n ? c.lineTo(x, y) : c.moveTo(x, y)));
    if (fill) {
      c.closePath();
      this._set("fillStyle", fill);
      c.fill();
    }
    if (stroke) this._stroke(stroke, width, dash);
  }
}
