"""Foreign decoders: test subjects for what watches any decoder in the process.

They use torch and transformers alone. Each file is a design; its right decoder and its faulty
variants share all code but the fault. `Decoder` in `base` says what a case declares of itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

from . import (
    holes,
    library,
    lookup,
    no_cache,
    one_row,
    realign,
    rollback,
    samplers,
    sampling,
    sampling_faults,
    slots,
    textbook,
    unused,
)
from .base import Decoder


@dataclass(frozen=True)
class Case:
    """A decoder, and what is wrong with it; see `Decoder` for the attributes.

    `decode(target, draft, prompts, K, max_new_tokens, eos_token_ids=())` returns the new tokens of
    each prompt. `like` names the right case that differs in the fault alone.
    """

    name: str
    decode: Callable[..., list[list[int]]]
    rule: str | None = None
    affects: str | None = None
    costs: str | None = None
    model: str | None = None
    odd: bool = False
    min_batch: int = 1
    needs_eos: bool = False
    like: str | None = None


def case_name(design: type[Decoder]) -> str:
    return f"{design.__module__.rpartition('.')[2]}.{design.__name__}"


def right_one(design: type[Decoder]) -> type[Decoder]:
    """Return the decoder that a faulty one is derived from."""
    return next(base for base in design.__mro__ if base.affects is None)


def case(design: type[Decoder]) -> Case:
    return Case(
        name=case_name(design),
        decode=design.decode,
        rule=design.rule,
        affects=design.affects,
        costs=design.costs,
        model=design.model,
        odd=design.odd,
        min_batch=design.min_batch,
        needs_eos=design.needs_eos,
        like=case_name(right_one(design)) if design.affects else None,
    )


RIGHT = (
    one_row.OneRow,
    realign.Realign,
    holes.Holes,
    holes.HolesInStaticCache,
    slots.Slots,
    slots.AdditiveMask,
    unused.Unused,
    unused.LastDraftRead,
    lookup.Lookup,
    lookup.LookupInside,
    no_cache.NoCache,
    rollback.Rollback,
)
ODD = (
    one_row.TargetReadsTwo,
    realign.PaddingHasPositionOne,
    realign.ShiftedRows,
    realign.PermutedRows,
    slots.SlotsFromTheEnd,
)
FAULTY = (
    one_row.SkippedPosition,
    one_row.CropsTooFew,
    one_row.CropsTooMany,
    one_row.DraftBonus,
    one_row.DraftMissesLast,
    one_row.DraftPositionsStand,
    one_row.PrefillsEachRound,
    one_row.NoBonusOneRow,
    one_row.OneDraftTooManyOneRow,
    one_row.EosOnlyLastOneRow,
    one_row.OverBudgetOneRow,
    realign.PadIdMask,
    realign.MovesMaskAlone,
    realign.MovesAllButLastLayer,
    realign.KeepsFirstRows,
    realign.FeedsFinishedRows,
    realign.NoBonusRealign,
    holes.ColumnPositions,
    holes.RejectedSeen,
    holes.LastAcceptedHidden,
    holes.DraftSeesRejected,
    holes.DraftColumnPositions,
    holes.WrongColumnHoles,
    slots.OldRowSeen,
    slots.LaterDraftsSeen,
    slots.OneDraftTooManySlots,
    slots.EosOnlyLastSlots,
    unused.FillerDecides,
    unused.FillerStays,
    unused.FillerReadForLastDraft,
    no_cache.PaddingSeen,
)
LIBRARY = (library.plain, library.assisted, library.prompt_lookup)

# Greedy decoders, which have one right output.
CASES = [
    *(case(design) for design in (*RIGHT, *ODD, *FAULTY)),
    *(Case(f"library.{decode.__name__}", decode) for decode in LIBRARY),
]
# These draw their tokens, and take `temperature=1.0` and `seed=0` besides.
SAMPLED = [
    case(sampling.Sampling),
    case(sampling.DrawsFromOtherQ),
    case(sampling.NoResidual),
]
# ... and these, too, whose faults need a test of the distribution on a small vocabulary.
RIGHT_SAMPLERS = [
    case(design)
    for design in (
        sampling.Sampling,
        samplers.CachedSampling,
        samplers.Gumbel,
        samplers.Plain,
        samplers.ExactMatch,
        samplers.HotDraft,
        samplers.UnlikelyLeftOut,
        samplers.TopK,
        samplers.Block,
        samplers.LargestScores,
        textbook.Textbook,
        textbook.ReadsLate,
        textbook.WithoutBonus,
        textbook.Repeats,
    )
]
FAULTY_SAMPLERS = [
    case(design)
    for design in (
        sampling.DrawsFromOtherQ,
        sampling.NoResidual,
        sampling_faults.Swapped,
        sampling_faults.NotClamped,
        sampling_faults.NotScaled,
        sampling_faults.BonusTooEarly,
        sampling_faults.OneCoin,
        sampling_faults.SeedIgnored,
        sampling_faults.ReportsOtherQ,
        sampling_faults.BeamJudgedByQ,
        sampling_faults.FirstUnverified,
        sampling_faults.DraftsInBfloat16,
        sampling_faults.OwnScores,
        textbook.DrawsAgain,
    )
]
