// Verdicts: what became of each draft of a row in one round, as far as it is known at a step. Reads the film alone; knows no pixels.

// Signs of what a card can be; `pale`: it decided nothing.
const FATES = {
  waiting: { sign: "?" }, accepted: { sign: "✓" }, rejected: { sign: "✗" }, bonus: { sign: "●" }, kept: { sign: "✓" },
  thrown: { sign: "↺" }, wrong: { sign: "▲" }, ended: { sign: "■", pale: true }, unreached: { sign: "–", pale: true },
};

// A card for each draft, and one for the token behind the last of them; none for a row that idles.
// name, index; draft, q, p: its token, what the draft said of it and what the target says, null while unknown or where there is none;
// mind, says: choices [token, p] of draft and target; fate: a key of FATES; words: why; emitted: token or null; own: it is the target's.
function verdictCards(film, step, row) {
  const entry = film.rows(step)[row], phase = film.phase(step);
  if (!entry?.gained) return [];
  return Array.from({ length: entry.drafted + 1 }, (_, j) => {
    const last = j === entry.drafted, drafted = !last && phase >= 1, asked = phase >= 2;
    const card = {
      name: last ? (j ? "bonus" : "next") : `d${j + 1}`, index: entry.length + j, last, draft: drafted ? entry.drafts[j] : null,
      q: drafted ? entry.q[j] : null, p: asked && !last ? entry.p[j] : null, mind: drafted ? entry.draft[j] : [],
      says: asked ? entry.target[j] : [], emitted: null, own: false,
    };
    return { ...card, ...(phase >= 3 ? judgement(film, entry, j) : { fate: "waiting", words: waitingWords(phase, last, j) }) };
  });
}

function waitingWords(phase, last, j) {
  if (phase === 2) return "not compared yet";
  if (last) return j ? "comes if all drafts are accepted" : "not asked yet";
  return phase === 1 ? "the target has not read it" : "not drafted yet";
}

// fate, words, emitted and own of draft j, or of what stands behind the last draft.
function judgement(film, entry, j) {
  const { accepted, gained, discarded, drafted, emitted } = entry, taken = { emitted: j < gained ? emitted[j] : null };
  const verified = accepted + discarded, ends = gained <= accepted && j >= gained && j <= accepted;
  if (ends) return { ...taken, fate: "ended", words: `${j < accepted ? "agreed, but " : ""}the row ended: ${endOf(film, entry)}` };
  if (!film.checked && j <= accepted && !(j === accepted && discarded)) return unjudgedCard(film, entry, j, taken);
  if (j === drafted) return j === accepted ? ownToken(film, entry, j, taken) : behindAll(entry, verified, j);
  if (j < accepted) return acceptedDraft(film, entry, j, taken);
  if (j === accepted && discarded) return { ...taken, own: true, fate: "kept", words: "agreed; kept as the row's last of this round" };
  if (j === accepted) return ownToken(film, entry, j, taken);
  if (j < verified) return { ...taken, fate: "thrown", words: "agreed, but thrown away: another row stopped earlier" };
  return { ...taken, fate: "unreached", words: j === verified ? "cut off: another row stopped earlier" : "not reached" };
}

function behindAll({ accepted, gained }, verified, j) {
  if (verified === j) return { emitted: null, fate: "thrown", words: "thrown away: another row stopped earlier" };
  return { emitted: null, fate: "unreached", words: `not reached: ${gained > accepted ? "a draft was rejected" : "the row ended"}` };
}

function endOf(film, { emitted }) {
  return emitted.some((token) => film.json.meta.eos_token_ids.includes(token)) ? "EOS" : "its budget is spent";
}

// What the run did, and not whether that was right.
function unjudgedCard(film, entry, j, taken) {
  if (j < entry.accepted) return { ...taken, fate: "accepted", words: "accepted" };
  const said = quoted(film.text(taken.emitted)), found = { ...taken, own: true };
  if (j < entry.drafted) return { ...found, fate: "rejected", words: `rejected: ${said} is emitted` };
  return { ...found, fate: "bonus", words: j ? `all drafts accepted: ${said} is emitted` : `${said} is emitted` };
}

function acceptedDraft(film, entry, j, taken) {
  const { sampling } = film.json.meta, [choice] = entry.target[j][0] ?? [], found = { ...taken, fate: "accepted" };
  if (sampling?.coupling === "gumbel") return { ...found, words: "accepted: same choice under the same noise" };
  if (sampling) return { ...found, words: `accepted with ${oddsOf(sampling, entry, j)}` };
  if (choice === undefined || choice === entry.drafts[j]) return { ...found, words: "accepted: the target's first choice" };
  return { ...found, fate: "wrong", words: `accepted, though the target says ${quoted(film.text(choice))}` };
}

// The token that the target adds: where it rejected a draft, or behind all drafts.
function ownToken(film, entry, j, taken) {
  const { sampling } = film.json.meta, [choice] = entry.target[j][0] ?? [], behind = j === entry.drafted, token = taken.emitted;
  const found = { ...taken, own: true, fate: behind ? "bonus" : "rejected" }, said = quoted(film.text(token));
  if (sampling) return { ...found, words: behind ? "drawn from the target's p" : rejectionWords(sampling, entry, j, said) };
  if (choice !== undefined && choice !== token) {
    const why = token === entry.drafts[j] ? "the draft's own token is kept" : `${said} is emitted`;
    return { ...found, fate: "wrong", words: `the target says ${quoted(film.text(choice))}, yet ${why}` };
  }
  if (!behind) return { ...found, words: `rejected: the target says ${said}` };
  return { ...found, words: j ? "all drafts accepted: the target adds its own" : "the target's first choice" };
}

function rejectionWords(sampling, entry, j, said) {
  if (sampling.coupling === "gumbel") return `rejected: under the same noise the target draws ${said}`;
  return `rejected against ${oddsOf(sampling, entry, j)}; drawn from max(p − q, 0)`;
}

// The chance with which a draft was to be accepted. The record holds p and q as the models gave them: a number only where sampling leaves
// them as they are.
function oddsOf({ temperature, top_k: k, top_p: most }, entry, j) {
  const q = entry.q[j] ?? 1, p = entry.p[j];
  if (temperature !== 1 || k || (most && most < 1) || p === null) return "min(1, p/q), p and q warped";
  return `min(1, p/q) = ${chance(Math.min(1, p / q))}`;
}
