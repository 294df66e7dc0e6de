// Tally: a run as the map shows it: the blocks of each request, who waits, and sums over rounds.
// What happened was judged in Python; here it is only ordered and added up. Knows no pixels.

/** @import { Film, Range } from "../types.d.ts" */

/**
 * What a row gained in a round. signs: the sum of the bits of what happened.
 * @typedef {{ round: number, row: number, accepted: number, own: number, thrown: number,
 *   signs: number }} Block
 * Of a range of rounds. bytes: of K/V that was copied, null where a log does not say it.
 * @typedef {{ first: number, stop: number, tokens: number, accepted: number, verified: number,
 *   rows: number, bytes: number | null, ms: number[], all: number }} Totals
 */

export class Tally {
  /** @param {Film} film */
  constructor(film) {
    const { rounds, requests, waits, gaps, begins, meta } = film.json;
    this.film = film;
    this.lane = meta.lane ?? null; // of a run in two lanes
    /** When each phase of each round began, of a lane. */
    this.begins = begins ?? null;
    this.rounds = rounds.length;
    this.lanes = this._blocks();
    /** @type {Range[][]} */
    this.waits = requests.map(() => []);
    for (const [request, first, stop] of waits) this.waits[request].push([first, stop]);
    this._sums = this._addUp();
    const all = rounds.map(({ ms }) => sumOf(ms));
    const end = begins?.length ? begins[begins.length - 1][4] + rounds[begins.length - 1].ms[4] : 0;
    /** When each round began, and the end: on the clock of both lanes, or without pauses. */
    this.starts = begins ? [...begins.map(([begin]) => begin), end] : runningSums(all);
    this.timed = !gaps?.time && this.starts[this.rounds] > 0;
    this.told = rounds.every(({ bytes }) => bytes !== null); // whether bytes are known
    const common = [...all].sort((a, b) => a - b)[Math.floor(all.length * 0.9)];
    // ms that few rounds exceed
    this.slowest = Math.max(Math.min(Math.max(...all, 0), common * 1.25 || Infinity), 1e-9);
    this.heaviest = Math.max(...rounds.map(({ bytes }) => bytes ?? 0), 0);
    this.copies = this.heaviest > 0;
    const [first] = film.violations;
    this.first = first ? { round: first.round, request: first.request } : null;
  }

  /** @returns {Block[][]} */
  _blocks() {
    const { rounds, requests } = this.film.json;
    /** @type {Block[][]} */
    const lanes = requests.map(() => []);
    rounds.forEach(({ rows, map }, round) =>
      map.forEach(([accepted, own, thrown, signs], row) =>
        lanes[rows[row].request].push({ round, row, accepted, own, thrown, signs }),
      ),
    );
    return lanes;
  }

  // A row that has ended and stays in the batch counts in no rate.
  _addUp() {
    const { rounds, phases } = this.film.json;
    const working = rounds.map(({ rows }) => rows.filter(({ gained }) => gained > 0));
    /** @param {"gained" | "accepted" | "verified"} name */
    const column = (name) =>
      runningSums(working.map((rows) => sumOf(rows.map((row) => row[name]))));
    return {
      tokens: column("gained"),
      accepted: column("accepted"),
      verified: column("verified"),
      rows: runningSums(working.map((rows) => rows.length)),
      bytes: runningSums(rounds.map(({ bytes }) => bytes ?? 0)),
      ms: phases.map((_, phase) => runningSums(rounds.map(({ ms }) => ms[phase]))),
      all: runningSums(rounds.map(({ ms }) => sumOf(ms))),
    };
  }

  /**
   * Whether something of SIGNS happened in a block.
   * @param {Block} block
   * @param {string} name
   */
  has({ signs }, name) {
    return ((signs >> this.film.json.signs.indexOf(name)) & 1) === 1;
  }

  /**
   * Of the rounds [first, stop).
   * @param {number} first
   * @param {number} stop
   * @returns {Totals}
   */
  totals(first, stop) {
    /** @param {number[]} sums */
    const over = (sums) => sums[stop] - sums[first];
    const { tokens, accepted, verified, rows, bytes, ms, all } = this._sums;
    return {
      first,
      stop,
      tokens: over(tokens),
      accepted: over(accepted),
      verified: over(verified),
      rows: over(rows),
      bytes: this.told ? over(bytes) : null,
      ms: ms.map(over),
      all: over(all),
    };
  }

  /**
   * When each phase of a round ends, in ms since the round began.
   * @param {number} round
   */
  phaseEnds(round) {
    const { ms } = this.film.json.rounds[round];
    const begins = this.begins?.[round];
    return begins
      ? ms.map((value, phase) => begins[phase] + value - begins[0])
      : runningSums(ms).slice(1);
  }

  /**
   * New tokens of all requests before a round.
   * @param {number} round
   */
  tokensBefore(round) {
    return this._sums.tokens[round];
  }

  /**
   * The block of a request in a round; null while it is not in the batch.
   * @param {number} request
   * @param {number} round
   */
  block(request, round) {
    return this.lanes[request]?.find((each) => each.round === round) ?? null;
  }

  /**
   * The round in which a request emits the token of an index; -1 where it never does.
   * @param {number} request
   * @param {number} index
   */
  roundOf(request, index) {
    const { rounds } = this.film.json;
    const found = this.lanes[request].find(({ round, row }) => {
      const { length, gained } = rounds[round].rows[row];
      return index >= length && index < length + gained;
    });
    return found?.round ?? -1;
  }
}

/** @param {number[]} values */
export function sumOf(values) {
  return values.reduce((sum, value) => sum + value, 0);
}

/**
 * What comes before each of the values, and at the end all of them.
 * @param {number[]} values
 */
export function runningSums(values) {
  const sums = [0];
  for (const value of values) sums.push(sums[sums.length - 1] + value);
  return sums;
}
