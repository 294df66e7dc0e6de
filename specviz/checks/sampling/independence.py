"""Whether rows, and runs, draw independently of each other.

Contract: draws and the exact distributions go in, findings come out. Rows that share a random
number have each the right distribution, so no test of a single row finds it.

Each alternative gives the chance of a token, given its own prefix and the tokens of the rows
before it in the same run: as evidence it counts as any other.
"""

import math

import numpy as np

from specviz.checks.sampling.evidence import log_mean, log_ratios
from specviz.checks.sampling.findings import SamplingFinding
from specviz.checks.sampling.shares import price
from specviz.checks.sampling.texts import DrawnTokens, Texts
from specviz.record.schema import Array

COPIED = (0.1, 0.3, 0.7)  # how often a token is that of the row before
TILTS = (-0.5, 0.3, 1.0)
NOTHING = -1
SENTENCES = {
    "token": "rows draw the token of the row before too often, as with noise that rows share",
    "quantile": "rows draw the same quantile as the row before too often, as with a uniform number "
    "that rows share",
    "side": "rows draw what the draft model prefers together, as with a uniform number that all "
    "rows are accepted by",
    "run": "runs draw the token of the run before too often, so seeds do not make them independent",
}
RUN_TESTS = ("run",)


def judge_independence(
    draws: DrawnTokens, texts: Texts, runs: int, rows: int, alpha: float
) -> list[SamplingFinding]:
    """Return what speaks against independent rows and runs, the strongest evidence first."""
    token, context = _by_run(draws, texts, runs, rows)
    level = -math.log(alpha)
    scores = _scores(texts, token, context)
    found = []
    for name, score in scores.items():
        if score < level:
            continue
        test = "runs" if name in RUN_TESTS else "rows"
        sentence = SENTENCES[name]
        if name in RUN_TESTS and (token == token[:1]).all():
            sentence = f"all {runs} runs draw the same tokens: the seed changes nothing"
        elif _stays(name, score, texts, token, context):
            test, sentence = "lean", "tokens do not have the shares that the target gives them"
        found.append(SamplingFinding(test, sentence, score, draws=len(draws.token)))
    return sorted(found, key=lambda each: -each.log_evidence)


def _by_run(draws: DrawnTokens, texts: Texts, runs: int, rows: int) -> tuple[Array, Array]:
    """Return tokens and prefixes (R, B, T).

    It is NOTHING where no token was drawn, where p is unclear, or where p rules the token out.
    """
    token = np.full((runs, rows, texts.length), NOTHING)
    context = np.zeros(token.shape, dtype=np.int64)
    kept = draws.kept & (texts.p[draws.context, draws.token] > 0)
    at = (draws.run[kept], draws.row[kept], draws.place[kept])
    token[at] = draws.token[kept]
    context[at] = draws.context[kept]
    return token, context


def _scores(texts: Texts, token: Array, context: Array) -> dict[str, float]:
    """Return the corrected log evidence of each kind of dependence."""
    ratios = {}
    if token.shape[1] > 1:
        ratios["token"] = _same_token(texts, context[:, 1:], token[:, 1:], token[:, :-1])
        ratios["quantile"] = _same_quantile(texts, context, token)
        ratios["side"] = _same_side(texts, context, token)
    if token.shape[0] > 1:
        ratios["run"] = _same_token(texts, context[1:], token[1:], token[:-1])
    counts = {"rows": len(SENTENCES) - len(RUN_TESTS), "runs": len(RUN_TESTS)}
    found = {}
    for name, ratio in ratios.items():
        family = "runs" if name in RUN_TESTS else "rows"
        found[name] = float(log_mean(ratio.sum(0))) - price(family, counts[family])
    return found


def _stays(name: str, score: float, texts: Texts, token: Array, context: Array) -> bool:
    """Return whether the evidence stays if each row's texts are dealt to the runs at random.

    Then it comes from the shares of the tokens, not from rows or runs that depend on each other.
    """
    generator = np.random.default_rng(0)
    order = np.argsort(generator.random(token.shape[:2]), axis=0)[:, :, None]
    dealt = _scores(
        texts, np.take_along_axis(token, order, 0), np.take_along_axis(context, order, 0)
    )
    return dealt[name] > score / 2


def _same_token(texts: Texts, context: Array, token: Array, other: Array) -> Array:
    """Return log ratios (N, A) for copies of another row's token."""
    valid = (token != NOTHING) & (other != NOTHING)
    return _copies(texts, context[valid], token[valid], other[valid])


def _copies(texts: Texts, context: Array, token: Array, copied: Array) -> Array:
    chance = texts.p[context, token][:, None]
    mixed = np.array(COPIED)
    # A copy that p rules out is not drawn, so nothing is taken from p there.
    mixed = mixed * (texts.p[context, copied] > 0)[:, None]
    return log_ratios((1 - mixed) * chance + mixed * (token == copied)[:, None], chance)


def _same_quantile(texts: Texts, context: Array, token: Array) -> Array:
    """Return log ratios for draws by the number that the row before was drawn by."""
    before, own = token[:, :-1], token[:, 1:]
    valid = (before != NOTHING) & (own != NOTHING)
    cumulative = texts.p.cumsum(1)
    of_before = context[:, :-1][valid]
    at = before[valid]
    quantile = cumulative[of_before, at] - texts.p[of_before, at] / 2
    mine = context[:, 1:][valid]
    copied = (cumulative[mine] <= quantile[:, None]).sum(1)
    return _copies(texts, mine, own[valid], np.minimum(copied, texts.size - 1))


def _same_side(texts: Texts, context: Array, token: Array) -> Array:
    """Return log ratios for rows that get what the draft prefers, or does not, together.

    Without a draft it is the likeliest token that rows get together.
    """
    valid = token != NOTHING
    preferred = np.eye(texts.size, dtype=bool)[texts.p.argmax(1)]
    if texts.q is not None:
        preferred = texts.q > texts.p
    share = (texts.p * preferred).sum(1)[context] * valid  # (R, B, T)
    hit = preferred[context, token] & valid
    excess = np.cumsum(np.where(valid, hit - share, 0), axis=1)
    spread = np.cumsum(np.where(valid, share * (1 - share), 0), axis=1)
    # What the rows before have; the first row has none before it.
    pull = (excess / np.sqrt(np.maximum(spread, 0.05)))[:, :-1]
    mine = valid[:, 1:]
    pull = pull[mine][:, None] * np.array(TILTS)
    of_share = share[:, 1:][mine][:, None]
    found: Array = hit[:, 1:][mine][:, None] * pull - np.log1p(of_share * np.expm1(pull))
    return found
