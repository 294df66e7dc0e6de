// Tree: the drafts of a row as a tree, whose root is the row's pending token. A chain is the tree in
// which each draft follows the one before. Knows no pixels.

/** @import { Film, Place, RowEntry, TreeNode } from "../types.d.ts" */

/**
 * The draft that draft j follows, -1 for the pending token.
 * @param {RowEntry} entry
 * @param {number} j
 */
export function parentOf(entry, j) {
  return entry.parents ? entry.parents[j] : j - 1;
}

/**
 * Whether the drafts form another tree than a chain.
 * @param {RowEntry} entry
 */
export function branches({ parents }) {
  return parents?.some((parent, j) => parent !== j - 1) ?? false;
}

/** @param {Film} film */
export function hasTrees({ json }) {
  return json.rounds.some((round) => round.rows.some((row) => row.parents !== undefined));
}

/**
 * How far behind the pending token draft j stands; 1 for one that follows it.
 * @param {RowEntry} entry
 * @param {number} j
 */
export function depthOf(entry, j) {
  return lineOf(entry, j).length;
}

/**
 * Draft j and all that it follows, the first one first.
 * @param {RowEntry} entry
 * @param {number} j
 */
export function lineOf(entry, j) {
  const line = [];
  for (let draft = j; draft >= 0; draft = parentOf(entry, draft)) line.unshift(draft);
  return line;
}

/**
 * The last accepted draft, -1 for none.
 * @param {RowEntry} entry
 */
export function lastOf(entry) {
  if (!entry.path) return entry.accepted - 1;
  return entry.path.at(-1) ?? -1;
}

/**
 * Whether draft j was accepted, if anything was.
 * @param {RowEntry} entry
 * @param {number} j
 */
export function isAccepted(entry, j) {
  return entry.path ? entry.path.includes(j) : j < entry.accepted;
}

/**
 * The first verified draft behind the accepted ones, which the target has turned down; -1 where
 * there is none.
 * @param {RowEntry} entry
 */
export function turnedDown(entry) {
  const last = lastOf(entry);
  for (let j = 0; j < entry.verified; j++) if (parentOf(entry, j) === last) return j;
  return -1;
}

/**
 * Whether a row accepted all that it could: no verified draft follows on the accepted ones.
 * @param {RowEntry} entry
 */
export function isFull(entry) {
  return entry.verified > 0 && turnedDown(entry) < 0;
}

/**
 * The slot of each draft at a step, null where its token stands in none.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @returns {(number | null)[]}
 */
export function slotsOf(film, step, row) {
  const entry = film.rows(step)[row];
  const phase = film.phase(step);
  const shift = phase === 4 ? entry.start_after - entry.start : 0;
  const moved = phase < 3 ? new Map() : compacted(film, step, row);
  return entry.drafts.map((token, j) => {
    if (phase === 0) return null;
    const first = entry.pending + 1 + j;
    const slot = (moved.get(first) ?? first) + shift;
    const cell = film.cell(step, "tokens", row, slot);
    const stands = cell?.token === token && cell.index === entry.length + depthOf(entry, j) - 1;
    return stands ? slot : null;
  });
}

/**
 * Where the target's K/V of a row's slots went in the acceptance of a round: by slot.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 */
export function compacted(film, step, row) {
  /** @type {Map<number, number>} */
  const moved = new Map();
  const { moves } = film.stage(film.step(film.round(step), "accept"));
  for (const [model, , from, fromSlot, to, toSlot, length] of moves) {
    if (model !== 0 || from !== row || to !== row) continue;
    for (let n = 0; n < length; n++) moved.set(fromSlot + n, toSlot + n);
  }
  return moved;
}

/**
 * The draft of a row that a place on the page is about; -1 for none.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @param {Place | null} place
 */
export function draftAt(film, step, row, place) {
  if (!place || place.row !== row || !film.rows(step)[row]?.parents) return -1;
  if (place.draft !== undefined) return place.draft;
  return place.slot === null ? -1 : slotsOf(film, step, row).indexOf(place.slot);
}

/**
 * The drafts of a row as nodes, in the order of their numbers. Before they are drafted, there are
 * none.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @returns {TreeNode[]}
 */
export function treeNodes(film, step, row) {
  const entry = film.rows(step)[row];
  if (!entry || film.phase(step) === 0) return [];
  const slots = slotsOf(film, step, row);
  return entry.drafts.map((token, j) => {
    const parent = parentOf(entry, j);
    const siblings = entry.drafts.flatMap((_, k) => (parentOf(entry, k) === parent ? [k] : []));
    return {
      number: j,
      parent,
      depth: depthOf(entry, j),
      token,
      rank: siblings.indexOf(j) + 1,
      siblings: siblings.length,
      slot: slots[j],
    };
  });
}
