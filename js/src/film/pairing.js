// Pairing: which rows of two runs belong together, and what of their lanes differs. Draws nothing.
// What a lane holds is compared place by place: by slots, or by the positions of its tokens.

/** @import { Comparison, Film, LaneRun } from "../types.d.ts" */

/**
 * rows: of the request in each run, -1 where it is not in the batch.
 * @typedef {{ request: number, rows: number[] }} RowPair
 */

/**
 * The requests in the batches of both runs, in the order of the first one; then those that only the
 * second one has.
 * @param {Film[]} films
 * @param {number[]} steps
 * @returns {RowPair[]}
 */
export function pairsAt(films, steps) {
  const [ours, theirs] = films.map((film, run) =>
    film.rows(steps[run]).map(({ request }) => request),
  );
  const requests = [...ours, ...theirs.filter((request) => !ours.includes(request))];
  return requests.map((request) => ({
    request,
    rows: [ours.indexOf(request), theirs.indexOf(request)],
  }));
}

/** @type {WeakMap<Comparison, number[]>} */
const most = new WeakMap();

/**
 * The most pairs at any time, so that nothing moves from one step to the next.
 * @param {Comparison} comparison
 */
export function mostPairs(comparison) {
  const known = most.get(comparison) ?? [];
  most.set(comparison, known);
  const way = Number(comparison.byTokens);
  known[way] ??= mostAtATime(comparison, (films, steps) => pairsAt(films, steps).length);
  return known[way];
}

/**
 * @param {Comparison} comparison
 * @param {(films: Film[], steps: number[]) => number} count
 */
function mostAtATime(comparison, count) {
  const { films, clocks } = comparison;
  let found = 1;
  for (let clock = 0; clock < clocks; clock += films[0].phases) {
    const steps = films.map((_, run) => comparison.stepOf(run, clock));
    found = Math.max(found, count(films, steps));
  }
  return found;
}

/** @type {WeakMap<Comparison, number[]>} */
const highest = new WeakMap();

/**
 * The most rows that both runs take at any time, one above the other. A request has two, of which
 * one may be empty. Lanes divide the requests between them: there a request has those that exist.
 * @param {Comparison} comparison
 */
export function mostLines(comparison) {
  if (!comparison.lanes) return 2 * mostPairs(comparison);
  const known = highest.get(comparison) ?? [];
  highest.set(comparison, known);
  const way = Number(comparison.byTokens);
  known[way] ??= mostAtATime(comparison, (films, steps) =>
    films.reduce((sum, film, run) => sum + film.rows(steps[run]).length, 0),
  );
  return known[way];
}

/**
 * Why a request is not in the batch of a run now.
 * @param {Film} film
 * @param {number} step
 * @param {number} request
 */
export function absence(film, step, request) {
  const rounds = film.json.rounds.flatMap(({ rows }, round) =>
    rows.some((row) => row.request === request) ? [round] : [],
  );
  const now = film.round(step);
  const last = rounds.at(-1);
  if (last === undefined) return "never in the batch";
  if (last < now) return `ended in round ${last}`;
  return rounds[0] > now ? `enters in round ${rounds[0]}` : "waits";
}

/**
 * What a place of a lane holds.
 * @typedef {{ slot: number, position: number, kind: string, what: string }} Held
 */

/** @type {WeakMap<LaneRun[], Map<number, Held>>[]} */
const kept = [new WeakMap(), new WeakMap()];

/**
 * What a lane holds, by slot or by position. Lanes stand in many steps, so it is kept.
 * @param {Film} film
 * @param {LaneRun[]} lane
 * @param {boolean} byPosition
 */
function heldIn(film, lane, byPosition) {
  const known = kept[Number(byPosition)].get(lane);
  if (known) return known;
  /** @type {Map<number, Held>} */
  const found = new Map();
  for (const run of lane) {
    const [first, stop, kind, index, position, request, tokens] = run;
    const name = film.json.kinds[kind];
    // By positions, what is no token of the row has no place.
    if (name === "empty" || (byPosition && (index < 0 || name === "stale"))) continue;
    for (let at = 0; at < stop - first; at++) {
      const own = index < 0 ? -1 : (position < 0 ? index : position) + at;
      const token = tokens ? tokens[at] : film.token(request, index + at);
      const what = index < 0 ? name : [name, request, index + at, token, own].join();
      found.set(byPosition ? own : first + at, {
        slot: first + at,
        position: own,
        kind: name,
        what,
      });
    }
  }
  kept[Number(byPosition)].set(lane, found);
  return found;
}

/**
 * The places of a lane that do not hold the same token in the same state as those of another.
 * @param {Film[]} films own and other
 * @param {LaneRun[][]} lanes own and other
 * @param {boolean} byPosition
 */
export function differing(films, lanes, byPosition) {
  const [own, other] = lanes.map((lane, run) => heldIn(films[run], lane, byPosition));
  return [...own].flatMap(([place, held]) =>
    other.get(place)?.what === held.what ? [] : [{ place, ...held }],
  );
}
