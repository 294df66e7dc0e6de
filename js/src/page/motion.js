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
      shell.frames.touch(run.sections[0]);
    }
    if (part < 1) requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}
