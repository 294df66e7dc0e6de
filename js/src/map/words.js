// Words of the map: what lies under the pointer, what a range adds up to, the map without its
// picture. Knows no pixels.

import { bytesOf, counted, milliseconds, partOf, percent } from "../draw/words.js";

/** @import { TableData } from "../types.d.ts" */
/** @import { Block, Tally, Totals } from "../film/tally.js" */

/** @type {Record<string, string>} */
const HAPPENED = {
  refill: "enters the batch",
  eos: "ends with EOS",
  budget: "ends with its budget",
  stopped: "ends before EOS or its budget",
  moved: "K/V copied",
  violation: "▲ violation",
};

/**
 * @param {number} first
 * @param {number} stop
 */
export function roundsWords(first, stop) {
  if (stop - first < 1) return "no round";
  return stop - first === 1 ? `round ${first}` : `rounds ${first}–${stop - 1}`;
}

/**
 * A request in a round.
 * @param {Tally} tally
 * @param {Block} block
 */
function gainWords(tally, block) {
  const { accepted, own, thrown } = block;
  const gains = [
    accepted ? `${counted(accepted, "draft")} accepted` : "",
    own ? "bonus" : "",
    thrown ? `${thrown} thrown away` : "",
  ].filter(Boolean);
  const signs = Object.entries(HAPPENED).filter(([name]) => tally.has(block, name));
  const events = signs.map(([, words]) => words);
  return [gains.join(", ") || "idle", ...events].join("; ");
}

/**
 * A lane at a round; null where nothing is to be said.
 * @param {Tally} tally
 * @param {number} request
 * @param {number} round
 */
export function laneHint(tally, request, round) {
  const block = tally.block(request, round);
  if (block) return `request ${request}, round ${round}: ${gainWords(tally, block)}`;
  const wait = tally.waits[request].find(([from, to]) => round >= from && round < to);
  return wait ? `request ${request} waits: ${roundsWords(...wait)}` : null;
}

/**
 * @param {Tally} tally
 * @param {number} round
 */
export function roundHint(tally, round) {
  const { phases } = tally.film.json;
  const { ms, all, bytes } = tally.totals(round, round + 1);
  const copied = bytes ? `, ${bytesOf(bytes)} of K/V copied` : "";
  if (!tally.timed) return `round ${round}${copied}`;
  const parts = ms.map((value, phase) => `${phases[phase]} ${milliseconds(value)}`).join(", ");
  return `round ${round}: ${milliseconds(all)}${copied} — ${parts}`;
}

/**
 * What a range of rounds adds up to, in parts of a line.
 * @param {Tally} tally
 * @param {Totals} totals
 */
export function totalsWords(tally, { first, stop, tokens, accepted, verified, rows, ...more }) {
  const { phases } = tally.film.json;
  const { ms, all, bytes } = more;
  const whole = stop - first === tally.rounds;
  const parts = [counted(tokens, "token")];
  if (verified) parts.push(`${percent(accepted / verified)} of drafts accepted`);
  if (rows) parts.push(`mean acceptance length ${(1 + accepted / rows).toFixed(2)}`);
  if (tally.timed && stop > first) {
    const each = ms.map((value, phase) => `${phases[phase]} ${partOf(value, all)}`);
    parts.push(`${milliseconds(all)}: ${each.join(", ")}`);
  }
  if (bytes !== null) parts.push(bytes ? `${bytesOf(bytes)} of K/V copied` : "no K/V copied");
  const head = whole ? `all ${counted(stop, "round")}` : roundsWords(first, stop);
  return { head, words: parts.join(" · ") };
}

/**
 * Which of two runs is faster.
 * @param {Tally[]} tallies
 * @param {string[]} names
 */
export function winnerWords(tallies, names) {
  const ends = tallies.map((tally) => tally.starts[tally.rounds]);
  const rounds = tallies.map((tally) => tally.rounds);
  const parts = [];
  if (tallies.every(({ timed }) => timed)) {
    const [fast, slow] = ends[0] <= ends[1] ? [0, 1] : [1, 0];
    const less = percent(1 - ends[fast] / ends[slow]);
    parts.push(
      `The ${ordinal(fast)} run (${names[fast]}) ends first: ${milliseconds(ends[fast])} against ` +
        `${milliseconds(ends[slow])}, ${less} less`,
    );
  }
  if (rounds[0] === rounds[1]) parts.push(`both take ${counted(rounds[0], "round")}`);
  else {
    const few = rounds[0] < rounds[1] ? 0 : 1;
    parts.push(
      `the ${ordinal(few)} takes ${counted(rounds[few], "round")}, the other ${rounds[1 - few]}`,
    );
  }
  const words = `${parts.join("; ")}.`;
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/**
 * What two lanes, or two runs, have to do with each other; "" of one.
 * @param {Tally[]} tallies
 * @param {string[]} names
 */
export function bothWords(tallies, names) {
  if (tallies.length < 2) return "";
  if (!tallies.every(({ begins }) => begins)) return winnerWords(tallies, names);
  const first = Math.min(...tallies.map(({ starts }) => starts[0]));
  const all = Math.max(...tallies.map(({ starts, rounds }) => starts[rounds])) - first;
  const waits = tallies.map((tally) => {
    const waited = all - tally.totals(0, tally.rounds).all;
    return `lane ${tally.lane} waits ${percent(waited / all)} of it`;
  });
  return `Both lanes take ${milliseconds(all)} on one clock; ${waits.join(", ")}.`;
}

/**
 * What a line of the table says of a run.
 * @param {Tally} tally
 * @param {number} run
 */
function numberOf({ lane }, run) {
  return lane === null ? ordinal(run) : `lane ${lane}`;
}

/** @param {number} run */
export function ordinal(run) {
  return run ? "second" : "first";
}

/**
 * How a request ended.
 * @param {Tally} tally
 * @param {Block[]} blocks
 */
function endWords(tally, blocks) {
  const found = ["eos", "budget", "stopped"].find((name) =>
    blocks.some((block) => tally.has(block, name)),
  );
  return { eos: "EOS", budget: "budget", stopped: "stopped" }[found ?? ""] ?? "–";
}

/**
 * A line for each request.
 * @param {Tally} tally
 * @returns {(string | number)[][]}
 */
function lines(tally) {
  return tally.lanes.map((blocks, request) => {
    /** @param {"accepted" | "own" | "thrown"} name */
    const sum = (name) => blocks.reduce((so, block) => so + block[name], 0);
    /** @param {string} name */
    const times = (name) => blocks.filter((block) => tally.has(block, name)).length;
    const waits = tally.waits[request].reduce((so, [from, to]) => so + to - from, 0);
    const last = blocks[blocks.length - 1];
    const broken = tally.film.checked ? [times("violation")] : [];
    return [
      request,
      last ? roundsWords(blocks[0].round, last.round + 1) : "–",
      waits,
      sum("accepted") + sum("own"),
      sum("accepted"),
      sum("own"),
      sum("thrown"),
      times("moved"),
      ...broken,
      endWords(tally, blocks),
    ];
  });
}

/**
 * The map as a table.
 * @param {Tally[]} tallies
 * @param {string} caption
 * @returns {TableData}
 */
export function mapTable(tallies, caption) {
  const judged = tallies.every((tally) => tally.film.checked);
  const head = [
    ...(tallies.length > 1 ? ["run"] : []),
    ...["request", "rounds", "waits", "tokens", "accepted", "bonus", "thrown away", "K/V copied"],
    ...(judged ? ["violations"] : []),
    "end",
  ];
  const rows = tallies.flatMap((tally, run) =>
    lines(tally).map((line) => (tallies.length > 1 ? [numberOf(tally, run), ...line] : line)),
  );
  return { caption, head, rows };
}

/**
 * The map in a few sentences.
 * @param {Tally[]} tallies
 * @param {string[]} names
 */
export function describeMap(tallies, names) {
  const sentences = tallies.map((tally, run) => {
    const { words } = totalsWords(tally, tally.totals(0, tally.rounds));
    const known = tally.lane === null ? `The ${ordinal(run)} run, ${names[run]}` : names[run];
    const who = tallies.length > 1 ? `${known}: ` : "";
    const size = `${counted(tally.lanes.length, "request")}, ${counted(tally.rounds, "round")}`;
    const { first } = tally;
    const broken = first ? ` First violation: round ${first.round}, request ${first.request}.` : "";
    return `${who}${size}, ${words}.${broken}`;
  });
  const both = bothWords(tallies, names);
  return ["Map of the run, a lane a request.", ...sentences, ...(both ? [both] : [])].join(" ");
}
