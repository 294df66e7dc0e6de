// Elements of the page: made from names and text, never from markup, so that nothing that a model
// wrote can become one. Knows no run.

/** @import { TableData } from "../types.d.ts" */

/** @type {Record<string, string>} */
const ICONS = {
  first: "M4 3v10M13 3L6 8l7 5z",
  back: "M9 3L4 8l5 5M14 3L9 8l5 5",
  previous: "M10.5 3L5 8l5.5 5",
  play: "M5 2.5v11l8.5-5.5z",
  pause: "M5 3v10M11 3v10",
  next: "M5.5 3L11 8l-5.5 5",
  ahead: "M2 3l5 5-5 5M7 3l5 5-5 5",
  last: "M12 3v10M3 3l7 5-7 5z",
  minus: "M3.5 8h9",
  plus: "M3.5 8h9M8 3.5v9",
  full: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  fit: "M1.5 3v10M14.5 3v10M4 8h8M6 5.5L3.5 8 6 10.5M10 5.5L12.5 8 10 10.5",
};
const LONG = 30; // letters of a table's cell from which it may take several lines
const FILLED = new Set(["first", "play", "last"]);

/**
 * attributes: null and false are left out, true is empty; `on`: listeners by event.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on")
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (value !== null && value !== undefined && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** @param {string} name */
export function icon(name) {
  const [svg, path] = ["svg", "path"].map((name) =>
    document.createElementNS("http://www.w3.org/2000/svg", name),
  );
  const attributes = { viewBox: "0 0 16 16", width: "16", height: "16", "aria-hidden": "true" };
  for (const [key, value] of Object.entries(attributes)) svg.setAttribute(key, value);
  path.setAttribute("d", ICONS[name]);
  path.setAttribute("class", FILLED.has(name) ? "sv-filled" : "sv-drawn");
  svg.append(path);
  return svg;
}

/**
 * A button that only shows a sign; `label` is its name and its tooltip.
 * @param {string} name
 * @param {string} label
 * @param {string | null} keys
 * @param {() => void} click
 */
export function iconButton(name, label, keys, click) {
  const title = keys ? `${label} (${keys})` : label;
  return element(
    "button",
    { type: "button", class: "sv-icon", "aria-label": label, title, on: { click } },
    icon(name),
  );
}

/**
 * @param {Element} node
 * @param {string} text
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * @param {Element} node
 * @param {string} name
 * @param {string} value
 */
export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/**
 * Whether something can be used now, in a way that keeps the focus where it is.
 * @param {Element} button
 * @param {boolean} usable
 */
export function setUsable(button, usable) {
  setAttribute(button, "aria-disabled", String(!usable));
}

/**
 * {caption, head, rows} as an element; caption: what the heading over it does not say, "" for
 * nothing.
 * @param {TableData} at
 */
export function tableElement({ caption, head, rows }) {
  /**
   * @param {TableData["rows"][number]} cells
   * @param {(text: string) => Node} make
   */
  const row = (cells, make) => element("tr", {}, ...cells.map((cell) => make(String(cell ?? ""))));
  /** @param {string} text */
  const heading = (text) => (text ? element("th", { scope: "col" }, text) : element("td"));
  const body = rows.map((cells) =>
    row(cells, (text) => element("td", { class: text.length > LONG ? "sv-long" : null }, text)),
  );
  const words = caption ? [element("caption", {}, caption)] : [];
  return element(
    "table",
    {},
    ...words,
    element("thead", {}, row(head, heading)),
    element("tbody", {}, ...body),
  );
}
