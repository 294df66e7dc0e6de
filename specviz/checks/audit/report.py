"""The report of an audit: a verdict, totals with intervals, and a row per prompt. Texts are kept as
they are: a view has to escape them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from specviz.checks.audit.duo import EQUAL, LONGER, PARTED, SHORTER, Duo
from specviz.checks.equivalence import NEAR_TIE, UNKNOWN, Evidence
from specviz.checks.scores import Token
from specviz.util.text import count, harmless

UNEXPLAINED = "unexplained"  # the word of an audit for "not explained by noise"
VERDICTS = (EQUAL, SHORTER, LONGER, NEAR_TIE, UNEXPLAINED, UNKNOWN)
EXPLAINED = "divergences that a tie explains"
CONFIDENCE = 0.95
TEXTS = ("prompt_text", "before", "reference_text", "candidate_text")
_MAX_SHOWN = 20  # prompts in the printed report
_AROUND = {"token": 16, "character": 80}  # of a text, shown before and after a divergence


@dataclass(frozen=True)
class Control:
    """The candidate's divergences against those of the reference in another batch.

    Attributes:
        total: how many prompts there are.
        candidate, control: how many of them diverge from the reference.
        candidate_only, control_only: prompts where one of the two diverges and the other does not.
        p_value: of McNemar's exact test, one-sided: the chance of as many `candidate_only` or more
            if both diverge equally often.
    """

    total: int
    candidate: int
    control: int
    candidate_only: int
    control_only: int
    p_value: float

    @property
    def is_more(self) -> bool:
        """Whether the candidate diverges more often than chance explains."""
        return self.p_value < 1 - CONFIDENCE


def against_control(candidate: Sequence[bool], control: Sequence[bool]) -> Control:
    """Compare which prompts diverge, for the candidate and for the control, prompt by prompt.

    The prompts are the same, and some are closer to a tie than others. So the test is McNemar's for
    pairs, which counts only the prompts where the two differ; Fisher's would take the prompts of
    both for independent draws.
    """
    pairs = list(zip(candidate, control, strict=True))
    ours = sum(a and not b for a, b in pairs)
    theirs = sum(b and not a for a, b in pairs)
    p_value = 1.0
    if ours + theirs:
        p_value = float(binomtest(ours, ours + theirs, alternative="greater").pvalue)
    return Control(len(pairs), sum(candidate), sum(control), ours, theirs, p_value)


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What `audit` found.

    Gaps and noise are differences of log-probabilities in natural units.

    Attributes:
        prompts: one entry per prompt. NA or NaN where there is nothing to say:
            verdict: "equal", "shorter" or "longer" (the candidate ends earlier or later, with the
                same tokens as far as both go, and an EOS or a stated budget explains it),
                "near tie", "unexplained", or "unknown".
            reason: why it is "unexplained" whatever the target says, or "unknown"; "" otherwise.
            unit: what is compared and counted: "token" or "character".
            first_divergence: index into the new tokens.
            reference_token, candidate_token: what stands there.
            gap: from the target's best token to the lesser of the two, or at least this.
            reference_gap, candidate_gap: the same for one of them.
            later_gap, later_token: the largest distance of a later token of the candidate from the
                target's best one, and the index of that token.
            measured_from: "target", "log-probabilities" or "".
            reference_length, candidate_length: in units.
            control_diverges: whether the control diverges from the reference; only with a control.
            prompt_text, before, reference_text, candidate_text: the prompt, and the texts around
                the divergence.
        totals: one entry per verdict, and "divergences that a tie explains": count, total, share,
            and low and high, the ends of Wilson's interval at 95 %.
        control: how often the candidate and the control diverge; None without a control.
        noise: the largest measured change of a log-probability; NaN where none was measured.
        limit: the largest gap that it explains.
        conditions: what was compared, with which target, dtype, device and versions.
        notes: what the audit cannot tell, in sentences, and what is wrong with log-probabilities.
        logprobs: one entry per prompt, on the log-probabilities that the candidate says its tokens
            have, against the target's:
            difference: the largest one, of tokens that are not too unlikely; NaN if not compared.
            token: the index of the new token that has it.
            explanation: what the candidate's are if they differ by more than noise, such as "all
                zero", or that no reason is known; "" otherwise.
    """

    prompts: pd.DataFrame
    totals: pd.DataFrame
    control: Control | None
    noise: float
    limit: float
    conditions: Mapping[str, Any]
    notes: tuple[str, ...]
    logprobs: pd.DataFrame

    @property
    def passed(self) -> bool:
        """Whether every divergence was judged, and a tie explains each. `logprobs` do not count."""
        return not self._count(UNEXPLAINED) and not self._count(UNKNOWN)

    @property
    def unexplained(self) -> list[int]:
        """The prompts whose divergence no tie explains: what to look at."""
        return self.prompts.index[self.prompts["verdict"] == UNEXPLAINED].tolist()

    def frame(self) -> pd.DataFrame:
        """Return a copy of `prompts`."""
        return self.prompts.copy()

    @property
    def verdict(self) -> str:
        """The outcome in one sentence."""
        total, equal, ties = len(self.prompts), self._count(EQUAL), self._count(NEAR_TIE)
        ends = []
        for verdict, words in ((SHORTER, "end earlier"), (LONGER, "end later")):
            if self._count(verdict):
                ends.append(f"{self._count(verdict)} {words}")
        explained = f"noise explains {self.limit:.3g}"
        if not self.passed:
            parts = [*self._wrong(UNEXPLAINED, "wrong"), *self._wrong(UNKNOWN, "not judged")]
            if self.prompts["gap"].notna().any():
                parts.append(explained)
        elif ties:
            gap = self.prompts["gap"].max()
            tied = (
                f"near ties only: {ties} of {total} texts diverge, with a gap of {gap:.3g} at most"
            )
            parts = [tied, explained]
        elif equal:
            shown = f"all {total} texts are" if equal == total else f"{equal} of {total} texts are"
            parts = [f"right: {shown if total > 1 else 'the text is'} equal"]
        else:
            text = f"no divergence, but no text is equal to its end: of {count(total, 'text')}, "
            return text + ", ".join(ends)
        return "; ".join([*parts, ", ".join(ends)] if ends else parts)

    def _wrong(self, verdict: str, word: str) -> Iterator[str]:
        """Say what has a verdict for which reason, and where first; faults before divergences."""
        entries = self.prompts[self.prompts["verdict"] == verdict]
        texts = count(len(self.prompts), "text")
        for reason, group in sorted(entries.groupby("reason"), key=lambda each: each[0] == ""):
            first, at = group.iloc[0], group["first_divergence"].iloc[0]
            where = f"prompt {group.index[0]}"
            where += "" if pd.isna(at) else f" at {first['unit']} {at}"
            if reason:
                yield f"{word}: {reason} in {len(group)} of {texts}, the first in {where}"
                continue
            gap = f"with a gap of {first['gap']:.3g}"
            if not first["gap"] > self.limit and first["later_gap"] > self.limit:
                gap = f"where its {first['unit']} {first['later_token']} lies "
                gap += f"{first['later_gap']:.3g} below the target's best"
            divergences = count(len(group), "unexplained divergence")
            yield f"{divergences} in {texts}, the first in {where}, {gap}"

    def _count(self, verdict: str) -> int:
        """Return how many prompts have a verdict."""
        return int((self.prompts["verdict"] == verdict).sum())

    @property
    def control_sentence(self) -> str:
        """Whether the candidate diverges more than the control; "" without one."""
        found = self.control
        if found is None:
            return ""
        how = "The candidate diverges"
        if not found.is_more:
            how = "It is not shown that the candidate diverges"
        return (
            f"{how} more often than the reference does from itself: the candidate in "
            f"{found.candidate} of {found.total} texts, and the control in {found.control} "
            f"(McNemar's exact test, one-sided, p = {found.p_value:.2g})."
        )

    def __repr__(self) -> str:
        parts = [self.verdict, self.totals.to_string(float_format="{:.3f}".format)]
        parts += [self.control_sentence] if self.control is not None else []
        shown = self.prompts[self.prompts["verdict"] != EQUAL]
        if len(shown):
            columns = ["verdict", "first_divergence", "reference_token", "candidate_token", "gap"]
            columns += ["later_gap", "measured_from"]
            table = shown[columns].head(_MAX_SHOWN)
            parts.append(table.to_string(float_format="{:.3g}".format, na_rep=""))
        if len(shown) > _MAX_SHOWN:
            parts[-1] += f"\n... and {len(shown) - _MAX_SHOWN} more; see frame()"
        for reason, entries in shown[shown["reason"] != ""].groupby("reason"):
            prompts = ", ".join(map(str, entries.index[:_MAX_SHOWN]))
            left = len(entries) - _MAX_SHOWN
            more = f" and {left} more" if left > 0 else ""
            noun = "prompt" if len(entries) == 1 else "prompts"
            parts.append(f"{entries['verdict'].iloc[0]}, {noun} {prompts}{more}: {reason}")
        parts += [f"Note: {note}" for note in self.notes]
        return harmless("\n\n".join(parts))

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(each)}</p>" for each in (self.control_sentence, *self.notes))
        totals = self.totals.to_html(float_format="{:.3f}".format)
        table = self.prompts.drop(columns=list(TEXTS)).to_html(float_format="{:.3g}".format)
        return f"<p><b>{escape(self.verdict)}</b></p>{totals}{notes}{table}"


def make_totals(verdicts: Sequence[str]) -> pd.DataFrame:
    """Return counts, totals and shares with their intervals, by verdict; see `Audit.totals`."""
    counts = {verdict: (verdicts.count(verdict), len(verdicts)) for verdict in VERDICTS}
    diverging = sum(counts[verdict][0] for verdict in (NEAR_TIE, UNEXPLAINED, UNKNOWN))
    counts[EXPLAINED] = counts[NEAR_TIE][0], diverging
    entries = []
    for number, total in counts.values():
        entry = {"count": number, "total": total, "share": math.nan}
        entry |= {"low": math.nan, "high": math.nan}
        if total:
            # E. B. Wilson, 1927
            ends = binomtest(number, total).proportion_ci(CONFIDENCE, method="wilson")
            entry |= {"share": number / total, "low": float(ends.low), "high": float(ends.high)}
        entries.append(entry)
    return pd.DataFrame(entries, index=pd.Index(list(counts), name="verdict"))


def make_prompts(
    duos: Sequence[Duo],
    known: Sequence[Evidence | None],
    verdicts: Sequence[tuple[str, str]],
    controls: Sequence[Duo] | None,
    tokenizer: Any,
) -> pd.DataFrame:
    """Return a row per prompt, see `Audit.prompts`.

    verdicts: with the reason of each, "" if there is none.
    """
    entries = []
    for i, (duo, (verdict, reason)) in enumerate(zip(duos, verdicts, strict=True)):
        found, at = known[i] or Evidence(), duo.at
        entry = {
            "verdict": verdict,
            "reason": reason,
            "unit": duo.unit,
            "first_divergence": pd.NA if at is None else at,
            "reference_token": pd.NA if duo.parting[1] is None else duo.parting[1],
            "candidate_token": pd.NA if duo.parting[0] is None else duo.parting[0],
            "gap": found.gap,
            "reference_gap": found.reference_gap,
            "candidate_gap": found.candidate_gap,
            "later_gap": found.later_gap,
            "later_token": pd.NA if found.later_at is None else found.later_at,
            "measured_from": found.measured_from,
            "reference_length": len(duo.theirs),
            "candidate_length": len(duo.ours),
        }
        if controls is not None:
            entry["control_diverges"] = controls[i].how == PARTED
        prompt = duo.reference.prompt if duo.candidate.prompt is None else duo.candidate.prompt
        if prompt is None:
            prompt = _written(duo.prompt_ids or (), tokenizer)
        shown = [prompt, "", "", ""]
        if at is not None:
            around = _AROUND[duo.unit]
            start = max(at - around, 0)
            parts = duo.theirs[start:at], duo.theirs[at : at + around], duo.ours[at : at + around]
            shown[1:] = (_written(part, tokenizer) for part in parts)
        entries.append(entry | dict(zip(TEXTS, shown, strict=True)))
    integers = dict.fromkeys(("first_divergence", "later_token"), "Int64")
    return pd.DataFrame(entries).astype(integers).rename_axis("prompt")


def _written(tokens: Sequence[Token], tokenizer: Any) -> str:
    """Return tokens as text, or ids in angle brackets without a tokenizer."""
    if any(isinstance(token, str) for token in tokens):
        return "".join(map(str, tokens))
    if tokenizer is not None:
        return str(tokenizer.decode(list(tokens)))
    return " ".join(f"<{token}>" for token in tokens)
