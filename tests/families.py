"""Is every family of causal LMs in transformers exact, or refused with the reason?

`python -m families` tries all of them, with sdpa and with eager attention, and writes
docs/models.md; names after it try only those.
"""

import copy
import resource
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers
from conftest import make_prompts
from tiny_models import EOS, NotBuiltError, alternative, build, families, make_config
from transformers import PreTrainedModel

import specviz as sv

STRATEGIES = ("inplace", "eqspec", "exspec", "masking", "rollback")
ATTENTIONS = ("sdpa", "eager")
NEW_TOKENS = 10
MOST_BYTES = 12 * 2**30


@dataclass(frozen=True)
class Outcome:
    """What came of a family: "exact", "refused", "not built", or "wrong", which is a bug.

    Attributes:
        changes: how it was configured, where that is not its default.
    """

    family: str
    attention: str
    model: str
    outcome: str
    reason: str = ""
    changes: str = ""


def perturbed(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy that agrees with the model often but not always."""
    draft = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in draft.parameters():
            if parameter.ndim > 1:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter += 0.05 * parameter.std() * noise
    return draft


def alone(model: PreTrainedModel, prompt: list[int]) -> list[int]:
    """Return the new tokens of `generate` for one prompt."""
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=EOS,
        )
    found: list[int] = out[0, len(prompt) :].tolist()
    return found


def judge(family: str, attention: str = "sdpa", **changes: Any) -> Outcome:
    """Build the family, decode with each strategy and compare every text with `generate`.

    Args:
        changes: what its configuration has otherwise.
    """
    found = Outcome(family, attention, "", "exact", changes=describe(changes))
    try:
        target = build(family, make_config(families()[family], **changes), attention)
    except NotBuiltError as error:
        return replace(found, outcome="not built", reason=short(str(error)))
    found = replace(found, model=type(target).__name__)
    target.generation_config.eos_token_id = EOS
    prompts = make_prompts()[1:6]
    expected: list[list[int]] = []
    try:
        pair = sv.Pair(target, perturbed(target))
        for strategy in STRATEGIES:
            result = sv.generate(
                pair,
                prompts,
                strategy=strategy,
                batch_size=4,
                num_draft_tokens=3,
                max_new_tokens=NEW_TOKENS,
                progress=False,
            )
            expected = expected or [alone(target, prompt) for prompt in prompts]
            if result.tokens != expected:
                reason = f"{strategy} wrote another text than generate"
                return replace(found, outcome="wrong", reason=reason)
    except ValueError as error:
        reason = str(error).removeprefix(f"target={found.model} ")
        return replace(found, outcome="refused", reason=reason)
    return found


def describe(changes: dict[str, Any]) -> str:
    """Return in a few words how a configuration differs from the family's own."""
    if "is_decoder" in changes:
        return "is_decoder=True"
    return "full attention" if changes else ""


def short(reason: str) -> str:
    """Return what transformers says about a class that it cannot build."""
    if "does not support an attention implementation" in reason:
        return "the class has no sdpa attention"
    return reason.split(". You can")[0]


def judge_both(family: str, attention: str) -> list[Outcome]:
    """Judge the family as it is by default and, if that is refused, with full attention."""
    found = [judge(family, attention)]
    changes = alternative(families()[family])
    if found[0].outcome == "refused" and changes:
        found.append(judge(family, attention, **changes))
    return found


def judge_all(names: list[str]) -> Iterator[Outcome]:
    """Judge the families with these names, all of them if there are none."""
    for name in names or sorted(families()):
        for attention in ATTENTIONS:
            yield from judge_both(name, attention)


if __name__ == "__main__":
    # Imported here, since it is of no use to a test that judges one family.
    from families_page import PAGE, page

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    found = []
    for outcome in judge_all(sys.argv[1:]):
        line = [outcome.outcome, outcome.family, outcome.attention, outcome.changes, outcome.reason]
        sys.stdout.write(" ".join(filter(None, line)) + "\n")
        sys.stdout.flush()
        found.append(outcome)
    if not sys.argv[1:]:
        PAGE.write_text(page(found))
    sys.exit(any(outcome.outcome == "wrong" for outcome in found))
