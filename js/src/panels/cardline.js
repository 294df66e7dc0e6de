// CardLine: a card in one line and its words, for a lens that has no room for whole cards.

import { chance, drawChip } from "../draw/words.js";
import { MARKS } from "../film/cards.js";

/** @import { CardData, CardPlace, Pen, View } from "../types.d.ts" */

export const CARD_LINE = { least: 40, most: 58, gap: 4 }; // px of a card, and between two
const NAME = 46; // px of what a card is called
const CHIP = 0.3; // shares of the width: the draft's token, and where the target's begins
const TARGET = 0.62;

/**
 * Where cards stand one under the other in a room, or null where they would be too low.
 * @param {number} count
 * @param {{ x: number, y: number, w: number }} at
 * @param {number} room
 * @returns {{ places: CardPlace[], height: number } | null}
 */
export function linePlaces(count, { x, y, w }, room) {
  const pitch = Math.min((room - y) / Math.max(count, 1), CARD_LINE.most + CARD_LINE.gap);
  const h = Math.floor(pitch) - CARD_LINE.gap;
  if (h < CARD_LINE.least) return null;
  const places = Array.from({ length: count }, (_, n) => ({
    x,
    y: y + n * (h + CARD_LINE.gap),
    w,
    h,
    bars: 0,
    lines: 1,
    chip: 0,
  }));
  return { places, height: y + count * (h + CARD_LINE.gap) };
}

/**
 * @param {Pen} pen
 * @param {View} view
 * @param {CardData} card
 * @param {CardPlace} at
 * @param {[string, string]} colours
 */
export function drawCardLine(pen, view, card, at, [strong, soft]) {
  const { p } = pen;
  const fate = MARKS[card.fate];
  const quiet = fate.pale || card.fate === "waiting";
  const fill = quiet ? p.muted : p.ink;
  const top = at.y + at.h * 0.32;
  const small = { size: 11, fill: p.muted };
  const lit =
    view.hover?.row === view.row && view.hover.index === card.index && card.index !== null;
  pen.rect(at.x, at.y, at.w, at.h, { fill: p.page, stroke: lit ? p.blue : p.faint, radius: 6 });
  pen.rect(at.x, at.y + 4, 3, at.h - 8, { fill: strong });
  pen.text(card.name, at.x + 10, top, { size: 12, weight: 700, fill, max: NAME - 4 });
  if (card.draft !== null) {
    const chip = { fill: soft, stroke: strong, size: 11, height: 18 };
    const x = at.x + 10 + NAME;
    const w = drawChip(pen, view.film.text(card.draft), x, top, at.w * CHIP, chip);
    if (card.q !== null) pen.text(`q ${chance(card.q)}`, x + w + 5, top, small);
  }
  const [first] = card.targetChoices;
  if (first) {
    const x = at.x + at.w * TARGET;
    const look = { size: 11, mono: true, fill };
    const value = ` ${chance(first[1])}`; // a long token is cut, never its probability
    const room = at.w * (1 - TARGET) - 34 - pen.measure(value, look);
    pen.text("p", x, top, small);
    pen.text(pen.cut(view.film.text(first[0]), room, look) + value, x + 11, top, look);
  }
  const sign = { size: 13, weight: 700, fill: quiet ? p.muted : strong, align: "right" };
  pen.text(fate.sign, at.x + at.w - 9, top, sign);
  const bottom = at.y + at.h * 0.74;
  pen.text(card.words, at.x + 10, bottom, { size: 11, fill, max: at.w - 20 });
}
