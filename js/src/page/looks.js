// Looks: the theme in which the shell draws, and what changes it: the page, the model, a screen
// with other pixels, paper.

import { readPalette } from "../draw/palette.js";
import { themeNamed, watchTheme } from "../draw/theme.js";

/** @import { Shell } from "./shell.js" */

/**
 * @param {Shell} shell
 * @param {string | null} [forced]
 */
export function readTheme(shell, forced = null) {
  shell.root.dataset.theme = themeNamed(forced ?? shell.model.get("theme"));
  shell.palette = readPalette(shell.root);
  for (const { view } of shell.runs) view.palette = shell.palette;
}

/** @param {Shell} shell */
export function themeChanged(shell) {
  readTheme(shell);
  shell.touchAll();
}

/** @param {Shell} shell */
export function watchLooks(shell) {
  const { signal } = shell.ends;
  watchTheme(() => themeChanged(shell), signal);
  window.addEventListener("resize", () => shell.touchAll(), { signal });
  window.addEventListener("beforeprint", () => print(shell, "light"), { signal });
  window.addEventListener("afterprint", () => print(shell, null), { signal });
}

/**
 * On paper everything is light.
 * @param {Shell} shell
 * @param {string | null} theme
 */
function print(shell, theme) {
  readTheme(shell, theme);
  shell.touchAll();
  shell.frames.paint();
}
