// Text: how wide it is, and cut to fit. Widths are kept, since measuring is costly. Knows no pen.

/** @import { TextLook } from "../types.d.ts" */

const SANS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif";
const MONO = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace";

/**
 * The last results of a costly question, by key.
 * @template V
 */
export class Kept {
  /** @param {number} [most] */
  constructor(most = 200) {
    this.most = most;
    /** @type {Map<string | number, V>} */
    this.found = new Map();
  }

  /**
   * @param {string | number} key
   * @param {() => V} make
   * @returns {V}
   */
  get(key, make) {
    const known = this.found.get(key);
    if (known !== undefined) return known;
    if (this.found.size >= this.most) this.found.clear();
    const made = make();
    this.found.set(key, made);
    return made;
  }
}

/** @type {CanvasRenderingContext2D | null} */
let measuring = null;
/** @type {Kept<Kept<number>>} */
const widths = new Kept();
/** @type {Kept<string>} */
const cuts = new Kept(20000);
/** @type {Kept<string>} */
const fonts = new Kept();

/**
 * The 2D context of a canvas; there is one in every browser that can run this.
 * @param {HTMLCanvasElement} canvas
 * @param {CanvasRenderingContext2DSettings} [options]
 */
export function contextOf(canvas, options) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", options));
}

/**
 * Widths are kept by font and by string, since to join the two for every word takes longer than to
 * draw it.
 * @param {string} string
 * @param {string} font
 */
export function measureText(string, font) {
  return widths
    .get(font, () => new Kept(20000))
    .get(string, () => {
      measuring ??= contextOf(document.createElement("canvas"));
      measuring.font = font;
      return measuring.measureText(string).width;
    });
}

/** @param {TextLook} look */
export function familyOf({ mono = false }) {
  return mono ? MONO : SANS;
}

/** @param {TextLook} at */
export function fontOf({ size = 11, weight = 400, mono = false }) {
  const key = weight + size / 100 + (mono ? 0.5 : 0); // a number: it is asked for every word
  return fonts.get(key, () => `${weight} ${size}px ${familyOf({ mono })}`);
}

/**
 * `string` cut with … so that it takes at most `max` px; by letters, not by halves of them.
 * @param {string} string
 * @param {number} max
 * @param {string} font
 */
export function cutText(string, max, font) {
  return measureText(string, font) <= max
    ? string
    : cuts.get(`${max} ${font}${string}`, () => cutLetters(string, max, font));
}

/**
 * @param {string} string
 * @param {number} max
 * @param {string} font
 */
function cutLetters(string, max, font) {
  const letters = [...string];
  let low = 0;
  let high = letters.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (measureText(`${letters.slice(0, middle).join("")}…`, font) <= max) low = middle;
    else high = middle - 1;
  }
  return low ? `${letters.slice(0, low).join("")}…` : "";
}
