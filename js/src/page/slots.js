// Slots: how wide they are in the batch, which ones are seen, and whether rows stand by slots or by
// positions.

/** @import { Shell } from "./shell.js" */

/**
 * @param {Shell} shell
 * @param {number} direction 0: as wide as they fit
 */
export function zoom(shell, direction) {
  const { panel } = shell.batch;
  if (direction) panel.zoomBy?.(direction);
  else panel.reset?.();
  shell.frames.touch(shell.batch);
}

/**
 * @param {Shell} shell
 * @param {number} slots
 */
export function slide(shell, slots) {
  shell.batch.panel.panBy?.(slots);
  shell.frames.touch(shell.batch);
}

/**
 * At once, without the rows' moving there.
 * @param {Shell} shell
 * @param {number} turned 0: by slots, 1: by positions
 */
export function standBy(shell, turned) {
  shell.turned = turned;
  for (const { view } of shell.runs) view.turn = turned;
  shell.touchAll();
}
