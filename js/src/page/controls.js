// Controls: what a reader can press, and where the run is. Each asks the shell; `update` shows what
// the shell then says. Knows no canvas.

import { element, icon, iconButton, setAttribute, setText, setUsable } from "../draw/elements.js";
import { jump, jumpTarget, JUMPS, jumpToDifference } from "./jumps.js";
import { SPEEDS } from "./player.js";
import { Rail } from "./rail.js";
import { badge, runFacts, runName } from "./run.js";
import { zoom } from "./slots.js";

/** @import { Comparison, RowEntry } from "../types.d.ts" */
/** @import { Shell } from "./shell.js" */

export class Controls {
  /** @type {HTMLElement} */ root;
  /** @type {HTMLElement} */ facts;
  /** @type {HTMLSelectElement} */ choice;
  /** @type {HTMLElement} */ before;
  /** @type {HTMLElement} */ after;
  /** @type {HTMLSelectElement} */ row;
  /** @type {HTMLElement} */ play;
  /** @type {HTMLElement[]} */ back;
  /** @type {HTMLElement[]} */ ahead;
  /** @type {HTMLSelectElement} */ speed;
  /** @type {HTMLElement[]} */ ways = [];
  /** @type {HTMLElement[]} */ coordinates = [];
  /** @type {HTMLElement} */ whole;
  /** @type {string | undefined} */ _rowsKey;
  /** @type {boolean | undefined} */ _byTokens;

  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell;
    this.what = "rejection";
    this.rail = new Rail(shell);
    const steps = element("div", { class: "sv-steps" }, this._transport(), this.rail.root);
    // In the order of the tab key: what is pressed most comes first.
    this.root = element("div", { class: "sv-top" }, this._name(), steps, this._tools());
    this.two = shell.comparison ? [this._two()] : [];
  }

  /** px; on a phone the parts stand in the page themselves. */
  get height() {
    const parts = [...this.root.children].map((each) => /** @type {HTMLElement} */ (each));
    return this.root.offsetHeight || parts.reduce((sum, { offsetHeight }) => sum + offsetHeight, 0);
  }

  // -- making

  _name() {
    const [first] = this.shell.runs;
    const alone = this.shell.comparison === null;
    this.facts = element("span", { class: "sv-facts" });
    const both = this.shell.comparison?.lanes
      ? "two lanes of one run"
      : "two runs of the same prompts";
    const name = alone ? runName(first.film) : both;
    const title = element("h2", { title: name }, name); // long names may be cut off
    const verdict = alone ? [badge(first.film)] : [];
    return element("div", { class: "sv-name" }, title, this.facts, ...verdict);
  }

  _tools() {
    return element("div", { class: "sv-tools" }, this._jumps(), this._rows(), this._views());
  }

  _jumps() {
    /** @param {number} direction */
    const go = (direction) => () => jump(this.shell, this.what, direction);
    const change = () => {
      this.what = this.choice.value;
      this.update();
    };
    const options = Object.entries(JUMPS).map(([value, words]) =>
      element("option", { value }, words),
    );
    this.choice = element(
      "select",
      { "aria-label": "jump to", title: "r a v e, with Shift backwards", on: { change } },
      ...options,
    );
    this.before = iconButton("previous", "previous of these", null, go(-1));
    this.after = iconButton("next", "next of these", null, go(1));
    return group("jump to", this.before, this.choice, this.after);
  }

  _rows() {
    const change = () => this.shell.pickBy(this.row.selectedIndex - this.shell.runs[0].view.row);
    this.row = element("select", {
      "aria-label": "row",
      title: "the chosen row (↑ and ↓)",
      on: { change },
    });
    return this.row;
  }

  /** In the heading of the batch: its coordinate, and how wide its slots are. */
  zooms() {
    const { shell } = this;
    /** @param {number} direction */
    const by = (direction) => () => zoom(shell, direction);
    const minus = iconButton("minus", "narrower slots", "−", by(-1));
    const fit = iconButton("fit", "slots as wide as they fit", "0", by(0));
    const plus = iconButton("plus", "wider slots", "+", by(1));
    this.coordinates = ["slots", "positions"].map((words, n) => {
      const click = () => shell.turnTo(n);
      const attributes = { type: "button", class: "sv-small", title: "c", on: { click } };
      return element("button", attributes, words);
    });
    return [group(null, ...this.coordinates), group(null, minus, fit, plus)];
  }

  _views() {
    const { shell } = this;
    /**
     * @param {string} name
     * @param {string} label
     * @param {string} words
     * @param {string} keys
     * @param {() => void} click
     */
    const button = (name, label, words, keys, click) => {
      const title = `${label} (${keys})`;
      const attributes = {
        type: "button",
        class: `sv-icon sv-${name}`,
        "aria-label": label,
        title,
      };
      return element("button", { ...attributes, on: { click } }, words);
    };
    this.whole = button("whole", "whole map", "map", "h", () => shell.screen.toggleMap());
    return group(
      null,
      this.shell.tour.button,
      this.whole,
      iconButton("full", "full screen", "f", () => shell.screen.toggleFull()),
      button("help-keys", "help: keys", "?", "?", () => shell.help.open()),
    );
  }

  _transport() {
    const { shell } = this;
    /** @param {number} steps */
    const by = (steps) => () => shell.go(shell.clock + steps);
    this.play = iconButton("play", "play", null, () => shell.player.toggle());
    this.play.classList.add("sv-play");
    this.back = [
      iconButton("previous", "previous phase", "←", by(-1)),
      iconButton("back", "previous round", "Shift ←", by(-shell.phases)),
      iconButton("first", "first step", "Home", () => shell.go(0)),
    ];
    this.ahead = [
      iconButton("next", "next phase", "→", by(1)),
      iconButton("ahead", "next round", "Shift →", by(shell.phases)),
      iconButton("last", "last step", "End", () => shell.go(shell.clocks - 1)),
    ];
    // Phase, round, run: few presses of the tab key lead to the next phase.
    const [phases, ...wider] = this.back.map((back, n) => [back, this.ahead[n]]);
    const buttons = [phases[0], this.play, phases[1], this._speed(), ...wider.flat()];
    for (const seldom of [this.speed, ...wider[1]]) seldom.classList.add("sv-seldom");
    return element("div", { class: "sv-buttons" }, ...buttons);
  }

  _speed() {
    const change = () => this.shell.player.setSpeed(this.speed.selectedIndex);
    const label = "speed, phases a second";
    const options = SPEEDS.map((each) => element("option", {}, `${each} / s`));
    this.speed = element(
      "select",
      { "aria-label": label, title: `${label} ([ and ])`, on: { change } },
      ...options,
    );
    return this.speed;
  }

  _two() {
    const comparison = /** @type {Comparison} */ (this.shell.comparison);
    /** @param {boolean} byTokens */
    const set = (byTokens) => () => this.shell.setByTokens(byTokens);
    const button = { type: "button", class: "sv-small" };
    /**
     * @param {string} words
     * @param {boolean} byTokens
     */
    const way = (words, byTokens) =>
      element("button", { ...button, title: "m", on: { click: set(byTokens) } }, words);
    this.ways = [way("round", false), way("committed tokens", true)];
    const click = () => jumpToDifference(this.shell);
    const go = element(
      "button",
      { ...button, title: "d", hidden: !comparison.first, on: { click } },
      "go there",
    );
    const words = element("span", { class: "sv-difference" }, comparison.words);
    return element("div", { class: "sv-two" }, words, go, group("in step by", ...this.ways));
  }

  // -- showing

  update() {
    const { shell } = this;
    const [{ film, view }] = shell.runs;
    const { clock, clocks } = shell;
    if (!shell.comparison) setText(this.facts, runFacts(film, view.step).join(" · "));
    this.back.forEach((button) => setUsable(button, clock > 0));
    this.ahead.forEach((button) => setUsable(button, clock < clocks - 1));
    setUsable(this.before, jumpTarget(shell, this.what, -1) !== null);
    setUsable(this.after, jumpTarget(shell, this.what, 1) !== null);
    this.rail.update(clock % shell.phases, film.scene(view.step).ms);
    this._updateRows(film.rows(view.step), view.row);
    this.coordinates.forEach((button, n) =>
      setAttribute(button, "aria-pressed", String(n === shell.turned)),
    );
    setAttribute(this.whole, "aria-pressed", String(!shell.map.low));
    this._updateWay(shell.comparison?.byTokens ?? false);
  }

  /**
   * @param {RowEntry[]} rows
   * @param {number} chosen
   */
  _updateRows(rows, chosen) {
    const names = rows.map((row, number) => `row ${number} · request ${row.request}`);
    const key = names.join();
    if (key !== this._rowsKey)
      this.row.replaceChildren(...names.map((name) => element("option", {}, name)));
    this._rowsKey = key;
    this.row.selectedIndex = chosen;
  }

  /** @param {boolean} byTokens */
  _updateWay(byTokens) {
    if (byTokens === this._byTokens) return;
    this._byTokens = byTokens;
    this.ways.forEach((button, n) =>
      button.setAttribute("aria-pressed", String(byTokens === (n === 1))),
    );
  }

  updatePlay() {
    const { playing, speed } = this.shell.player;
    const words = playing ? "pause" : "play";
    this.play.replaceChildren(icon(words));
    setAttribute(this.play, "aria-label", words);
    setAttribute(this.play, "title", `${words} (Space)`);
    this.speed.selectedIndex = speed;
  }
}

/**
 * Controls that belong together, named if `label` is.
 * @param {string | null} label
 * @param {...(Node | string)} parts
 */
function group(label, ...parts) {
  const shown = label ? [element("span", { class: "sv-label", "aria-hidden": "true" }, label)] : [];
  return element(
    "div",
    { class: "sv-group", role: label && "group", "aria-label": label },
    ...shown,
    ...parts,
  );
}
