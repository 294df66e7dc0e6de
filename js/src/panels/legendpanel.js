// LegendPanel: the legend of the batch in the lens, where the screen is too low for it under the
// batch.

import { Legend } from "./legend.js";

/** @import { View } from "../types.d.ts" */

export class LegendPanel extends Legend {
  static id = "legend";

  /** @param {View} view */
  constructor(view) {
    super(view);
    this._view = view;
  }

  empty() {
    return !this._view.tight;
  }

  title() {
    return "Legend of the batch";
  }

  hit() {
    return null;
  }

  table() {
    return { caption: "", head: ["sign"], rows: this.words().map((words) => [words]) };
  }
}
