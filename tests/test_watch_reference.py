"""`sv.watch` over the reference decoders with one line changed, as people get it wrong.

Each case says what is replaced in reference/NAME.py, and which rule the report has to name.
"""

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from decoder_work import EOS, MAX_NEW_TOKENS, K, pair, prompts, reference

import specviz as sv

FOLDER = Path(__file__).parents[1] / "reference"


@dataclass(frozen=True)
class Slip:
    """A line of a decoder, and what somebody wrote in its place.

    Attributes:
        file: the decoder.
        right, wrong: the code.
        rule: what the report names; "" if the text stays right.
    """

    file: str
    right: str
    wrong: str
    rule: str


# Lines that the follower has to see through: nothing looks as it should.
HARD = {
    "no_cumprod": Slip("inplace", "cumprod(dim=1).sum", "sum", "acceptance"),
    "cumprod_over_rows": Slip("inplace", "cumprod(dim=1)", "cumprod(dim=0)", "acceptance"),
    "hides_itself": Slip("inplace", "> positions[:, :, None]", ">= positions[:, :, None]", "mask"),
    "last_draft_stays": Slip(
        "inplace",
        "tokens.scatter_(1, positions + 1, choices)",
        "tokens.scatter_(1, positions[:, 1:] + 1, choices[:, 1:])",
        "lengths",
    ),
}
SLIPS = {
    "accepted_by_any_row": Slip(
        "inplace",
        "(drafts == choices[:, :-1])",
        "(drafts == choices[:, :-1]).any(dim=0, keepdim=True).expand_as(drafts)",
        "acceptance",
    ),
    "sees_one_more": Slip(
        "inplace", "> positions[:, :, None]", "> positions[:, :, None] + 1", "mask"
    ),
    "mask_of_the_longest_row": Slip(
        "inplace", "> positions[:, :, None]", "> positions.amax(dim=0)[None, :, None]", "mask"
    ),
    "mask_too_weak": Slip("inplace", "torch.finfo(model.dtype).min", "-1.0", "mask"),
    "positions_of_the_longest_row": Slip(
        "inplace",
        "position_ids=positions,",
        "position_ids=positions.amax(0, keepdim=True).expand_as(positions).contiguous(),",
        "positions",
    ),
    "cache_keeps_first_rows": Slip(
        "inplace",
        "target_cache.batch_select_indices(kept)",
        "target_cache.batch_select_indices(torch.arange(len(kept)))",
        "kv",
    ),
    "draft_cache_keeps_first_rows": Slip(
        "inplace",
        "draft_cache.batch_select_indices(kept)",
        "draft_cache.batch_select_indices(torch.arange(len(kept)))",
        "",
    ),
    "draft_reads_one_token": Slip("inplace", "unread = 2", "unread = 1", ""),
    "eos_is_ignored": Slip("inplace", "token in eos or ", "", "eos"),
    "mask_of_ones": Slip(
        "realign", "(positions >= 0).long()", "torch.ones_like(positions)", "mask"
    ),
    "positions_of_columns": Slip(
        "realign",
        "position_ids=positions[:, unread].clamp(min=0)",
        "position_ids=torch.arange(tokens.shape[1])[None, unread].expand(len(tokens), -1)",
        "positions",
    ),
    "only_keys_move": Slip(
        "realign",
        "layer.values = layer.values[row, :, source].transpose(1, 2)",
        "layer.values = layer.values[torch.tensor(rows)][:, :, :width]",
        "kv",
    ),
    "draft_cache_stays": Slip(
        "realign",
        "realign(draft_cache, staying, shift",
        "realign(draft_cache, staying, 0 * shift",
        "",
    ),
    "reads_three_again": Slip(
        "realign", "width=tokens.shape[1] - 1)", "width=tokens.shape[1] - 3)", ""
    ),
    "no_bonus": Slip("realign", "row[: a + 1]", "row[: max(a, 1)]", ""),
}


def judge(slip: Slip) -> None:
    code = (FOLDER / f"{slip.file}.py").read_text(encoding="utf-8")
    assert code.count(slip.right) == 1
    decoder = ModuleType(slip.file)
    exec(compile(code.replace(slip.right, slip.wrong), slip.file, "exec"), decoder.__dict__)
    given = [list(prompt) for prompt in prompts()]
    with sv.watch(pair().target, pair().draft) as watched:
        outputs = decoder.decode(pair().target, pair().draft, given, K, MAX_NEW_TOKENS, list(EOS))
    report = watched.audit(prompts(), outputs, eos_token_ids=EOS)
    assert (outputs == reference(EOS)) == (slip.rule == "")
    assert [fault.rule for fault in report.faults[:1]] == [slip.rule] * (slip.rule != "")
    assert slip.rule or report.costs, "what costs time is named"


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", HARD)
def test_a_slip_that_is_hard_to_follow_is_named(name: str) -> None:
    judge(HARD[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_named(name: str) -> None:
    judge(SLIPS[name])
