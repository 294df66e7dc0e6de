"""Watched decoders over models whose layers keep states or attend to a window."""

from functools import cache
from typing import Any

import pytest
import tiny_models
from conftest import check_refusal, generate
from decoder_work import watched
from decoders import states, windows
from decoders.base import Decoder
from families import perturbed

import specviz as sv

K, NEW_TOKENS = 3, 16
PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [15, 3], [7, 8], [*range(20, 45)], [9, 4], [3, 4, 5]]
DELTA = ("qwen3_next", "qwen3_5_text")
RECURRENT = (*DELTA, "jamba")
ALL = (*RECURRENT, "lfm2")
RIGHT: list[tuple[type[Decoder], tuple[str, ...]]] = [
    (states.Selecting, ALL),
    (states.Inputs, DELTA),
    (states.Replaying, (*DELTA, "lfm2")),  # Mamba-1 of transformers loses its states in replays
    (states.OneByOne, ALL),
    (states.DraftReplaying, ALL),
    (windows.Holes, ("gemma3_text",)),
]
FAULTY: list[tuple[type[Decoder], tuple[str, ...]]] = [
    (states.RejectedKept, ALL),
    (states.OneTooFar, ALL),
    (states.OneTooFew, ALL),
    (states.OtherRow, ALL),
    (states.ConvolutionKept, RECURRENT),
    (states.RecurrenceKept, RECURRENT),
    (states.WindowCutLate, ALL),
    (states.OldRowKept, ALL),
    (states.PaddedOnTheRight, ALL),
    (states.PaddedOnTheLeft, ALL),
    (states.NotCloned, (*DELTA, "lfm2")),
    (states.FromZeros, (*DELTA, "lfm2")),
    (windows.BySlot, ("gemma3_text",)),
    (windows.OneTooLong, ("gemma3_text",)),
    (windows.OneTooShort, ("gemma3_text",)),
]
# What the cause says of which states are wrong.
NAMED = {
    states.ConvolutionKept: "the convolution states",
    states.RecurrenceKept: "the recurrent states",
    states.WindowCutLate: "the convolution states",
    states.RejectedKept: "rejected draft",
    states.OldRowKept: "none, since the row begins, and are those of request",
    states.FromZeros: "and are none",
    states.PaddedOnTheRight: "2 columns of padding were read",
    states.PaddedOnTheLeft: "2 columns of padding before token 0 were read",
    windows.OneTooLong: "in layers with a window of 8, and sees tokens",
}


@cache
def pair_of(family: str) -> sv.Pair:
    config = tiny_models.make_config(tiny_models.families()[family])
    target = tiny_models.build(family, config, "sdpa")
    return sv.Pair(target, perturbed(target))


@cache
def texts_of(family: str) -> list[list[int]]:
    pair = pair_of(family)
    options = {"strategy": "autoregressive", "batch_size": 1, "max_new_tokens": NEW_TOKENS}
    return generate(pair, PROMPTS, **options).tokens


def report_of(case: type[Decoder], family: str) -> tuple[Any, list[list[int]]]:
    pair = pair_of(family)
    models = pair.target, pair.draft
    seen, outputs = watched(case, models, PROMPTS, K, NEW_TOKENS, (tiny_models.EOS,))
    return seen.audit(PROMPTS, outputs), outputs


def each(cases: list[tuple[type[Decoder], tuple[str, ...]]]) -> list[Any]:
    return [
        pytest.param(case, family, id=f"{case.name}-{family}")
        for case, families in cases
        for family in families
    ]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("case", "family"), each(RIGHT))
def test_right_decoders_are_right(case: type[Decoder], family: str) -> None:
    report, outputs = report_of(case, family)
    assert outputs == texts_of(family)
    assert report.verdict.startswith("right: ")
    assert not [cost for cost in report.costs if cost.name == "draft cache"]
    assert not sv.check_invariants(report.trace)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("case", "family"), each(FAULTY))
def test_faults_are_named(case: type[Decoder], family: str) -> None:
    report, outputs = report_of(case, family)
    assert outputs != texts_of(family)
    first = report.faults[0]
    assert first.rule == case.rule, report.verdict
    named = NAMED.get(case, "")
    if family == "lfm2":  # which has convolutions alone
        named = named.replace("the convolution states", "the states")
    assert named in first.cause


@pytest.mark.parametrize("case", [states.RejectedKept, states.FromZeros])
def test_the_record_has_the_fault_where_the_report_has_it(case: type[Decoder]) -> None:
    report, _ = report_of(case, "qwen3_next")
    fault, found = report.faults[0], sv.check_invariants(report.trace)
    assert (found[0].rule, found[0].model) == ("state", "target")
    assert (found[0].round, found[0].row) == (fault.round, fault.row)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("case", [states.RejectedKept, states.OneTooFew, states.OtherRow])
def test_the_first_round_with_a_wrong_state_is_named(
    case: type[states.Selecting], family: str
) -> None:
    """It is the one after the first in which a row took a state that is not its own."""
    taken: list[tuple[int, int]] = []

    class Noting(case):  # type: ignore[misc, valid-type]
        rounds = -1

        def verify(self, live: Any, drafts: Any) -> Any:
            self.rounds += 1
            return super().verify(live, drafts)

        def select(self, i: int, accepted: int) -> Any:
            found = super().select(i, accepted)
            if found is not self.after[accepted][i]:
                taken.append((self.rounds, self.live[i]))
            return found

    Decoder.designs.remove(Noting)
    report, _ = report_of(Noting, family)
    number, row = taken[0]
    assert (report.faults[0].round, report.faults[0].row) == (number + 1, row)


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2"])
def test_a_draft_model_that_keeps_states_of_rejected_drafts_is_a_cost(family: str) -> None:
    report, outputs = report_of(states.DraftKeepsRejected, family)
    assert outputs == texts_of(family)
    assert report.verdict.startswith("right: ")
    (cost,) = (cost for cost in report.costs if cost.name == "draft cache")
    assert "the states that token" in cost.sentence


def test_a_model_that_clamps_time_steps_of_prompts_alone_is_refused() -> None:
    pair = pair_of("nemotron_h")
    check_refusal(
        lambda: sv.watch(pair.target), "target clamps time steps", "set time_step_limit of its"
    )
    for module in (*pair.target.modules(), *pair.draft.modules()):
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = (0.0, float("inf"))
    report, _ = report_of(states.OneByOne, "nemotron_h")
    assert report.verdict.startswith("right: ")


@pytest.mark.parametrize("family", ["qwen3_next", "gemma3_text"])
def test_the_strategies_of_specviz_are_right(family: str) -> None:
    pair = pair_of(family)
    with sv.watch(pair.target, pair.draft) as seen:
        outputs = generate(
            pair, PROMPTS, strategy="inplace", batch_size=3, num_draft_tokens=K,
            max_new_tokens=NEW_TOKENS,
        ).tokens  # fmt: skip
    assert seen.audit(PROMPTS, outputs).verdict.startswith("right: ")
