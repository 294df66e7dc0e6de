// Saved: what a notebook keeps of the page: the step and the row that are shown.

/** @import { Model } from "../types.d.ts" */

/**
 * @param {Model} model
 * @param {{ step: number, row: number }} shown
 */
export function save(model, { step, row }) {
  if (model.get("step") === step && model.get("row") === row) return;
  model.set("step", step);
  model.set("row", row);
  try {
    model.save_changes();
  } catch {
    // There is no kernel any more; the page goes on without it.
  }
}
