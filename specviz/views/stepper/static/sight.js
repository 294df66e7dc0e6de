// Sight: which slots the queries of one row saw in a forward, and whether they should have. Judged from the film alone; knows no pixels.

// The forward that a phase shows for a row: its prefill, the draft model's forwards, or the round's verification; null without one.
// kind: 0, 1, 2 of these; step: where the film has it; slots: columns of the mask; length: the row's committed tokens before the round.
// queries: {name, forward, token, index, position, slot, until, lost, segments: [start, stop, verdict]}; segments cover all slots.
// verdicts: those that occur: "seen", "own" (seen, and a draft of this round), "blank" (rightly not seen), "hidden" (the same, of a stale
//   slot within reach), "leak" (seen although it holds no token of the row up to the query), "hole" (not seen although it does).
//   In a film that does not judge there are "seen", "own" and "blank" alone, right or not.
// leaks, holes: ranges of slots that are wrong for any query; drifts: queries whose position is not their index; lost: the most tokens that
//   a query should see and no slot holds (all of them empty or 0 in a film that does not judge); holds(slot) is a cell of the film;
//   now(slot): where its content lies at the step asked for.
function maskCells(film, step, row) {
  const entry = film.rows(step)[row], phase = film.phase(step);
  if (!entry) return null;
  const kind = Math.min(phase, 2), at = step - phase + kind, model = kind === 1 ? 1 : 0, stage = film.stage(at);
  const source = kind ? { row, moves: [] } : sourceOf(stage, model, row);
  const feeds = stage.feeds.filter((run) => run[0] === model), fed = feeds.filter((run) => run[2] === source.row);
  if (!fed.length) return null;
  const written = () => fed.map((run) => heldRun(film, run, entry.request)).sort((one, other) => one[0] - other[0]);
  const lane = kind ? film.lane(at, model ? "draft" : "target", row) : written();
  const slots = Math.max(kind === 2 ? film.scene(step).slots : 0, ...feeds.map((run) => run[8] + run[4] - 1));
  const ledger = lane.map((run) => ({ start: run[0], stop: run[1], kind: film.json.kinds[run[2]], index: run[3] }));
  const queries = fed.flatMap((run) => queriesOf(film, entry, run, ledger, slots));
  const moves = phase === 4 ? film.stage(step).moves.filter((move) => !move[0] && move[2] === row && move[4] === row) : source.moves;
  return {
    kind, step: at, row, slots, queries, length: entry.length, ...summary(queries, film.checked),
    now: (slot) => moves.reduce(movedSlot, slot),
    holds: (slot) => {
      const run = lane.find((each) => slot >= each[0] && slot < each[1]);
      return run ? film.cellOf(run, slot) : null;
    },
  };
}

function summary(queries, judge) {
  const segments = queries.flatMap((query) => query.segments);
  const of = (verdict) => joinedRanges(segments.filter((each) => each[2] === verdict));
  return {
    verdicts: new Set(segments.map((each) => each[2])), leaks: of("leak"), holes: of("hole"),
    drifts: queries.filter((query) => judge && query.position !== query.index).length,
    lost: judge ? Math.max(...queries.map((query) => query.lost)) : 0,
  };
}

// What a prefill wrote, as a run of a lane.
function heldRun(film, [, , , slot, count, index, position], request) {
  return [slot, slot + count, film.json.kinds.indexOf("held"), index, position, request, 0];
}

// The cache row where a row was prefilled in this phase, and the moves that its K/V has made since.
function sourceOf(stage, model, row) {
  const operations = new Set([...stage.moves, ...stage.feeds].filter((each) => each[0] === model).map((each) => each[1]));
  const moves = [];
  for (const number of [...operations].sort((a, b) => b - a)) {
    if (stage.feeds.some((run) => run[0] === model && run[1] === number && run[2] === row)) break;
    const move = stage.moves.find((each) => each[0] === model && each[1] === number && each[4] === row);
    if (!move) continue;
    moves.unshift(move);
    row = move[2];
  }
  return { row, moves };
}

function movedSlot(slot, [, , , from, , to, length]) {
  return slot >= from && slot < from + length ? slot + to - from : slot;
}

function queriesOf(film, entry, run, ledger, slots) {
  const [, forward, , slot, count, index, position, , until] = run, pieces = piecesOf(run, ledger, slots);
  return Array.from({ length: count }, (_, n) => {
    const at = index + n, ahead = at - entry.length;
    const segments = judgedSegments(pieces, { index: at, until: until + n, length: entry.length, judge: film.checked });
    const name = ahead >= 0 ? `d${ahead + 1}` : ahead === -1 ? "pending" : `index ${at}`;
    const token = ahead >= 0 ? entry.drafts[ahead] ?? -1 : film.token(entry.request, at);
    let lost = at + 1;
    for (const [start, stop, verdict] of segments) if (verdict === "seen" || verdict === "own" || verdict === "hole") lost -= stop - start;
    return { name, forward, token, index: at, position: position + n, slot: slot + n, until: until + n, segments, lost };
  });
}

// The slots in pieces that are alike for all queries of a run: {start, stop, index of the first if they count, stale, open: not masked}.
function piecesOf([, , , , , , , see, , holes], ledger, slots) {
  const edges = [...new Set([0, slots, see, ...holes.flat(), ...ledger.flatMap(({ start, stop }) => [start, stop])])];
  const sorted = edges.filter((edge) => edge <= slots).sort((one, other) => one - other);
  return sorted.slice(0, -1).map((start, n) => {
    const held = ledger.find((each) => start >= each.start && start < each.stop);
    const counts = held?.kind === "held" || held?.kind === "drafted";
    const open = start >= see && !holes.some(([first, stop]) => start >= first && start < stop);
    return { start, stop: sorted[n + 1], index: counts ? held.index + start - held.start : -1, stale: !counts && held?.index >= 0, open };
  });
}

// What one query makes of the pieces: each cut where its sight, or what is right for it, ends.
function judgedSegments(pieces, query) {
  const segments = [];
  let last = null;
  for (const piece of pieces) {
    const shift = piece.start - piece.index, ends = [query.until];
    if (piece.index >= 0) ends.push(query.length + shift, query.index + 1 + shift);
    for (let start = piece.start, stop; start < piece.stop; start = stop) {
      stop = piece.stop;
      for (const end of ends) if (end > start && end < stop) stop = end;
      const verdict = sightOf(piece, start, query);
      if (last?.[2] === verdict) last[1] = stop;
      else segments.push(last = [start, stop, verdict]);
    }
  }
  return segments;
}

// A query should see the slots that hold K/V of its row's tokens up to itself, and no other.
function sightOf(piece, slot, query) {
  const index = piece.index < 0 ? -1 : piece.index + slot - piece.start, right = index >= 0 && index <= query.index;
  if (piece.open && slot < query.until) return right || !query.judge ? (index >= query.length ? "own" : "seen") : "leak";
  if (!query.judge) return "blank";
  if (right) return "hole";
  return piece.stale && slot < query.until ? "hidden" : "blank";
}

// Ranges of slots that any of these segments covers.
function joinedRanges(segments) {
  const ranges = [];
  for (const [start, stop] of [...segments].sort((a, b) => a[0] - b[0])) {
    const last = ranges[ranges.length - 1];
    if (last && start <= last[1]) last[1] = Math.max(last[1], stop);
    else ranges.push([start, stop]);
  }
  return ranges;
}
