// SvgPen: the strokes of a pen as SVG.

import { Pen } from "./pen.js";
import { cutText, familyOf, fontOf } from "./text.js";

/** @import { BoxLook, Palette, TextLook } from "../types.d.ts" */

/** @type {Record<string, string>} */
const ANCHORS = { center: "middle", right: "end" };

export class SvgPen extends Pen {
  /**
   * @param {Palette} palette
   * @param {string} [prefix]
   */
  constructor(palette, prefix = "sv") {
    super(palette);
    /** @type {string[]} */
    this.parts = [];
    /** @type {string[]} */
    this.definitions = [];
    this._names = new Map();
    this._prefix = prefix;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} w
   * @param {number} h
   * @param {BoxLook} at
   */
  rect(x, y, w, h, { fill, stroke, width = 1, radius = 0, dash, hatch }) {
    const inset = stroke ? width / 2 : 0;
    const box = attributes({
      x: round2(x + inset),
      y: round2(y + inset),
      width: round2(Math.max(w - 2 * inset, 0)),
      height: round2(Math.max(h - 2 * inset, 0)),
      rx: radius ? round2(Math.min(radius, h / 2)) : undefined,
    });
    const paint = attributes({ fill: fill || "none", ...outline(stroke, width, dash) });
    this.parts.push(`<rect${box}${paint}/>`);
    if (hatch) this.parts.push(`<rect${box} fill="url(#${this._hatch(hatch)})"/>`);
  }

  /** @param {string} colour */
  _hatch(colour) {
    if (!this._names.has(colour)) {
      const name = `${this._prefix}-hatch-${this._names.size}`;
      this._names.set(colour, name);
      const path = `<path d="M-6 6L0 0M0 6L6 0M6 6L12 0" stroke="${xml(colour)}"`;
      this.definitions.push(
        `<pattern id="${name}" width="6" height="6" patternUnits="userSpaceOnUse">` +
          `${path} stroke-width="1.5" fill="none"/></pattern>`,
      );
    }
    return this._names.get(colour);
  }

  /**
   * @param {string} string
   * @param {number} x
   * @param {number} y
   * @param {TextLook} look
   */
  text(string, x, y, look) {
    const shown = look.max === undefined ? string : cutText(string, look.max, fontOf(look));
    if (shown === "") return;
    const how = attributes({
      x: round2(x),
      y: round2(y),
      "dominant-baseline": "central",
      "font-family": familyOf(look),
      "font-size": look.size ?? 11,
      "font-weight": look.weight || undefined,
      "text-anchor": ANCHORS[look.align ?? "left"],
      fill: look.fill ?? this.p.ink,
      "xml:space": "preserve",
    });
    this.parts.push(`<text${how}>${xml(shown)}</text>`);
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
    const name = `${this._prefix}-clip-${this.definitions.length}`;
    const shapes = boxes.map(([x, y, width, height]) => {
      const box = { x: round2(x), y: round2(y), width: round2(width), height: round2(height) };
      return `<rect${attributes(box)}/>`;
    });
    this.definitions.push(`<clipPath id="${name}">${shapes.join("")}</clipPath>`);
    this.parts.push(`<g clip-path="url(#${name})">`);
    draw();
    this.parts.push("</g>");
  }

  /**
   * @param {number[][]} points
   * @param {BoxLook} at
   */
  _path(points, { stroke, fill, width = 1, dash }) {
    const d = points.map(([x, y], n) => `${n ? "L" : "M"}${round2(x)} ${round2(y)}`).join("");
    const shape = { d: fill ? `${d}Z` : d, fill: fill || "none" };
    this.parts.push(`<path${attributes({ ...shape, ...outline(stroke, width, dash) })}/>`);
  }

  /**
   * Draw what follows moved by (x, y).
   * @param {number} x
   * @param {number} y
   * @param {() => void} draw
   */
  shifted(x, y, draw) {
    this.parts.push(`<g transform="translate(${round2(x)} ${round2(y)})">`);
    draw();
    this.parts.push("</g>");
  }

  /**
   * @param {number} width
   * @param {number} height
   * @param {string} title
   */
  svg(width, height, title) {
    const xmlns = "http://www.w3.org/2000/svg";
    const viewBox = `0 0 ${width} ${height}`;
    return [
      `<svg${attributes({ xmlns, width, height, viewBox, role: "img" })}>`,
      `<title>${xml(title)}</title><defs>`,
      ...this.definitions,
      "</defs>",
      ...this.parts,
      "</svg>",
    ].join("");
  }
}

/**
 * Of the values all but undefined ones.
 * @param {Record<string, string | number | undefined>} values
 */
function attributes(values) {
  return Object.entries(values)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => ` ${name}="${xml(value)}"`)
    .join("");
}

/**
 * @param {string | undefined} stroke
 * @param {number} width
 * @param {number[] | undefined} dash
 */
function outline(stroke, width, dash) {
  if (!stroke) return {};
  return { stroke, "stroke-width": width, "stroke-dasharray": dash?.join(" ") };
}

/** @param {number} value */
function round2(value) {
  return Math.round(value * 100) / 100;
}

/**
 * `string` as text or attribute of XML; what XML cannot hold becomes �.
 * @param {unknown} string
 */
function xml(string) {
  return String(string)
    .replace(/[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/gu, "\u{FFFD}")
    .replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}
