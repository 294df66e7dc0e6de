// Tiny: a film of one round and one row, as Python would write it: a prompt of three tokens, two
// drafts, the first accepted, the second rejected.

import { Film } from "../src/film/film.js";

const KINDS = ["empty", "padding", "held", "drafted", "stale", "pending"];
const PHASES = ["schedule", "draft", "verify", "accept", "synchronise"];
const FATES = "none accepted rejected bonus kept discarded wrong ended unreached unverified".split(
  " ",
);

/** @returns {any} */
function tinyRow() {
  return {
    request: 0,
    length: 3,
    drafted: 2,
    verified: 2,
    accepted: 1,
    gained: 2,
    finished: false,
    discarded: 0,
    start: 1,
    start_after: 1,
    pending: 3,
    pending_after: 5,
    drafts: [7, 8],
    emitted: [7, 9],
    q: [0.5, 0.25],
    p: [0.75, 0.1],
    target: [[[7, 0.75]], [[9, 0.6]], [[4, 0.5]]],
    draft: [[[7, 0.5]], [[8, 0.25]]],
    fates: [1, 2, 8],
  };
}

/**
 * A stage in which `feeds` read from the lane of that number.
 * @param {number} lane
 * @param {any[]} [feeds]
 * @returns {any}
 */
function tinyStage(lane, feeds = []) {
  return {
    words: "",
    words_of: [""],
    width: 7,
    lengths: [3],
    starts: [1],
    pending: [3],
    tokens: [lane],
    target: [lane],
    draft: [lane],
    feeds,
    faults: [],
    moves: [],
    violations: [],
  };
}

/** @returns {any} */
export function tinyJson() {
  const verify = [0, 0, 0, 3, 3, 2, 2, 1, 4, 1];
  return {
    kinds: KINDS,
    phases: PHASES,
    fates: FATES,
    meta: {
      strategy: "eqspec",
      strategy_options: {},
      valid: true,
      batch_size: 1,
      num_draft_tokens: 2,
      eos_token_ids: [9],
      decisions: ["all"],
      sampling: null,
      kv_bytes_per_slot: { target: 4, draft: 2 },
    },
    options: {},
    texts: { 7: "seven", 8: "eight", 9: "nine" },
    requests: [{ prompt: 3, tokens: [1, 2, 3, 7, 9], origins: "pppab", budget: 2 }],
    rounds: [
      {
        slots: 6,
        decision: "all",
        ms: [1, 1, 1, 1, 1],
        bytes: 0,
        // EOS is the second sign.
        map: [[1, 1, 1, 2]],
        rows: [tinyRow()],
        pool: [],
        stages: [0, 0, 1, 1, 1].map((lane, phase) => tinyStage(lane, phase === 2 ? [verify] : [])),
      },
    ],
    // The second lane begins with the first run of the first lane.
    lanes: [
      [
        [0, 1, 1, -1, -1, -1, 0],
        [1, 3, 2, 0, 0, 0, 0],
      ],
      [0, 2, [3, 6, 3, 2, 2, 0, [3, 7, 8]], [6, 7, 4, 5, 5, 0, [8]]],
    ],
    holes: [[], [[2, 3]]],
    signs: ["refill", "eos", "budget", "stopped", "moved", "violation"],
    waits: [],
    violations: [],
  };
}

/** @param {(json: any) => void} [change] */
export function tinyFilm(change = () => {}) {
  const json = tinyJson();
  change(json);
  return new Film(json);
}
