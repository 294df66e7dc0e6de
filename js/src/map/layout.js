// MapLayout: where the lanes of the runs, the strips under them and the axis lie, in px, and what
// is under a point. Draws nothing.

export const GUTTER = 66; // px left of the axis
export const RIGHT = 16;
const TOP = 4;
const TALLEST = 11; // px of a lane
const ROOM = 192; // px for all lanes of a run
const LOWEST = 3;
const ROOM_OF_TWO = 128; // and of each of two runs
const LOWEST_OF_TWO = 2;
const LOW_ROOM = 32; // px for all lanes of a low map
const NAME = 18; // px over the lanes of each of two runs
const TIME = 20;
const BYTES = 6;
const LEAD = 26;
const RULER = 19;

/**
 * Of one run. first: the first of the `shown` lanes that are seen, of `count`.
 * @typedef {{ name: number, lanes: number, pitch: number, count: number, shown: number,
 *   first: number, time: number, bytes: number, bottom: number }} Group
 * @typedef {{ part: "lane" | "time" | "lead" | "ruler" | "none", run: number,
 *   request: number | null }} Spot
 */

export class MapLayout {
  /**
   * @param {number} width
   * @param {{ count: number, first: number, timed: boolean, copies: boolean }[]} runs
   * @param {boolean} [low]
   * @param {boolean} [together] whether the two are lanes of one run
   */
  constructor(width, runs, low = false, together = false) {
    this.width = width;
    this.room = Math.max(width - GUTTER - RIGHT, 40);
    this.two = runs.length > 1;
    const [lanes, lowest] = this.two ? [ROOM_OF_TWO, LOWEST_OF_TWO] : [ROOM, LOWEST];
    this.lanesRoom = low ? LOW_ROOM : lanes;
    this.pitch = pitchOf(Math.max(...runs.map(({ count }) => count), 1), this.lanesRoom, lowest);
    let y = TOP;
    /** @type {Group[]} */
    this.groups = runs.map((run) => {
      const group = this._group(run, y);
      y = group.bottom;
      return group;
    });
    this.lead = this.two && !together ? y + 2 : null;
    this.ruler = y + (this.lead === null ? 0 : LEAD + 6);
    this.height = this.ruler + RULER;
  }

  /**
   * @param {{ count: number, first: number, timed: boolean, copies: boolean }} run
   * @param {number} y
   * @returns {Group}
   */
  _group({ count, first, timed, copies }, y) {
    const most = Math.floor(this.lanesRoom / this.pitch);
    const shown = Math.min(count, most);
    const lanes = y + (this.two ? NAME : 0);
    const time = lanes + shown * this.pitch + 4;
    const bytes = time + (timed ? TIME + 2 : 0);
    return {
      name: y,
      lanes,
      pitch: this.pitch,
      count,
      shown,
      first: Math.min(Math.max(first, 0), count - shown),
      time,
      bytes,
      bottom: bytes + (copies ? BYTES + 2 : 0) + (this.two ? 4 : 0),
    };
  }

  get heights() {
    return { time: TIME, bytes: BYTES, lead: LEAD, ruler: RULER };
  }

  /**
   * The top of a request's lane; null where it is not seen.
   * @param {number} run
   * @param {number} request
   */
  laneY(run, request) {
    const { lanes, pitch, first, shown } = this.groups[run];
    const place = request - first;
    return place >= 0 && place < shown ? lanes + place * pitch : null;
  }

  /**
   * @param {number} y
   * @returns {Spot}
   */
  under(y) {
    if (y >= this.ruler) return { part: "ruler", run: 0, request: null };
    if (this.lead !== null && y >= this.lead - 2) return { part: "lead", run: 0, request: null };
    const run = this.groups.findIndex(({ name, bottom }) => y >= name && y < bottom);
    if (run < 0) return { part: "none", run: 0, request: null };
    const { lanes, pitch, first, shown } = this.groups[run];
    const place = Math.floor((y - lanes) / pitch);
    if (place >= 0 && place < shown) return { part: "lane", run, request: first + place };
    return { part: y >= lanes ? "time" : "none", run, request: null };
  }

  /**
   * The first lane to be seen, so that a request's lane is.
   * @param {number} run
   * @param {number} request
   */
  firstFor(run, request) {
    const { first, shown } = this.groups[run];
    if (request < first) return request;
    return request >= first + shown ? request - shown + 1 : first;
  }
}

/**
 * px of a lane
 * @param {number} count
 * @param {number} room
 * @param {number} lowest
 */
function pitchOf(count, room, lowest) {
  return Math.min(Math.max(Math.floor(room / count), lowest), TALLEST);
}

/**
 * How much of a lane is its blocks, and where in them the low ones begin.
 * @param {number} pitch
 */
export function blockIn(pitch) {
  const gap = pitch >= 8 ? 3 : pitch >= 3 ? 1 : 0;
  const h = pitch - gap;
  return { h, low: Math.max(Math.round(h * 0.38), 1) };
}
