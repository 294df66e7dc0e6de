// Palette: the colours that CSS gives to the widget's root, read once for each theme.

/** @import { Palette } from "../types.d.ts" */

const PALETTE = [
  "ink",
  "muted",
  "faint",
  "panel",
  "page",
  "blue",
  "blueSoft",
  "green",
  "greenSoft",
  "orange",
  "orangeSoft",
  "amber",
  "amberSoft",
  "bonus",
  "red",
  "redSoft",
  "grey",
  "greySoft",
  "target",
  "draft",
  "stale",
  "held",
  "prompt",
  "row0",
  "row1",
  "row2",
  "row3",
  "row4",
  "row5",
];
/** @param {Element} element */
export function readPalette(element) {
  const style = getComputedStyle(element);
  /** @param {string} name */
  const dashed = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  return Object.fromEntries(
    PALETTE.map((name) => [name, style.getPropertyValue(`--sv-${dashed(name)}`).trim() || "#888"]),
  );
}

/**
 * The same palette without its colours.
 * @param {Palette} p
 * @returns {Palette}
 */
export function greyed(p) {
  const { muted, grey: line, greySoft, prompt } = p;
  const lines = ["blue", "green", "orange", "amber", "bonus", "red", "target", "draft", "stale"];
  const soft = ["blueSoft", "greenSoft", "orangeSoft", "amberSoft", "redSoft"];
  const grey = Object.fromEntries([
    ...lines.map((name) => [name, line]),
    ...soft.map((name) => [name, greySoft]),
  ]);
  return { ...p, ...grey, ink: muted, held: prompt };
}
