// Stored: what Python wrote into a page of its own, where there is no kernel. The page is either
// the step-through itself, or only draws one figure while it loads.

import { element } from "../draw/elements.js";
import { Film } from "../film/film.js";
import { followAddress } from "./address.js";
import { drawFigure } from "./figure.js";
import { extentOf } from "./link.js";
import { render } from "./render.js";

/**
 * The bytes that the page holds under an id; none where it holds nothing.
 * @param {string} id
 */
function storedBytes(id) {
  const text = atob(document.getElementById(id)?.textContent ?? "");
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}

/** @param {string} id */
function storedJson(id) {
  return JSON.parse(new TextDecoder().decode(storedBytes(id)));
}

/**
 * Show the step-through in `place`. Its model is what Python wrote into the page.
 * @param {HTMLElement} place
 */
function showStored(place) {
  /** @type {Record<string, unknown>} */
  const state = storedJson("settings");
  for (const name of ["film", "other"]) state[name] = storedBytes(name);
  const model = {
    /** @param {string} name */
    get: (name) => state[name],
    /**
     * @param {string} name
     * @param {unknown} value
     */
    set: (name, value) => {
      state[name] = value;
    },
    save_changes() {},
    on() {},
    off() {},
  };
  render({ model, el: place }, (shell, films) => followAddress(shell, extentOf(films)));
  // Nothing else is on the page, so the keys work at once. A page inside another one leaves the
  // focus there.
  if (window === window.top)
    /** @type {HTMLElement} */ (place.querySelector(".specviz")).focus({ preventScroll: true });
}

/**
 * Draw the figure of the runs in the page. Leaves it, in base64, as text in the page; or what went
 * wrong.
 * @param {HTMLElement} place
 */
function drawStored(place) {
  let result;
  try {
    const names = ["film", "other"].filter((name) => document.getElementById(name));
    const films = names.map((name) => new Film(storedJson(name)));
    result = drawFigure(films, storedJson("settings"), place);
  } catch (error) {
    result = `error: ${error instanceof Error ? error.message : error}`;
  }
  document.body.append(element("pre", { id: "figure" }, result));
}

/** Start what this page was written for; nothing in a notebook, which calls `render` itself. */
export function start() {
  const place = /** @type {HTMLElement | null} */ (document.querySelector("main[data-specviz]"));
  if (place?.dataset.specviz === "page") showStored(place);
  if (place?.dataset.specviz === "figure") drawStored(place);
}
