// Jumps: where something happens next, or happened last, seen from the step and the row that are
// shown. A jump sets step, row and slot; one without a target says so.

import { eventsOf, OF_ONE_ROW } from "../film/events.js";

/** @import { RunEvent } from "../types.d.ts" */
/** @import { Shell } from "./shell.js" */
/** @import { Run } from "./run.js" */

/** @typedef {{ run: Run, event: RunEvent, clock: number, row: number }} Target */

/** @type {Record<string, string>} */
export const JUMPS = {
  rejection: "rejection",
  full: "full acceptance",
  violation: "violation",
  eos: "EOS",
};

/**
 * @param {Shell} shell
 * @param {string} what
 * @param {number} direction
 */
export function jump(shell, what, direction) {
  const target = jumpTarget(shell, what, direction);
  if (target) visit(shell, target.run, target.event);
  shell.notice.say(target ? arrival(shell, what, target) : lack(shell, what, direction));
}

/**
 * To the first token in which the two runs differ. The cause is said once: it stands over the runs.
 * @param {Shell} shell
 */
export function jumpToDifference(shell) {
  const { comparison } = shell;
  const first = comparison?.first;
  if (!first) return shell.notice.say(comparison?.words ?? "There is one run.");
  visit(shell, shell.runs[0], { ...first, row: -1, slot: null, words: "" });
  shell.notice.say(shell.causeSaid ? placeOf(comparison.words) : comparison.words);
  shell.causeSaid = true;
}

/**
 * The place in the words on a difference, without the cause.
 * @param {string} words
 */
function placeOf(words) {
  const place = /^First difference: [^:.]*/.exec(words);
  return place ? `${place[0]}.` : words;
}

/**
 * Go to an event, choose its row and light up its slot.
 * @param {Shell} shell
 * @param {Run} run
 * @param {RunEvent} event
 */
export function visit(shell, run, { step, request, slot }) {
  const [first] = shell.runs;
  const clock = shell.clockOf(run, step);
  const row = first.film.rowOf(shell.stepOf(first, clock), request);
  shell.go(clock, row < 0 ? shell.row : row);
  const here = run.film.rowOf(run.view.step, request);
  if (slot !== null && here >= 0) shell.point(run, { row: here, slot, index: null });
}

/**
 * The nearest event in any run; null if there is none.
 * @param {Shell} shell
 * @param {string} what
 * @param {number} direction
 * @returns {Target | null}
 */
export function jumpTarget(shell, what, direction) {
  const here = { clock: shell.clock, row: shell.runs[0].view.row };
  const found = shell.runs
    .flatMap((run) => targetsIn(shell, run, what))
    .filter((each) => direction * order(each, here) > 0)
    .sort((one, other) => direction * order(one, other));
  return found[0] ?? null;
}

/**
 * @param {Shell} shell
 * @param {Run} run
 * @param {string} what
 * @returns {Target[]}
 */
function targetsIn(shell, run, what) {
  const events = eventsOf(run.film, what);
  const counted = OF_ONE_ROW.has(what)
    ? events.filter(({ request }) => request === shell.request)
    : events;
  return counted.map((event) => ({
    run,
    event,
    clock: shell.clockOf(run, event.step),
    row: event.row,
  }));
}

/**
 * @param {{ clock: number, row: number }} one
 * @param {{ clock: number, row: number }} other
 */
function order(one, other) {
  return one.clock - other.clock || one.row - other.row;
}

/**
 * @param {Shell} shell
 * @param {string} what
 * @param {Target} target
 */
function arrival(shell, what, { run, event }) {
  const { step, row, request, slot, words } = event;
  const which = shell.comparison ? `, ${run.number ? "second" : "first"} run` : "";
  const place = slot === null ? "" : `, slot ${slot}`;
  const rule = words ? ` (${words})` : "";
  const where = `round ${run.film.round(step)}, row ${row} (request ${request})${place}`;
  return `${capital(JUMPS[what])}${rule}${which}: ${where}.`;
}

/**
 * @param {Shell} shell
 * @param {string} what
 * @param {number} direction
 */
function lack(shell, what, direction) {
  const word = direction > 0 ? "later" : "earlier";
  const { film, view } = shell.runs[0];
  if (what === "violation" && !film.checked) return "No violations are known: nothing is judged.";
  const whose = OF_ONE_ROW.has(what)
    ? `of row ${view.row} (request ${shell.request})`
    : shell.comparison
      ? "in these runs"
      : "in this run";
  return `No ${word} ${JUMPS[what]} ${whose}.`;
}

/** @param {string} words */
function capital(words) {
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}`;
}
