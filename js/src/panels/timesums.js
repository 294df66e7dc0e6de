// Sums of a run's times and of the K/V that was copied.

/** @import { FilmJson, RoundEntry } from "../types.d.ts" */

/** @typedef {{ ms: number[][], bytes: number[], total: number[], all: number[], top: number }} Sums */

/**
 * Up to and with each round: ms of the phases, bytes; of each round its bytes and its ms; and ms
 * that few rounds exceed.
 * @param {FilmJson} at
 * @returns {Sums}
 */
export function addUp({ rounds, meta }) {
  const each = [meta.kv_bytes_per_slot.target, meta.kv_bytes_per_slot.draft];
  /** @type {number[][]} */
  const ms = [];
  /** @type {number[]} */
  const total = [];
  const bytes = rounds.map(({ stages }) =>
    sumOf(stages.flatMap(({ moves }) => moves.map((move) => move[6] * each[move[0]]))),
  );
  rounds.forEach((round, n) => {
    ms.push(round.ms.map((value, phase) => value + (n ? ms[n - 1][phase] : 0)));
    total.push(bytes[n] + (n ? total[n - 1] : 0));
  });
  const all = rounds.map((round) => sumOf(round.ms));
  const middle = [...all].sort((a, b) => a - b)[Math.floor(all.length / 2)];
  return { ms, bytes, total, all, top: Math.min(Math.max(...all), middle * 3 || Infinity) };
}

/**
 * ms of the phases in so many columns, each the mean of its rounds.
 * @param {RoundEntry[]} rounds
 * @param {number} count
 */
export function meansOf(rounds, count) {
  /** @type {number[][]} */
  const columns = [];
  for (let n = 0; n < count; n++) {
    const some = rounds.slice(
      Math.floor((n * rounds.length) / count),
      Math.floor(((n + 1) * rounds.length) / count),
    );
    columns.push(
      some[0].ms.map((_, phase) => sumOf(some.map((round) => round.ms[phase])) / some.length),
    );
  }
  return columns;
}

/** @param {number} share */
export function percent(share) {
  return share > 0 && share < 0.0005
    ? "<0.1 %"
    : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

/** @param {number[]} values */
export function sumOf(values) {
  return values.reduce((sum, value) => sum + value, 0);
}
