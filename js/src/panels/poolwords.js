// Words about a pool: how the group of a round was chosen, and who waits.

import { counted } from "../draw/words.js";

/** @import { Film, PoolEntry } from "../types.d.ts" */

/**
 * {length, count} of the length that most rows share.
 * @param {PoolEntry[]} pool
 */
export function largestGroup(pool) {
  const counts = new Map();
  for (const { length } of pool) counts.set(length, (counts.get(length) ?? 0) + 1);
  return [...counts]
    .map(([length, count]) => ({ length, count }))
    .reduce((best, each) => (each.count > best.count ? each : best));
}

/**
 * How the round was chosen.
 * @param {Film} film
 * @param {number} step
 */
export function decisionWords(film, step) {
  const { batch_size: size, strategy_options: options } = film.json.meta;
  const { decision, pool } = film.scene(step);
  const chosen = pool.filter((each) => each.chosen);
  const rows = counted(chosen.length, "sequence");
  if (decision === "grouped") return `grouped: ${rows} of length ${chosen[0]?.length}`;
  if (decision === "overdue") {
    const same = new Set(chosen.map((each) => each.length)).size === 1;
    const passed = `a sequence waited as often as max_wait = ${options.max_wait} allows`;
    return `overdue: ${passed}, so those that waited longest run${same ? "" : ", realigned"}`;
  }
  const none = `no ${Math.min(size, pool.length)} sequences share a length`;
  if (decision === "partial") {
    const run = chosen.length === 1 ? "runs" : "run";
    return `fallback partial: ${none}, so ${rows} of length ${chosen[0]?.length} ${run} alone`;
  }
  if (decision === "realigned") {
    const { count, length } = largestGroup(pool);
    const closest = count > 1 ? ` (at most ${count} do, ${length} each)` : "";
    return `fallback realign: ${none}${closest}, so those that entered first are realigned`;
  }
  return decision;
}

/**
 * The same words as in the sentence of the phase (schedulewords.py).
 * @param {PoolEntry[]} pool
 */
export function waitWords(pool) {
  const waiting = pool.filter((each) => !each.chosen);
  if (!waiting.length) return "none waits";
  const { request, waited } = waiting.reduce((longest, each) =>
    each.waited > longest.waited ? each : longest,
  );
  const words = counted(waiting.length, "sequence waits", "sequences wait");
  if (!waited) return `${words} for the first time`;
  const which = `request ${request}${waiting.length > 1 ? " longest" : ""}`;
  return `${words}, ${which}: passed over ${counted(waited, "time")} before`;
}

/**
 * {length, grouped}: what the chosen rows share, or else what most rows do; null where no two share
 * one.
 * @param {PoolEntry[]} pool
 */
export function commonLength(pool) {
  const chosen = pool.filter((each) => each.chosen);
  const lengths = new Set(chosen.map((each) => each.length));
  const { length, count } = largestGroup(pool);
  if (lengths.size === 1) return { length: [...lengths][0], grouped: true };
  return count > 1 ? { length, grouped: false } : null;
}
