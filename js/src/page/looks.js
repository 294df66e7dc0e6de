// Looks: the theme of the view, and the palette that its canvases draw with. On paper everything is
// light.

import { readPalette } from "../draw/pen.js";
import { themeNamed } from "../draw/theme.js";

/** @import { Shell } from "./shell.js" */

export class Looks {
  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell;
    this._read();
  }

  /** @param {string | null} [forced] */
  _read(forced = null) {
    const { shell } = this;
    shell.root.dataset.theme = themeNamed(forced ?? shell.model.get("theme"));
    shell.palette = readPalette(shell.root);
    for (const { view } of shell.runs) view.palette = shell.palette;
  }

  changed() {
    this._read();
    this.shell.touchAll();
  }

  /** @param {string | null} theme */
  print(theme) {
    this._read(theme);
    this.shell.touchAll();
    this.shell.frames.paint();
  }
}
