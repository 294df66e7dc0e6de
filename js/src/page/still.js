// Still: for a notebook that will be kept without its kernel, a picture of the step that was left, if
// Python asks for one. It is drawn while the page is idle and the reader rests.

import { drawFigure } from "./figure.js";

/** @import { Film, Model } from "../types.d.ts" */

const FIRST_MS = 500; // from when the widget is there
const REST_MS = 1500; // from the last step

/**
 * Returns what ends it.
 * @param {Model} model
 * @param {Film[]} films
 * @param {HTMLElement} root
 */
export function keepPicture(model, films, root) {
  let timer = 0;
  let sent = "";
  const send = () => {
    const wanted = model.get("_picture_wanted");
    const [step, row] = [model.get("step"), model.get("row")];
    const place = `${step} ${row}`;
    if (!root.isConnected || !wanted || place === sent) return;
    sent = place;
    const two = { difference: model.get("_difference"), opening: model.get("_opening") };
    model.set("_picture", drawFigure(films, { ...wanted, ...two, step, row }, root));
    try {
      model.save_changes();
    } catch {
      // The kernel is gone, so the picture cannot be kept.
    }
  };
  /** @param {number} ms */
  const plan = (ms) => {
    clearTimeout(timer);
    timer = window.setTimeout(() => (window.requestIdleCallback ?? setTimeout)(send), ms);
  };
  const moved = () => plan(REST_MS);
  const events = ["change:step", "change:row"];
  plan(FIRST_MS);
  for (const event of events) model.on(event, moved);
  return () => {
    clearTimeout(timer);
    for (const event of events) model.off(event, moved);
  };
}
