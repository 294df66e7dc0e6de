// Jumps: where something happens next, or happened last, seen from the step that is shown.

/** @import { Shell } from "./shell.js" */
/** @import { Run } from "./run.js" */

/**
 * @param {Shell} shell
 * @param {string} what
 * @param {number} direction
 */
export function jump(shell, what, direction) {
  const clock = jumpTarget(shell, what, direction);
  if (clock !== null) shell.go(clock);
}

/**
 * To the first token in which the two runs differ.
 * @param {Shell} shell
 */
export function jumpToDifference(shell) {
  const first = shell.comparison?.first;
  if (!first) return;
  shell.goTo(shell.runs[0], first.step);
  shell.pick(first.request);
}

/**
 * The clock at which it happens in any run; null if it does not.
 * @param {Shell} shell
 * @param {string} what
 * @param {number} direction
 */
export function jumpTarget(shell, what, direction) {
  const clocks = shell.runs
    .map((run) => targetIn(shell, run, what, direction))
    .filter((clock) => clock !== undefined);
  if (!clocks.length) return null;
  return direction > 0 ? Math.min(...clocks) : Math.max(...clocks);
}

/**
 * @param {Shell} shell
 * @param {Run} run
 * @param {string} what
 * @param {number} direction
 */
function targetIn(shell, run, what, direction) {
  const clocks = run.film.points(what).map((step) => shell.clockOf(run, step));
  return direction > 0
    ? clocks.find((clock) => clock > shell.clock)
    : clocks.findLast((clock) => clock < shell.clock);
}
