// Motion: K/V that a step moves is seen moving to its new place, in the batch panel.

/** @import { Shell } from "./shell.js" */

const MOTION_MS = 260;

/**
 * Ends early where the reader goes on.
 * @param {Shell} shell
 */
export function animateMoves(shell) {
  const began = performance.now();
  const { clock } = shell;
  /** @param {number} now */
  const tick = (now) => {
    if (shell.clock !== clock || shell.ends.signal.aborted) return;
    const part = Math.min(Math.max((now - began) / MOTION_MS, 0), 1);
    const eased = 1 - (1 - part) ** 3;
    for (const run of shell.runs) {
      if (run.view.progress === 1) continue; // moves nothing at this step
      run.view.progress = eased;
      shell.frames.touch(shell.batch);
    }
    if (part < 1) requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}

const TURN_MS = 420;

/**
 * The rows move from one coordinate to the other; at once for readers who want no motion.
 * @param {Shell} shell
 * @param {number} to
 */
export function animateTurn(shell, to) {
  const from = shell.runs[0].view.turn;
  const began = performance.now();
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  /** @param {number} now */
  const tick = (now) => {
    if (shell.turned !== to || shell.ends.signal.aborted) return;
    const part = calm ? 1 : Math.min(Math.max((now - began) / TURN_MS, 0), 1);
    const eased = part < 0.5 ? 2 * part * part : 1 - 2 * (1 - part) ** 2;
    for (const { view } of shell.runs) view.turn = from + (to - from) * eased;
    shell.frames.touch(shell.batch);
    if (part < 1) requestAnimationFrame(tick);
  };
  tick(began);
}
