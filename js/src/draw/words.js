// What the panels under the stage share: margins, words and chips. Knows no run.

import { fontOf, measureText } from "./text.js";

/** @import { BoxLook, Pen, Range, TextLook } from "../types.d.ts" */

export const PAD = 12; // px left and right of what a panel draws
export const LONGEST = 150; // px of a token in running text; what is longer is cut
export const SECONDS_FROM = 9999.5; // ms that are said in seconds

/**
 * @param {number} number
 * @param {string} noun
 * @param {string} [nouns]
 */
export function counted(number, noun, nouns = `${noun}s`) {
  return `${number} ${number === 1 ? noun : nouns}`;
}

/**
 * A token's text in a sentence: kept apart from the direction in which the sentence runs, and
 * short.
 * @param {string} text
 * @param {number} [most]
 */
export function quoted(text, most = 18) {
  const letters = [...text];
  const short = letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
  return `‘\u2068${short}\u2069’`;
}

/**
 * Ranges [start, stop) in words: "3–8, 12"; at most `most` of them.
 * @param {Range[]} ranges
 * @param {number} [most]
 */
export function rangeWords(ranges, most = 3) {
  const words = ranges
    .slice(0, most)
    .map(([start, stop]) => (stop - start > 1 ? `${start}–${stop - 1}` : `${start}`));
  return words.join(", ") + (ranges.length > most ? ", …" : "");
}

/**
 * Milliseconds, from 10,000 on as seconds, with no more digits than they deserve.
 * @param {number} value
 */
export function milliseconds(value) {
  if (value >= SECONDS_FROM) return `${(value / 1000).toFixed(value >= 99950 ? 0 : 1)} s`;
  if (value > 0 && value < 0.005) return "<0.01 ms";
  return `${value.toFixed(value >= 99.95 || value === 0 ? 0 : value >= 0.095 ? 1 : 2)} ms`;
}

/**
 * The parts of a time of `all` ms: without their unit where that of the whole stands for them.
 * @param {number} value
 * @param {number} all
 */
export function partOf(value, all) {
  const words = milliseconds(value);
  return milliseconds(all).endsWith(" ms") ? words.replace(/ ms$/, "") : words;
}

/** @param {number} share */
export function percent(share) {
  return share > 0 && share < 0.0005
    ? "<0.1 %"
    : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

/** @param {number} size */
export function bytesOf(size) {
  const [unit, name, digits] =
    size >= 1e9 ? [1e9, "GB", 2] : size >= 1e5 ? [1e6, "MB", 1] : [1e3, "kB", 1];
  return `${(size / unit).toFixed(digits)} ${name}`;
}

/**
 * A probability with two digits that count.
 * @param {number | null | undefined} p
 */
export function chance(p) {
  if (p === null || p === undefined) return "–";
  return p >= 0.01 ? p.toFixed(2) : p >= 0.001 ? p.toFixed(3) : "<.001";
}

/**
 * `string` in lines of at most `max` px, broken at spaces; a word that is too long stays whole.
 * @param {string} string
 * @param {number} max
 * @param {TextLook} [look]
 */
export function wrapWords(string, max, look = {}) {
  const font = fontOf(look);
  /** @type {string[]} */
  const lines = [];
  for (const word of string.split(" ")) {
    const longer = lines.length ? `${lines[lines.length - 1]} ${word}` : "";
    if (longer && measureText(longer, font) <= max) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

/**
 * A token in a box of its kind; returns the width that it took.
 * @param {Pen} pen
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {number} max
 * @param {BoxLook & { sign?: string, size?: number, height?: number }} at
 */
export function drawChip(
  pen,
  text,
  x,
  y,
  max,
  { fill, stroke, sign = "", dash, size = 11.5, height = 20, width },
) {
  const look = { size, mono: true };
  const lead = sign ? 14 : 0;
  const inner = Math.min(pen.measure(text, look), max - 14 - lead);
  const w = width ?? inner + 14 + lead;
  pen.rect(x, y - height / 2, w, height, { fill, stroke, radius: 5, dash });
  if (sign) pen.text(sign, x + 7, y, { size: 10, weight: 700, fill: pen.p.ink });
  pen.text(text, x + 7 + lead, y + 0.5, { ...look, fill: pen.p.ink, max: w - 13 - lead });
  return w;
}
