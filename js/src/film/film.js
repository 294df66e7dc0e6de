// Film: a recorded run as Python's `specviz.views.stepper.film` described it, and questions about
// it. A step is a phase of a round: step = round * 5 + phase. Knows no colours, no pixels and no
// page.

import { Tally } from "./tally.js";
import { branches, turnedDown } from "./tree.js";

/** @import { Cell, FilmJson, LaneName, LaneRun, RowEntry } from "../types.d.ts" */

const EMPTY_CELL = { kind: "empty", index: -1, position: -1, request: -1, token: -1, origin: "" };
/** @type {Record<string, string>} */
const WORDS = {
  empty: "empty",
  padding: "padding",
  p: "prompt",
  a: "accepted earlier",
  b: "bonus of an earlier round",
  drafted: "drafted, not judged yet",
  stale: "stale: K/V that no longer counts",
  pending: "pending: its K/V does not exist yet",
  accepted_now: "accepted now",
  bonus_now: "bonus, now pending",
  rejected_now: "rejected, its K/V is stale",
  discarded_now: "verified, but thrown away",
  unreached_now: "not reached, its K/V is stale",
  wrong_now: "not the target's own token, now pending",
  unverified: "drafted, not verified",
};

/** @param {BufferSource} bytes */
export async function decodeFilm(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Film(JSON.parse(await new Response(stream).text()));
}

/**
 * A lane [number, count, run, ...] begins with the first `count` runs of an earlier one.
 * @param {any[]} lanes
 */
function unfoldLanes(lanes) {
  lanes.forEach((lane, n) => {
    if (typeof lane[0] === "number")
      lanes[n] = [...lanes[lane[0]].slice(0, lane[1]), ...lane.slice(2)];
  });
}

/**
 * Feeds name their holes by number, since most have the same ones.
 * @param {any} at
 */
function unfoldHoles({ rounds, holes }) {
  for (const { stages } of rounds)
    for (const { feeds } of stages) for (const feed of feeds) feed[9] = holes[feed[9]];
}

export class Film {
  /** @param {FilmJson} json */
  constructor(json) {
    this.json = json;
    unfoldLanes(json.lanes);
    unfoldHoles(json);
    this.phases = json.phases.length;
    this.steps = json.rounds.length * this.phases;
    this._gains = this._sumGains();
    this.mostRows = Math.max(...json.rounds.map(({ rows }) => rows.length), 1);
    const capacities = json.rounds.flatMap(({ capacity }) => capacity ?? []);
    /** The largest of a round; nothing in a run without a selector. */
    this.capacity = capacities.length ? Math.max(...capacities) : undefined;
    this.checked = json.violations !== null;
    // Whether it may be said what the target chose.
    this.knowsChoices = this.checked && !json.gaps?.choices;
    this._violations = (json.violations ?? []).map((each) => ({
      ...each,
      step: each.round * this.phases + each.phase,
    }));
    /** @type {boolean | undefined} */
    this._drifts = undefined;
    /** @type {Tally | undefined} */
    this._tally = undefined;
  }

  /** What the run adds up to, counted when it is first asked for. */
  get tally() {
    this._tally ??= new Tally(this);
    return this._tally;
  }

  /** @param {number} step */
  round(step) {
    return Math.floor(step / this.phases);
  }
  /** @param {number} step */
  phase(step) {
    return step % this.phases;
  }
  /** @param {number} step */
  phaseName(step) {
    return this.json.phases[this.phase(step)];
  }
  /** @param {number} step */
  scene(step) {
    return this.json.rounds[this.round(step)];
  }
  /** @param {number} step */
  stage(step) {
    return this.scene(step).stages[this.phase(step)];
  }
  /** @param {number} step */
  rows(step) {
    return this.scene(step).rows;
  }
  /** @param {number} step */
  judged(step) {
    return this.phase(step) >= 3;
  }
  /**
   * @param {number} round
   * @param {string} phaseName
   */
  step(round, phaseName) {
    return round * this.phases + this.json.phases.indexOf(phaseName);
  }

  /** @param {number | null | undefined} id */
  text(id) {
    if (id === null || id === undefined) return "";
    return this.json.texts[id] ?? (id < 0 ? "" : `#${id}`);
  }
  /**
   * @param {number} request
   * @param {number} index
   */
  token(request, index) {
    return this.json.requests[request]?.tokens[index];
  }
  /**
   * @param {number} step
   * @param {number} request
   */
  rowOf(step, request) {
    return this.rows(step).findIndex((row) => row.request === request);
  }

  /**
   * @param {number} step
   * @param {LaneName} which
   * @param {number} row
   */
  lane(step, which, row) {
    return this.json.lanes[this.stage(step)[which][row]] ?? [];
  }

  /**
   * What a slot of a lane holds; a run is [slot, stop, kind, index, position, request, tokens].
   * @param {number} step
   * @param {LaneName} which
   * @param {number} row
   * @param {number} slot
   */
  cell(step, which, row, slot) {
    const run = this.lane(step, which, row).find((each) => slot >= each[0] && slot < each[1]);
    return run ? this.cellOf(run, slot) : null;
  }

  /**
   * @param {LaneRun} run
   * @param {number} slot
   */
  cellOf(run, slot) {
    const [first, , code, index, position, request, tokens] = run;
    const kind = this.json.kinds[code];
    const at = slot - first;
    if (index < 0) return { ...EMPTY_CELL, kind };
    const token = tokens ? tokens[at] : this.token(request, index + at);
    const origin = kind === "held" ? this.json.requests[request].origins[index + at] : "";
    return {
      kind,
      index: index + at,
      position: position < 0 ? -1 : position + at,
      request,
      token,
      origin,
    };
  }

  /** @param {Cell} cell */
  wordOf(cell) {
    return WORDS[cell.kind === "held" ? cell.origin : cell.kind] ?? cell.kind;
  }

  /** @param {number} step */
  violationsAt(step) {
    return this.stage(step).violations.map((number) => this._violations[number]);
  }
  get violations() {
    return this._violations;
  }

  // Whether any token's position is known not to be its index.
  get drifts() {
    /** @param {LaneRun} run */
    const drifting = ([, , , index, position]) => position >= 0 && position !== index;
    this._drifts ??= this.checked && this.json.lanes.some((lane) => lane.some(drifting));
    return this._drifts;
  }

  /**
   * Rows whose last token of the round, judged by now, is known not to be the target's choice.
   * @param {number} step
   */
  wrongEnds(step) {
    const found = this.judged(step) ? this.violationsAt(this.step(this.round(step), "accept")) : [];
    return new Set(found.filter((each) => each.rule === "bonus").map((each) => each.row));
  }

  /**
   * The draft that a row of the round rejected for another token; null where there is none.
   * @param {RowEntry} at
   */
  rejectedDraft(at) {
    const { drafts, verified, accepted, gained, discarded, emitted } = at;
    if (branches(at)) {
      const draft = gained > accepted && !discarded ? turnedDown(at) : -1;
      return draft < 0 || drafts[draft] === emitted[accepted] ? null : drafts[draft];
    }
    const rejects =
      accepted < verified &&
      gained > accepted &&
      !discarded &&
      emitted[accepted] !== drafts[accepted];
    return rejects ? drafts[accepted] : null;
  }

  /**
   * New tokens of all requests up to and including a step.
   * @param {number} step
   */
  committed(step) {
    return this._gains[this.round(step) + (this.judged(step) ? 1 : 0)];
  }

  _sumGains() {
    const sums = [0];
    for (const round of this.json.rounds)
      sums.push(sums[sums.length - 1] + round.rows.reduce((sum, row) => sum + row.gained, 0));
    return sums;
  }
}
