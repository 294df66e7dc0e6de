"""`sv.watch` refuses prompts that are not what was fed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from decoder_work import named, prompts, watched

FED: dict[str, tuple[Callable[[list[int]], list[int]], str]] = {
    "bos": (lambda p: [7, *p], r"\[7\] stands before it"),
    "template": (lambda p: [7, 8, 9, *p, 11], r"\[7, 8, 9\] stands before it"),
    "cut": (lambda p: p[5:], "its first 5 tokens are missing"),
    "shortest": (lambda p: p[-8:], r"its first \d+ tokens are missing"),
    "behind": (lambda p: [*p, 33], r"\[33\] stands behind it"),
    "cut behind bos": (lambda p: [7, *p[4:]], "its first 4 tokens are missing"),
}
SAID = r"prompts\[0\] is not what was fed: "


# What Slots reads behind its prompts is reported as a fault. The last decoder is a wrong one.
CASES = [
    (name, how)
    for name in ("library.assisted", "no_cache.NoCache", "slots.Slots")
    for how in FED
    if (name, how) != ("slots.Slots", "behind")
]


@pytest.mark.sweep(6)
@pytest.mark.parametrize(("name", "how"), [*CASES, ("one_row.DraftBonus", "bos")])
def test_prompts_that_are_not_what_was_fed_are_refused(name: str, how: str) -> None:
    fed, words = FED[how]
    given = [list(prompt) for prompt in prompts()]
    seen, outputs = watched(named(name), given=[fed(each) for each in given], count=8)
    with pytest.raises(ValueError, match=SAID + words):
        seen.audit(given, outputs, eos_token_ids=[])
