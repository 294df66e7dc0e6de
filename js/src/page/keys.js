// Keys: what each one does, and the page that lists them. The table is the only place where a key
// is named.

import { element } from "../draw/elements.js";
import { jump, jumpToDifference } from "./jumps.js";
import { slide, zoom } from "./slots.js";

/** @import { Shell } from "./shell.js" */

// [words, [written, key, what it does to the shell] ..., whether it needs two runs]
/**
 * @typedef {[written: string, key: string, act: (shell: Shell) => void]} Press
 */

/** @type {[words: string, ...presses: (Press | true)[]][]} */
const KEYS = [
  [
    "next, previous phase",
    ["→", "ArrowRight", (shell) => shell.go(shell.clock + 1)],
    ["←", "ArrowLeft", (shell) => shell.go(shell.clock - 1)],
  ],
  [
    "next, previous round",
    ["Shift →", "Shift+ArrowRight", (shell) => shell.go(shell.clock + shell.phases)],
    ["Shift ←", "Shift+ArrowLeft", (shell) => shell.go(shell.clock - shell.phases)],
  ],
  [
    "first, last step",
    ["Home", "Home", (shell) => shell.go(0)],
    ["End", "End", (shell) => shell.go(shell.clocks - 1)],
  ],
  ["play, pause", ["Space", " ", (shell) => shell.player.toggle()]],
  [
    "slower, faster",
    ["[", "[", ({ player }) => player.setSpeed(player.speed - 1)],
    ["]", "]", ({ player }) => player.setSpeed(player.speed + 1)],
  ],
  [
    "next, previous row",
    ["↓", "ArrowDown", (shell) => shell.pickBy(1)],
    ["↑", "ArrowUp", (shell) => shell.pickBy(-1)],
  ],
  ["all panels as tables, or as pictures", ["t", "t", (shell) => shell.showTables()]],
  [
    "next, previous rejection of the row",
    ["r", "r", (shell) => jump(shell, "rejection", 1)],
    ["Shift r", "Shift+R", (shell) => jump(shell, "rejection", -1)],
  ],
  [
    "… full acceptance of the row",
    ["a", "a", (shell) => jump(shell, "full", 1)],
    ["Shift a", "Shift+A", (shell) => jump(shell, "full", -1)],
  ],
  [
    "… violation",
    ["v", "v", (shell) => jump(shell, "violation", 1)],
    ["Shift v", "Shift+V", (shell) => jump(shell, "violation", -1)],
  ],
  [
    "… end of a text (EOS)",
    ["e", "e", (shell) => jump(shell, "eos", 1)],
    ["Shift e", "Shift+E", (shell) => jump(shell, "eos", -1)],
  ],
  [
    "slots wider, narrower, as they fit",
    ["+", "+", (shell) => zoom(shell, 1)],
    ["−", "-", (shell) => zoom(shell, -1)],
    ["0", "0", (shell) => zoom(shell, 0)],
  ],
  [
    "to earlier, later slots",
    [",", ",", (shell) => slide(shell, -4)],
    [".", ".", (shell) => slide(shell, 4)],
  ],
  [
    "select rounds: from here, and to here",
    ["s", "s", (shell) => shell.map.mark()],
    ["Shift s", "Shift+S", (shell) => shell.map.clear()],
  ],
  ["map by rounds, or by time", ["x", "x", (shell) => shell.map.setByTime(!shell.map.byTime)]],
  ["full screen", ["f", "f", (shell) => void shell.screen.toggleFull()]],
  ["presentation size", ["p", "p", (shell) => shell.screen.togglePresent()]],
  ["whole map, or low lanes", ["h", "h", (shell) => shell.screen.toggleMap()]],
  ["rows by slots, or by positions", ["c", "c", (shell) => shell.turnTo(1 - shell.turned)]],
  [
    "lens: pin the panel that is shown, follow the phase again",
    [
      "l",
      "l",
      (shell) => shell.pin(shell.pinned ? null : shell.runs[shell.duo?.told ?? 0].lens.shown),
    ],
  ],
  ["tour of a minute", ["g", "g", (shell) => shell.tour.toggle()]],
  ["this list", ["?", "?", (shell) => shell.help.open()]],
  ["first difference of the two runs", ["d", "d", jumpToDifference], true],
  ["sentence and lens of the other run", ["b", "b", ({ duo }) => duo?.tell(1 - duo.told)], true],
  [
    "in step by round, or by committed tokens",
    ["m", "m", (shell) => shell.setByTokens(!shell.comparison?.byTokens)],
    true,
  ],
];

/** @param {boolean} compared */
function keysFor(compared) {
  return KEYS.filter((entry) => compared || entry.at(-1) !== true);
}
/**
 * @param {(typeof KEYS)[number]} at
 * @returns {Press[]}
 */
function pressesOf([, ...presses]) {
  return presses.filter((press) => press !== true);
}

/**
 * The action of a key press; null where it is not ours: with other modifiers, or where an element
 * has its own use for it.
 * @param {KeyboardEvent} event
 * @param {boolean} compared
 */
export function actionOf(event, compared) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const target = /** @type {Element} */ (event.target);
  if (target.closest("select, dialog")) return null;
  if (event.key === " " && target.closest("button")) return null;
  const sign = event.key.length === 1 && !/[a-z]/i.test(event.key);
  const key = event.key === "=" ? "+" : event.key;
  const pressed = event.shiftKey && !sign ? `Shift+${key}` : key;
  return (
    keysFor(compared)
      .flatMap(pressesOf)
      .find(([, name]) => name === pressed)?.[2] ?? null
  );
}

export class Help {
  /**
   * @param {boolean} compared
   */
  constructor(compared) {
    // One page may have several widgets, each with a list of its own.
    const name = `sv-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
    const close = element(
      "button",
      { type: "button", class: "sv-small", on: { click: () => this.root.close() } },
      "close",
    );
    const pointer =
      "With the pointer: a click on a row chooses it; " +
      "what lies under the pointer lights up in all panels; " +
      "in the map of the run a click leads to a round of a request, a drag selects rounds, " +
      "a drag along its axis goes through the steps, and the wheel zooms once the map has the " +
      "focus, as do + − 0 and , . there; the map of the whole cache slides the batch.";
    const head = element("div", { class: "sv-head" }, element("h2", { id: name }, "Keys"), close);
    const list = element("dl", {}, ...keysFor(compared).map((entry) => this._line(entry)));
    /** @param {Event} event */
    const outside = (event) => event.target === this.root && this.root.close();
    const attributes = { class: "sv-help", "aria-labelledby": name, on: { click: outside } };
    this.root = element("dialog", attributes, head, list, element("p", {}, pointer));
  }

  /** @param {(typeof KEYS)[number]} entry */
  _line(entry) {
    const written = pressesOf(entry).map(([keys]) =>
      element("span", {}, ...keys.split(" ").map((key) => element("kbd", {}, key))),
    );
    return element("div", {}, element("dt", {}, ...written), element("dd", {}, entry[0]));
  }

  open() {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    this.root.addEventListener("close", () => before?.focus({ preventScroll: true }), {
      once: true,
    });
    this.root.showModal();
  }
}
