"""Candidates, choices and draws of a record against the logits that the models compute again.

Contract: `Rescored` takes the logits of one forward after another, of the target first and then of
the draft, and reports to the `RoundTable` of the record; `finish` judges what needs both. Rules:
"scores", "acceptance", "bonus" and "drafts". What was found without the models is not reported
again.

Two computations of the same logits differ by rounding, so only what is further off is wrong.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from specviz.checks.draws import Draws
from specviz.checks.rules_tokens import against_coins, coins_accept_the_drafts
from specviz.checks.table import RoundTable
from specviz.engine.rng import DRAFT, RESIDUAL, Noise
from specviz.engine.sampling import SamplingParams
from specviz.record.schema import MODELS, Array

_TARGET = MODELS.index("target")
_CLEARLY = 2  # how many times q may exceed p before a token counts as impossible


class Rescored:
    """Judges a record by its models' logits."""

    def __init__(self, rows: RoundTable) -> None:
        self._rows = rows
        self._table = rows.trace.rows
        meta = rows.trace.meta
        self._draws = Draws(rows.trace)
        self._params: SamplingParams | None = None
        if self._draws.coupling:
            self._params = SamplingParams(**meta["sampling"])
            self._noise = Noise(meta["seed"])
        self._is_greedy = meta["sampling"] is None
        self._follows_drafts = meta["drafter"] == "model"
        self._branches = rows.branches
        k = self._table["drafts"].shape[1]
        # Of each draft, and of the token after the accepted ones: what both models give it.
        self._draft_p = np.full((2, rows.size, k), np.nan)
        self._bonus_p = np.full((2, rows.size), np.nan)

    def add(self, model: int, feeds: Array, logits: Tensor, tolerance: float) -> None:
        """Judge the logits (m, V) after these entries of `feeds` (m,).

        Args:
            model: a place in MODELS.
            tolerance: the relative error of logits that may be rounding.
        """
        rows, table = self._rows, self._table
        entry = rows.trace.index.feed_rows[feeds]
        is_own = entry >= 0
        is_own &= np.append(table["request"], -1)[entry] == rows.trace.feeds["request"][feeds]
        ahead = rows.trace.feeds["index"][feeds] - rows.table["length"][entry] + 1
        node = rows.trace.feeds["node"][feeds]
        is_tree = self._branches.is_tree[entry]
        ahead = np.where(is_tree & (node > 0), node, ahead)  # the column
        drafted, verified = (rows.table[name][entry] for name in ("drafted", "verified"))
        last = np.where(is_tree, drafted, drafted - 1)
        last = verified if model == _TARGET else last
        is_own &= (ahead >= 0) & (ahead <= last) & (rows.table["gained"][entry] > 0)
        at = np.flatnonzero(is_own)
        if at.size == 0:
            return
        logits = logits[torch.from_numpy(at).to(logits.device)].float()
        for i, (n, j) in enumerate(zip(entry[at].tolist(), ahead[at].tolist(), strict=True)):
            if bool(torch.isfinite(logits[i]).any() & ~torch.isnan(logits[i]).any()):
                self._judge(model, n, j, logits[i], tolerance)

    def finish(self, tolerance: float) -> None:
        """Judge the coins of a run with coupling="rejection", which need p and q."""
        if self._draws.coupling != "rejection":
            return
        target, draft = self._draft_p
        has_q = self._follows_drafts
        if not has_q and bool((self._table["draft_top_ids"] >= 0).any()):
            return  # drawn from the q of a head or of a drafter of one's own
        slack = 10 * tolerance
        q = draft if has_q else np.ones_like(target)
        replace(
            coins_accept_the_drafts,
            wrong=lambda table: against_coins(table, self._draws, target, q, slack),
        ).check(self._rows)
        p, q = self._bonus_p
        accepted, verified = (self._rows.table[name] for name in ("accepted", "verified"))
        is_drawn = (self._rows.table["gained"] == accepted + 1) & (accepted < verified)
        is_drawn &= (self._rows.table["discarded"] == 0) & (self._rows.table["finished"] == 0)
        for entry in self._rows.where(is_drawn & has_q & (p * _CLEARLY < q) & (q > slack)):
            i = entry.Index
            self._report(
                "bonus", "accept", entry.Index,
                "after a rejection a token should follow that the target makes more likely",
                f"{self._rows.token(self._table['emitted'][i, accepted[i]])} has p = {p[i]:.3g} "
                f"and q = {q[i]:.3g}",
            )  # fmt: skip

    def _judge(self, model: int, n: int, j: int, logits: Tensor, tolerance: float) -> None:
        """Judge one entry of `rows` after its column j."""
        logprobs = logits.log_softmax(-1)
        slack = tolerance * (1 + float(logits[torch.isfinite(logits)].abs().max()))
        drafted = np.arange(self._branches.parents.shape[1]) < self._branches.drafted[n]
        children = np.flatnonzero((self._branches.parents[n] == j) & drafted).tolist()
        for place in [j] if model == _TARGET else children:
            self._scores(model, n, place, logprobs, slack)
        for child in children:
            self._score_of_draft(model, n, child, logprobs, slack)
        is_tree = self._branches.is_tree[n]
        draws = self._draws.coupling == "rejection"
        if draws and not is_tree:
            self._keep_probabilities(model, n, j, logits)
        if not (self._is_greedy or self._draws.coupling):
            return  # it is not known how this run drew
        judge = self._drawn if draws else self._choice
        if model != _TARGET:
            if self._follows_drafts and not is_tree:
                judge("drafts", "draft", n, j, int(self._table["drafts"][n, j]), logits, slack)
            return
        path = self._branches.path[n].tolist()
        step = path.index(j) if j in path else len(path)
        accepted, gained = int(self._table["accepted"][n]), int(self._table["gained"][n])
        # Behind the last verified draft nothing is taken off p, so q does not matter.
        is_last = not any(child < self._table["verified"][n] for child in children)
        if step < min(accepted + 1, gained) and (is_last or not draws):
            rule = "acceptance" if step < accepted else "bonus"
            judge(rule, "accept", n, step, int(self._table["emitted"][n, step]), logits, slack)

    def _scores(self, model: int, n: int, j: int, logprobs: Tensor, slack: float) -> None:
        """Check that recorded candidates are the likeliest tokens, with their log-probabilities."""
        name = MODELS[model]
        phase = "accept" if model == _TARGET else "draft"
        ids, recorded = (self._table[f"{name}_top_{part}"][n, j] for part in ("ids", "logprobs"))
        if not self._is_logged(f"{name}_top_logprobs") or np.isnan(recorded).any():
            return
        if (ids < 0).any() or (ids >= logprobs.numel()).any():
            return
        found = logprobs[torch.from_numpy(ids.astype(np.int64)).to(logprobs.device)].cpu().numpy()
        wrong = np.abs(found - recorded) > slack
        wrong &= np.isfinite(found) | np.isfinite(recorded)
        best = float(logprobs.topk(ids.size).values[-1])
        if wrong.any():
            i = int(wrong.argmax())
            expected = f"the {name}'s log-probability of {self._rows.token(ids[i])} after {j} "
            expected += f"drafts should be {found[i]:.4g}, as the model computes it"
            self._report("scores", phase, n, expected, f"it is {recorded[i]:.4g}")
        elif float(found.min()) < best - slack:
            expected = f"the {name}'s candidates after {j} drafts should be the most likely tokens"
            self._report("scores", phase, n, expected, "the model finds others more likely")

    def _score_of_draft(self, model: int, n: int, j: int, logprobs: Tensor, slack: float) -> None:
        """Check that draft j has the log-probability that these give it."""
        name = MODELS[model]
        phase = "accept" if model == _TARGET else "draft"
        k = self._table["drafts"].shape[1]
        counted = "verified" if model == _TARGET else "drafted"
        if j < min(k, int(self._table[counted][n])) and self._is_logged(f"{name}_logprob"):
            draft = int(self._table["drafts"][n, j])
            own = float(self._table[f"{name}_logprob"][n, j])
            due = float(logprobs[draft]) if 0 <= draft < logprobs.numel() else math.nan
            if abs(own - due) > slack:
                expected = f"the {name}'s log-probability of draft {j + 1} should be {due:.4g}"
                self._report("scores", phase, n, expected, f"it is {own:.4g}")

    def _choice(
        self, rule: str, phase: str, n: int, j: int, token: int, logits: Tensor, slack: float
    ) -> None:
        """Check that a token is the argmax, of the logits or of what sampling makes of them."""
        if not 0 <= token < logits.numel():
            return
        scores = self._chosen_from(logits, n, j)
        own = scores.clone()
        if self._params is not None:
            slack = slack * max(1.0, 1 / self._params.temperature)
            # top-k and top-p: what lies at their edge may be on either side of it.
            noise = scores - self._params.warp(logits).double()
            own = logits.double() / self._params.temperature + torch.nan_to_num(noise)
            own[token] = logits[token] / self._params.temperature + self._noise_of(n, j, token)
        best = int(scores.argmax())
        if float(scores[best] - own[token]) <= slack:
            return
        name = f"draft {j + 1}" if rule == "drafts" else f"the token after {j} drafts"
        expected = f"{name} should be {self._rows.token(best)}, as the model computes it"
        found = f"{self._rows.token(token)} lies {float(scores[best] - own[token]):.2g} below it"
        self._report(rule, phase, n, expected, found)

    def _chosen_from(self, logits: Tensor, n: int, j: int) -> Tensor:
        """Return what the argmax is taken of, (V,) float64."""
        if self._params is None:
            return logits.double()
        request, index = self._place(n, j)
        noise = torch.from_numpy(self._noise.gumbel(request, index, logits.numel()))
        return self._params.warp(logits).double() + noise.to(logits.device)

    def _noise_of(self, n: int, j: int, token: int) -> float:
        request, index = self._place(n, j)
        ids = np.array([[token]])
        return float(self._noise.gumbel_at(np.array([request]), np.array([index]), ids)[0, 0])

    def _drawn(
        self, rule: str, phase: str, n: int, j: int, token: int, logits: Tensor, slack: float
    ) -> None:
        """Check that a token is drawn by the seed's number from the cumulative distribution."""
        if self._params is None or not 0 <= token < logits.numel():
            return
        request, index = self._place(n, j)
        purpose = DRAFT if rule == "drafts" else RESIDUAL
        u = float(self._noise.uniforms(request, index, 1)[0, purpose])
        q = self._params.distribution(logits)
        cumulative = q.cumsum(-1)
        above = float(cumulative[token])
        below = above - float(q[token])
        slack = min(slack * max(1.0, 1 / self._params.temperature), 0.5)
        if below - slack <= u <= above + slack:
            return
        name = f"draft {j + 1}" if rule == "drafts" else f"the token after {j} drafts"
        expected = f"{name} should be what u = {u:.3g} draws from the distribution"
        found = f"{self._rows.token(token)} takes {below:.3g} to {above:.3g} of it"
        self._report(rule, phase, n, expected, found)

    def _keep_probabilities(self, model: int, n: int, j: int, logits: Tensor) -> None:
        assert self._params is not None
        shares = self._params.distribution(logits)
        table = self._table
        if j < min(table["drafts"].shape[1], int(table["drafted"][n])):
            draft = int(table["drafts"][n, j])
            if 0 <= draft < shares.numel():
                self._draft_p[model, n, j] = float(shares[draft])
        token = int(table["emitted"][n, j])
        if j == table["accepted"][n] and 0 <= token < shares.numel():
            self._bonus_p[model, n] = float(shares[token])

    def _place(self, n: int, j: int) -> tuple[int, int]:
        return int(self._table["request"][n]), int(self._table["length"][n]) + j

    def _is_logged(self, column: str) -> bool:
        return bool(np.nan_to_num(self._table[column]).any())

    def _report(self, rule: str, phase: str, n: int, expected: str, found: str) -> None:
        entry = self._rows.entry(n)
        if not self._rows.has_finding(rule, phase, entry):
            self._rows.report(rule, phase, entry, expected, found)
