"""Recorded runs for the browser tests, and facts about them.

The facts are computed without the widget's own code.
"""

import functools
from collections.abc import Iterator

import specviz as sv
from specviz.record.schema import PHASES
from specviz.record.trace import Trace
from specviz.views.stepper.film import film

ACCEPT = PHASES.index("accept")
Json = dict[str, object]


@functools.cache
def record(strategy: str, prompts: int = 4, tokens: int = 64, batch_size: int = 4) -> Trace:
    """Record the embedded pair on bundled prompts.

    One of the first four prompts ends with EOS within 64 tokens.
    """
    return sv.generate(
        sv.load_pair(device="cpu"),
        sv.load_prompts(limit=prompts),
        strategy=strategy,
        batch_size=batch_size,
        max_new_tokens=tokens,
        record=True,
        progress=False,
    ).trace


@functools.cache
def film_of(trace: Trace) -> Json:
    return film(trace)


def stages_of(trace: Trace) -> list[Json]:
    return [stage for each in film_of(trace)["rounds"] for stage in each["stages"]]


def steps_of(trace: Trace, what: str) -> list[int]:
    """Return the steps to which a jump to "rejection", "full", "eos" or "violation" may lead.

    "full" means that all drafts of a row are accepted.
    """
    if what == "violation":
        found = sv.check_invariants(trace)
        return sorted({each.round * len(PHASES) + PHASES.index(each.phase) for each in found})
    return sorted({number * len(PHASES) + ACCEPT for number in _rounds_of(trace, what)})


def _rounds_of(trace: Trace, what: str) -> Iterator[int]:
    ends = set(trace.meta["eos_token_ids"])
    names = ("round", "drafted", "accepted", "gained", "emitted")
    for number, drafted, accepted, gained, emitted in zip(
        *(trace.rows[name].tolist() for name in names), strict=True
    ):
        happens = {
            "rejection": gained > 0 and accepted < drafted,
            "full": drafted > 0 and accepted == drafted,
            "eos": bool(ends & set(emitted)),
        }
        if happens[what]:
            yield number


def parting(first: Trace, second: Trace) -> tuple[int, int, int] | None:
    """Return (round, request, index) of the first token at which the runs differ.

    The round is one of the first run. The index counts the prompt's tokens, too.
    """
    found = []
    for request in range(first.num_requests):
        texts = [trace.prompt(request) + trace.output(request) for trace in (first, second)]
        pairs = enumerate(zip(*texts, strict=False))
        index = next((at for at, (one, other) in pairs if one != other), None)
        if index is None:
            continue
        rows = first.rows
        gained = (rows["request"] == request) & (rows["length"] + rows["gained"] > index)
        found.append((int(rows["round"][gained.argmax()]), request, index))
    return min(found, default=None)
