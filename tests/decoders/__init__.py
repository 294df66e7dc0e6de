"""Foreign decoders: test subjects for what watches any decoder in the process.

They use torch and transformers alone. Each file is a design; its right decoder and its faulty
variants share all code but the fault. `Decoder` in `base` says what a case declares of itself.
"""

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

# `decode(target, draft, prompts, K, max_new_tokens, eos_token_ids=())` returns the new tokens of
# each prompt.
Case = type[Decoder]
GREEDY = (one_row, realign, holes, slots, unused, lookup, no_cache, rollback)
SAMPLING = (sampling, samplers, sampling_faults, textbook)


def designs_of(*modules: object) -> list[Case]:
    return [
        design
        for module in modules
        for design in Decoder.designs
        if design.__module__ == module.__name__
    ]


# Greedy decoders, which have one right output: right ones, odd ones, faulty ones.
CASES = sorted(designs_of(*GREEDY), key=lambda case: (case.affects is not None, case.odd))
CASES += designs_of(library)
# These draw their tokens, and take `temperature=1.0` and `seed=0` besides. The faults of all but
# the first few need a test of the distribution on a small vocabulary.
SAMPLED = designs_of(sampling)
RIGHT_SAMPLERS = [case for case in designs_of(*SAMPLING) if case.affects is None]
FAULTY_SAMPLERS = [case for case in designs_of(*SAMPLING) if case.affects]
