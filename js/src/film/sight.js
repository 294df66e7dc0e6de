// Sight: which slots the queries of one row saw in a forward. Python judged it
// (specviz/checks/attention.py); here that is laid over what the slots hold. Knows no pixels.

import { featureLag } from "./head.js";
import { driftsAway } from "./positions.js";
import { joinedRanges } from "./ranges.js";
import { narrowed, windowed, windowOf } from "./windows.js";

/** @import { Fault, FeedRun, Film, LaneRun, MaskCells, Move, Query, Range, RowEntry, Segment, Sight, StageEntry, Windows } from "../types.d.ts" */

/**
 * A block of slots that one run of a lane covers, cut where the mask or its holes begin or end.
 * index: of the first slot's token, -1 where the slots hold none that counts; stale: they hold one
 * that no longer counts; open: the mask does not hide them.
 * @typedef {{ start: number, stop: number, index: number, stale: boolean, open: boolean }} Piece
 */

/**
 * The forward that a phase shows for a row: its prefill, the draft model's forwards, or the round's
 * verification; null if there is none.
 *
 * The result's `kind` is 0, 1 or 2 of these, `block` whether the queries are a block of masks,
 * `step` where the film has it, `slots` the columns of the mask, `length` the row's committed tokens before the round. `leaks` and `holes` are slots
 * that are wrong for any query, `drifts` counts queries whose position is not their index, `lost`
 * is the most tokens that a query should see and no slot holds: all are empty or 0 in a film that
 * is not judged. `holds(slot)` is a cell of the film, `now(slot)` where its content lies at the
 * step that was asked for.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @returns {MaskCells | null}
 */
export function maskCells(film, step, row) {
  const entry = film.rows(step)[row];
  if (!entry) return null;
  const phase = film.phase(step);
  const kind = Math.min(phase, 2);
  const at = step - phase + kind;
  const drafted = kind === 1;
  const model = drafted ? 1 : 0;
  const stage = film.stage(at);
  const source = kind ? { row, moves: [] } : prefillSource(stage, row);
  const feeds = stage.feeds.filter((run) => run[0] === model);
  const fed = feeds.filter((run) => run[2] === source.row);
  if (!fed.length || film.json.gaps?.masks[model]) return null;

  const lane = kind
    ? film.lane(at, model ? "draft" : "target", row)
    : writtenLane(film, fed, entry);
  const ends = feeds.map((run) => run[8] + run[4] - 1);
  const slots = Math.max(kind === 2 ? film.scene(step).slots : 0, ...ends);
  const faults = stage.faults.filter((fault) => fault[1] === source.row);
  const all = fed.flatMap((run) => {
    const windows = stage.windows?.[stage.feeds.indexOf(run)] ?? null;
    return queriesOf(film, entry, run, lane, slots, faults, windows);
  });
  const block = drafted && featureLag(film) === 0;
  // What a block is read with are keys and values alone.
  const queries = block ? all.filter((query) => query.index >= entry.length - 1) : all;
  const drifting = queries.filter((query) => film.checked && driftsAway(query));
  return {
    kind,
    block,
    step: at,
    row,
    slots,
    queries,
    length: entry.length,
    sights: new Set(queries.flatMap((query) => query.segments.map((each) => each[2]))),
    leaks: joinedRanges(faults.flatMap((fault) => fault[4])),
    holes: joinedRanges(faults.flatMap((fault) => fault[5])),
    drifts: drifting.length,
    lost: Math.max(0, ...faults.map((fault) => fault[6])),
    window: windowed(film, at, fed),
    now: (slot) => movesSince(film, step, row, source.moves).reduce(movedSlot, slot),
    holds: (slot) => {
      const run = lane.find((each) => slot >= each[0] && slot < each[1]);
      return run ? film.cellOf(run, slot) : null;
    },
  };
}

/**
 * What a prefill wrote, as the runs of a lane.
 * @param {Film} film
 * @param {FeedRun[]} fed
 * @param {RowEntry} entry
 * @returns {LaneRun[]}
 */
function writtenLane(film, fed, entry) {
  const held = film.json.kinds.indexOf("held");
  /** @type {LaneRun[]} */
  const lane = fed.map(([, , , slot, count, index, position]) => [
    slot,
    slot + count,
    held,
    index,
    position,
    entry.request,
    0,
  ]);
  return lane.sort((one, other) => one[0] - other[0]);
}

/**
 * The cache row where a row was prefilled in this phase, and the moves that its K/V has made since.
 * @param {StageEntry} stage
 * @param {number} row
 */
function prefillSource(stage, row) {
  const feeds = stage.feeds.filter((run) => run[0] === 0);
  const copies = stage.moves.filter((move) => move[0] === 0);
  const steps = new Set([...copies, ...feeds].map((each) => each[1]));
  /** @type {Move[]} */
  const moves = [];
  let source = row;
  for (const step of [...steps].sort((one, other) => other - one)) {
    const here = source;
    if (feeds.some((run) => run[1] === step && run[2] === here)) break;
    const move = copies.find((each) => each[1] === step && each[4] === here);
    if (!move) continue;
    moves.unshift(move);
    source = move[2];
  }
  return { row: source, moves };
}

/**
 * The moves of a row's own K/V between the forward that is shown and the end of the phase.
 * @param {Film} film
 * @param {number} step
 * @param {number} row
 * @param {Move[]} prefilled
 */
function movesSince(film, step, row, prefilled) {
  if (film.phase(step) !== 4) return prefilled;
  return film.stage(step).moves.filter((move) => !move[0] && move[2] === row && move[4] === row);
}

/**
 * @param {number} slot
 * @param {Move} move
 */
function movedSlot(slot, [, , , from, , to, length]) {
  return slot >= from && slot < from + length ? slot + to - from : slot;
}

/**
 * @param {Film} film
 * @param {RowEntry} entry
 * @param {FeedRun} run
 * @param {LaneRun[]} lane
 * @param {number} slots
 * @param {Fault[]} faults
 * @param {Windows | null} windows
 * @returns {Query[]}
 */
function queriesOf(film, entry, run, lane, slots, faults, windows) {
  const [, forward, , slot, count, index, position, , until, , first = 0] = run;
  const pieces = piecesOf(film, run, lane, slots);
  return Array.from({ length: count }, (_, n) => {
    const at = index + n;
    const node = first && first + n;
    const ahead = node ? node - 1 : at - entry.length;
    const fault = faults.find((each) => {
      // Several drafts of a tree have one index.
      const offset = each[7] ? node - each[7] : node ? -1 : at - each[2];
      return each[0] === forward && offset >= 0 && offset < each[3];
    });
    const name = queryName(entry, node, at);
    const token = ahead >= 0 ? (entry.drafts[ahead] ?? -1) : (film.token(entry.request, at) ?? -1);
    const segments = segmentsOf(film, pieces, entry.length, until + n, fault, windowOf(windows, n));
    // The record gives a mask entry some id, since each entry has one.
    const text = isMask(film, run, ahead) ? "mask" : film.text(token);
    const place = {
      index: at,
      position: position < 0 ? -1 : position + n,
      slot: slot + n,
      until: until + n,
    };
    return { name, node, forward, token, text, ...place, segments };
  });
}

/**
 * Whether a draft head read an entry that stands for a draft which it did not know.
 * @param {Film} film
 * @param {FeedRun} run
 * @param {number} ahead
 */
function isMask({ json }, [model], ahead) {
  return model === 1 && ahead >= 0 && json.meta.draft_kv === "masks";
}

/**
 * @param {RowEntry} entry
 * @param {number} node
 * @param {number} index
 */
function queryName({ length, drafted }, node, index) {
  if (node > drafted) return "other"; // the draft model read it, but did not propose it
  const ahead = node ? node - 1 : index - length;
  if (ahead >= 0) return `d${ahead + 1}`;
  return ahead === -1 ? "pending" : `index ${index}`;
}

/**
 * The slots in pieces that are alike for all queries of a run.
 * @param {Film} film
 * @param {FeedRun} run
 * @param {LaneRun[]} lane
 * @param {number} slots
 * @returns {Piece[]}
 */
function piecesOf(film, [, , , , , , , see, , holes], lane, slots) {
  /** @type {number[]} */
  const laneEdges = [];
  for (const [start, stop] of lane) laneEdges.push(start, stop);
  const edges = sortedEdges([0, slots, see, ...holes.flat(), ...laneEdges], slots);
  return edges.slice(0, -1).map((start, n) => {
    const held = lane.find((each) => start >= each[0] && start < each[1]);
    const kind = held ? film.json.kinds[held[2]] : "empty";
    const counts = kind === "held" || kind === "drafted";
    return {
      start,
      stop: edges[n + 1],
      index: held && counts ? held[3] + start - held[0] : -1,
      stale: held !== undefined && !counts && held[3] >= 0,
      open: start >= see && !covers(holes, start),
    };
  });
}

/**
 * What one query makes of the pieces. Its sight ends before slot `until`.
 * @param {Film} film
 * @param {Piece[]} pieces
 * @param {number} length
 * @param {number} until
 * @param {Fault | undefined} fault
 * @param {Range} window where it begins, and where it should
 * @returns {Segment[]}
 */
function segmentsOf(film, pieces, length, until, fault, window) {
  const leaks = fault?.[4] ?? [];
  const holes = fault?.[5] ?? [];
  const cuts = [until, ...window, ...leaks.flat(), ...holes.flat()];
  /** @type {Segment[]} */
  const segments = [];
  for (const piece of pieces) {
    const firstDraft = piece.index < 0 ? until : piece.start + length - piece.index;
    const inside = [...cuts, firstDraft].filter((cut) => cut > piece.start && cut < piece.stop);
    const edges = sortedEdges([piece.start, ...inside, piece.stop], piece.stop);
    for (let n = 0; n + 1 < edges.length; n++) {
      const start = edges[n];
      const whole = sightOf(film, piece, start, until, firstDraft, leaks, holes);
      const sight = whole === "seen" || whole === "own" ? narrowed(whole, start, window) : whole;
      const last = segments.at(-1);
      if (last?.[2] === sight) last[1] = edges[n + 1];
      else segments.push([start, edges[n + 1], sight]);
    }
  }
  return segments;
}

/**
 * @param {Film} film
 * @param {Piece} piece
 * @param {number} slot
 * @param {number} until
 * @param {number} firstDraft
 * @param {Range[]} leaks
 * @param {Range[]} holes
 * @returns {Sight}
 */
function sightOf(film, piece, slot, until, firstDraft, leaks, holes) {
  if (covers(leaks, slot)) return "leak";
  if (covers(holes, slot)) return "hole";
  const reached = slot < until;
  if (piece.open && reached) return piece.index >= 0 && slot >= firstDraft ? "own" : "seen";
  return film.checked && piece.stale && reached ? "hidden" : "blank";
}

/**
 * @param {number[]} edges
 * @param {number} most
 */
function sortedEdges(edges, most) {
  const kept = new Set(edges.filter((edge) => edge <= most));
  return [...kept].sort((one, other) => one - other);
}

/**
 * @param {Range[]} ranges
 * @param {number} slot
 */
function covers(ranges, slot) {
  return ranges.some(([start, stop]) => slot >= start && slot < stop);
}
