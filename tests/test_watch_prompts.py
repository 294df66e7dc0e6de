"""`sv.watch` refuses prompts that are not what was fed, and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from decoder_work import named, prompts, watched

import specviz as sv

FED: dict[str, tuple[Callable[[list[int]], list[int]], str]] = {
    "bos": (lambda p: [7, *p], r"\[7\] stands before it"),
    "template": (lambda p: [7, 8, 9, *p, 11], r"\[7, 8, 9\] stands before it"),
    "cut": (lambda p: p[5:], "its first 5 tokens are missing"),
    "shortest": (lambda p: p[-8:], r"its first \d+ tokens are missing"),
    "cut behind bos": (lambda p: [7, *p[4:]], "its first 4 tokens are missing"),
}
SAID = r"prompts\[0\] is not what was fed: "


def audited(name: str, fed: Callable[[list[int]], list[int]]) -> sv.WatchReport:
    given = [list(prompt) for prompt in prompts()]
    seen, outputs = watched(named(name), given=[fed(each) for each in given], count=8)
    return seen.audit(given, outputs, eos_token_ids=[])


@pytest.mark.sweep(8)
@pytest.mark.parametrize("how", FED)
@pytest.mark.parametrize("name", ["library.assisted", "no_cache.NoCache", "slots.Slots"])
def test_prompts_that_are_not_what_was_fed_are_refused(name: str, how: str) -> None:
    fed, words = FED[how]
    with pytest.raises(ValueError, match=SAID + words):
        audited(name, fed)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["library.assisted", "no_cache.NoCache"])
def test_a_token_behind_prompts_is_refused_too(name: str) -> None:
    with pytest.raises(ValueError, match=SAID + r"\[33\] stands behind it"):
        audited(name, lambda prompt: [*prompt, 33])


def test_prompts_of_a_wrong_decoder_are_refused_too() -> None:
    with pytest.raises(ValueError, match=SAID + r"\[7\] stands before it"):
        audited("one_row.DraftBonus", lambda prompt: [7, *prompt])


@pytest.mark.parametrize("name", ["no_cache.PaddingSeen", "one_row.SkippedPosition"])
def test_faults_keep_their_verdicts(name: str) -> None:
    report = audited(name, lambda prompt: prompt)
    assert report.faults[0].rule == named(name).rule, report
