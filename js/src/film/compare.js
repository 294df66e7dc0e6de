// Comparison: two runs of the same prompts. Where their texts part, and which step of one belongs
// to which step of the other. The clock counts the steps of the longer run. Draws nothing.

/** @import { Film } from "../types.d.ts" */

export class Comparison {
  /**
   * words: where the runs first differ, and why
   * @param {Film} first
   * @param {Film} second
   * @param {string} [words]
   */
  constructor(first, second, words = "") {
    this.words = words;
    this.films = [first, second];
    const numbers = this.films.map(({ json }) => json.meta.lane ?? null);
    /** Whether they are the two lanes of one run, which are not compared. */
    this.lanes = !numbers.includes(null) && numbers[0] !== numbers[1];
    this.lead = second.steps > first.steps ? 1 : 0;
    this.clocks = this.films[this.lead].steps;
    this.byTokens = false;
    // By request: the index of the first token that the runs do not share, -1 for none.
    this.partings = first.json.requests.map((_, request) => this._parting(request));
  }

  /**
   * Index of the first token of a request that the runs do not share; -1: the texts are the same.
   * @param {number} request
   */
  _parting(request) {
    if (this.lanes) return -1;
    const [a, b] = this.films.map((film) => film.json.requests[request].tokens);
    const at = a.findIndex((token, index) => token !== b[index]);
    return at >= 0 ? at : a.length === b.length ? -1 : a.length;
  }

  /**
   * @param {number} request
   * @param {number} index
   */
  differs(request, index) {
    const [a, b] = this.films.map((film) => film.token(request, index));
    return !this.lanes && a !== b;
  }

  // {request, index, step}: where the texts part for the first time, step being the first run's;
  // null where they never do.
  get first() {
    const found = this.partings.flatMap((index, request) =>
      index < 0 ? [] : [{ request, index, step: this._emitted(request, index) }],
    );
    return found.length
      ? found.reduce((best, each) => (each.step < best.step ? each : best))
      : null;
  }

  /**
   * The step of the first run that emits a token, or the last one that emits any of the request
   * where its text is over by then.
   * @param {number} request
   * @param {number} index
   */
  _emitted(request, index) {
    const film = this.films[0];
    const { rounds } = film.json;
    let last = 0;
    for (let number = 0; number < rounds.length; number++) {
      const row = rounds[number].rows.find((each) => each.request === request && each.gained > 0);
      if (!row) continue;
      last = number;
      if (index < row.length + row.gained) break;
    }
    return film.step(last, "accept");
  }

  /**
   * The step that run `which` shows when the clock is at `clock`: the same phase, in the round of
   * the same number, or by tokens in the last round that begins with no more of them than the other
   * run's.
   * @param {number} which
   * @param {number} clock
   */
  stepOf(which, clock) {
    const film = this.films[which];
    if (which === this.lead) return clock;
    const round = this.films[this.lead].round(clock);
    const phase = film.phase(clock);
    return (
      film.phases *
        (this.byTokens
          ? this._roundOf(film, round)
          : Math.min(round, film.json.rounds.length - 1)) +
      phase
    );
  }

  /**
   * @param {Film} film
   * @param {number} leading
   */
  _roundOf(film, leading) {
    const goal = this.films[this.lead].committed(leading * film.phases);
    return (
      bisect(film.json.rounds.length, (round) => film.committed(round * film.phases) > goal) - 1
    );
  }

  /**
   * The first clock at which run `which` shows `step`; a later one where none does.
   * @param {number} which
   * @param {number} step
   */
  clockOf(which, step) {
    const film = this.films[which];
    if (which === this.lead || !this.byTokens) return step;
    const rounds = this.clocks / film.phases;
    const wanted = film.round(step);
    const leading = Math.min(
      bisect(rounds, (round) => this._roundOf(film, round) >= wanted),
      rounds - 1,
    );
    return leading * film.phases + film.phase(step);
  }

  /**
   * @param {number} which
   * @param {number} clock
   */
  over(which, clock) {
    return !this.byTokens && clock >= this.films[which].steps;
  }
}

/**
 * The smallest number below `count` of which `holds` is true, and so of all that follow; `count` if
 * it is true of none.
 * @param {number} count
 * @param {(value: number) => boolean} holds
 */
function bisect(count, holds) {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
