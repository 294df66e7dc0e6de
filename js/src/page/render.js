// Render: what the notebook calls for each place where a widget is shown. Unpacks the runs, and
// says so if that fails.

import { element } from "../draw/elements.js";
import { decodeFilm } from "../film/film.js";
import { Shell } from "./shell.js";
import { standBy } from "./slots.js";
import { keepPicture } from "./still.js";

/** @import { Film, Model } from "../types.d.ts" */

/**
 * Why the view opens where it does, unless it has been moved since.
 * @param {Model} model
 * @param {Shell} shell
 */
function sayOpening(model, shell) {
  const opening = model.get("_opening");
  if (opening?.step !== shell.clock || opening.row !== shell.row) return;
  shell.notice.say(opening.words);
  if (opening.by === "positions") standBy(shell, 1);
}

/**
 * Show the model's runs in `el`. Returns what removes them again.
 * @param {{ model: Model; el: Element }} place
 * @param {((shell: Shell, films: Film[]) => void) | null} [opened] called once they are shown
 */
export function render({ model, el }, opened = null) {
  const attributes = {
    class: "specviz",
    tabindex: "0",
    role: "group",
    "aria-label": "step-through of a decoding run; press ? for keys",
    "data-lm-suppress-shortcuts": "true", // JupyterLab's shortcuts
  };
  const root = element("div", attributes, "opening the run …");
  el.append(root);
  /** @type {Shell | null} */
  let shell = null;
  let forget = () => {};
  let gone = false;
  const bytes = ["film", "other"].map((name) => model.get(name)).filter((each) => each?.byteLength);
  Promise.all(bytes.map(decodeFilm))
    .then((films) => {
      if (gone) return;
      shell = new Shell(model, root, films);
      sayOpening(model, shell);
      opened?.(shell, films);
      forget = keepPicture(model, films, root);
    })
    .catch((error) => {
      root.textContent = `This run cannot be shown: ${error.message}`;
      console.error(error);
    });
  return () => {
    gone = true;
    forget();
    shell?.dispose();
    root.remove();
  };
}
