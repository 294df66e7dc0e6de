"""`sv.watch` over the reference decoders with one line changed, as people get it wrong.

Each case has the decoder, the right code and the wrong one, and what the report has to name: the
rule of the first fault, or a cost if the text stays right.
"""

import pytest
from decoder_work import EOS, prompts, reference, watched

from checks.decoders.mending import mended
from reference import inplace, realign

COSTS = ("draft cache", "read again", "thrown away")

SEEN, POSITIONS = "> positions[:, :, None]", "position_ids=positions,"
SLIPS = {
    "no_cumprod": (inplace, "cumprod(dim=1).sum", "sum", "acceptance"),
    "cumprod_over_rows": (inplace, "cumprod(dim=1)", "cumprod(dim=0)", "acceptance"),
    "hides_itself": (inplace, SEEN, ">= positions[:, :, None]", "mask"),
    "last_draft_stays": (
        inplace,
        "tokens.scatter_(1, positions + 1, choices)",
        "tokens.scatter_(1, positions[:, 1:] + 1, choices[:, 1:])",
        "lengths",
    ),
    "accepted_by_any_row": (
        inplace,
        "(drafts == choices[:, :-1])",
        "(drafts == choices[:, :-1]).any(dim=0, keepdim=True).expand_as(drafts)",
        "acceptance",
    ),
    "sees_one_more": (inplace, SEEN, "> positions[:, :, None] + 1", "mask"),
    "mask_of_the_longest_row": (
        inplace,
        SEEN,
        "> positions.amax(dim=0)[None, :, None]",
        "mask",
    ),
    "mask_of_the_last_draft": (
        inplace,
        SEEN,
        "> positions[:, -1:, None]",
        "mask",
    ),
    "positions_of_the_round": (
        inplace,
        "ids=positions,",
        "ids=positions - positions[:, :1],",
        "positions",
    ),
    "values_of_the_slot_before": (
        realign,
        "layer.values[row, :, source]",
        "layer.values[row, :, source - 1]",
        "kv",
    ),
    "mask_too_weak": (inplace, "torch.finfo(model.dtype).min", "-1.0", "mask"),
    "positions_of_the_longest_row": (
        inplace,
        "position_ids=positions,",
        "position_ids=positions.amax(0, keepdim=True).expand_as(positions).contiguous(),",
        "positions",
    ),
    "cache_keeps_first_rows": (
        inplace,
        "target_cache.batch_select_indices(kept)",
        "target_cache.batch_select_indices(torch.arange(len(kept)))",
        "kv",
    ),
    "draft_cache_keeps_first_rows": (
        inplace,
        "draft_cache.batch_select_indices(kept)",
        "draft_cache.batch_select_indices(torch.arange(len(kept)))",
        "draft cache",
    ),
    "draft_reads_one_token": (inplace, "unread = 2", "unread = 1", "draft cache"),
    "eos_is_ignored": (inplace, "token in eos or ", "", "eos"),
    "mask_of_ones": (realign, "(positions >= 0).long()", "torch.ones_like(positions)", "mask"),
    "positions_of_columns": (
        realign,
        "position_ids=positions[:, unread].clamp(min=0)",
        "position_ids=torch.arange(tokens.shape[1])[None, unread].expand(len(tokens), -1)",
        "positions",
    ),
    "only_keys_move": (
        realign,
        "layer.values = layer.values[row, :, source].transpose(1, 2)",
        "layer.values = layer.values[torch.tensor(rows)][:, :, :width]",
        "kv",
    ),
    "draft_cache_stays": (
        realign,
        "realign(draft_cache, staying, shift",
        "realign(draft_cache, staying, 0 * shift",
        "draft cache",
    ),
    "reads_three_again": (
        realign,
        "width=tokens.shape[1] - 1)",
        "width=tokens.shape[1] - 3)",
        "read again",
    ),
    "no_bonus": (realign, "row[: a + 1]", "row[: max(a, 1)]", "thrown away"),
}


# In the first four nothing looks as it should. The others are slow tests.
@pytest.mark.sweep(8)
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.slow if i > 3 else ()) for i, each in enumerate(SLIPS)],
)
def test_a_slip_is_named(name: str) -> None:
    decoder, right, wrong, finding = SLIPS[name]
    seen, outputs = watched(mended(decoder, right, wrong), eos=list(EOS))
    report = seen.audit(prompts(), outputs, eos_token_ids=EOS)
    if finding in COSTS:
        assert outputs == reference(EOS)
        assert report.faults == []
        assert finding in [cost.name for cost in report.costs]
    else:
        assert outputs != reference(EOS)
        assert report.faults[0].rule == finding
