"""Is every family of causal LMs in transformers exact, or refused with the reason?

`python -m families` tries all of them, with sdpa and with eager attention, greedily in float32 and
float64 and sampled with Gumbel coupling. It writes figures/data/families.csv; names after it try
only those, and the others keep their lines. docs/models.md repeats the counts.
"""

import copy
import resource
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import torch
import transformers
from conftest import make_prompts
from measure import without_model
from tiny_models import EOS, NotBuiltError, alternative, build, families, make_config
from torch import Tensor, nn
from transformers import PreTrainedModel

import specviz as sv
from specviz.engine.kv.states import find_mixers, without_limits
from specviz.engine.rng import Noise
from specviz.engine.trial import TIMES_NOISE
from specviz.util.files import save_measured

DATA = Path(__file__).parents[1] / "figures" / "data" / "families.csv"
COLUMNS = ["family", "class", "attention", "dtype", "sampling", "strategies", "changes"]
COLUMNS += ["outcome", "reason"]
STRATEGIES = ("inplace", "eqspec", "exspec", "masking", "rollback")
ATTENTIONS = ("sdpa", "eager")
NEW_TOKENS = 10
MOST_BYTES = 12 * 2**30
TEMPERATURE = 0.8
SAMPLED = sv.SamplingParams(TEMPERATURE, coupling="gumbel")
OPTIONS: dict[str, Any] = {"batch_size": 3, "num_draft_tokens": 3, "max_new_tokens": NEW_TOKENS}
NEAR_TIE = "exact but for a near tie"
EXACT = ("exact", NEAR_TIE)
SEEDS = 32  # ways to choose among equal scores


@dataclass(frozen=True)
class Outcome:
    """What came of a family in one way to decode it.

    It is "exact", "exact but for a near tie" of two tokens' logits, "refused", "not built", "not
    run" where transformers itself raises an error, or "wrong", which is a bug.

    Attributes:
        changes: how it was configured, where that is not its default.
    """

    family: str
    attention: str
    model: str
    outcome: str
    reason: str = ""
    changes: str = ""
    dtype: str = "float32"
    sampling: str = "greedy"


def prompts() -> list[list[int]]:
    """Return six prompts. Those of one token enter rows that others have left."""
    _, two, seven, thirty, twelve, *_ = make_prompts()
    return [thirty, [7], two, seven, [9], twelve]


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
    # A copy, because some classes keep the states of the text before in their modules. Others read
    # prompts by another rule than single tokens, which is the one that counts.
    model = copy.deepcopy(model)
    with torch.inference_mode(), without_limits(find_mixers(model)):
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=EOS,
        )
    found: list[int] = out[0, len(prompt) :].tolist()
    return found


def judge(
    family: str,
    attention: str = "sdpa",
    *,
    dtype: str = "float32",
    sampling: str = "greedy",
    **changes: Any,
) -> Outcome:
    """Build the family, decode with each strategy and compare every text with the reference.

    That is `generate` for each prompt alone, or where tokens are sampled, decoding one row without
    drafts.

    Args:
        changes: what its configuration has otherwise.
    """
    found = Outcome(family, attention, "", "exact", "", describe(changes), dtype, sampling)
    try:
        target = build(family, make_config(families()[family], **changes), attention)
    except NotBuiltError as error:
        return replace(found, outcome="not built", reason=short(str(error)))
    found = replace(found, model=type(target).__name__)
    target.generation_config.eos_token_id = EOS
    draft = perturbed(target)
    if dtype == "float64":
        for model in (target, draft):
            as_float64(model)
        try:
            alone(target, [7])
        except (RuntimeError, TypeError, ValueError) as error:
            return replace(found, outcome="not run", reason=str(error).split("\n")[0])
    options = OPTIONS | ({} if sampling == "greedy" else {"sampling": SAMPLED})
    try:
        texts = decoded(sv.Pair(target, draft), options)
    except ValueError as error:
        reason = str(error).removeprefix(f"target={found.model} ")
        return replace(found, outcome="refused", reason=reason)
    right = texts.pop("autoregressive", None) or [alone(target, each) for each in prompts()]
    outcomes = {name: compared(target, text, right, sampling) for name, text in texts.items()}
    for outcome in ("wrong", NEAR_TIE):
        named = [name for name, each in outcomes.items() if each == outcome]
        if named:
            reason = f"{', '.join(named)} wrote another text than the model alone"
            return replace(found, outcome=outcome, reason=reason)
    return found


def decoded(pair: sv.Pair, options: dict[str, Any]) -> dict[str, list[list[int]]]:
    """Return the texts of each strategy and, of a sampled run, those of rows alone, too."""
    runs = {strategy: options | {"strategy": strategy} for strategy in STRATEGIES}
    if "sampling" in options:
        runs["autoregressive"] = options | {"strategy": "autoregressive", "batch_size": 1}
    return {
        name: sv.generate(pair, prompts(), progress=False, **run).tokens
        for name, run in runs.items()
    }


def compared(
    target: PreTrainedModel, texts: list[list[int]], right: list[list[int]], sampling: str
) -> str:
    """Return what came of one strategy: "exact", "exact but for a near tie" or "wrong"."""
    outcome = "exact"
    for number, (text, other) in enumerate(zip(texts, right, strict=True)):
        if text != other:
            outcome = NEAR_TIE
            if not is_near_tie(target, number, text, other, sampled=sampling != "greedy"):
                return "wrong"
    return outcome


def as_float64(model: PreTrainedModel) -> None:
    """Let a model compute in float64, experts too, whose fast forms have no float64."""
    model.double()
    if any(hasattr(module, "experts") for module in model.modules()):
        model.set_experts_implementation("eager")


@torch.inference_mode()
def is_near_tie(
    model: PreTrainedModel, number: int, text: list[int], right: list[int], *, sampled: bool
) -> bool:
    """Return whether rounding explains that a text differs from the right one.

    Both tokens, where the texts part, must lie as near to the best one as rounding moves logits.
    """
    at = next((i for i, token in enumerate(right) if text[i : i + 1] != [token]), None)
    if at is None or at >= len(text):  # one ends early
        return False
    prefix = prompts()[number] + right[:at]
    plain = last_logits(model, prefix)
    scores = plain
    noise = max(float((rounded(model, prefix, seed) - plain).abs().max()) for seed in range(4))
    if sampled:
        drawn = torch.from_numpy(Noise(0).gumbel(number, len(prefix), len(plain)))
        scores = plain / TEMPERATURE + drawn
        noise /= TEMPERATURE
    gap = float(scores.max() - scores[[text[at], right[at]]].min())
    if gap <= TIMES_NOISE * noise:
        return True
    # Layers that select tokens may find two scores equal. Then either is right.
    written = {int(scores.argmax())}
    for seed in range(SEEDS):
        with ties_broken(seed):
            other = last_logits(model, prefix)
        written.add(int((scores + (other - plain) / (TEMPERATURE if sampled else 1)).argmax()))
    return {text[at], right[at]} <= written


@contextmanager
def ties_broken(seed: int) -> Iterator[None]:
    """Let `topk` choose at random among equal values, and as ever among others."""
    generator = torch.Generator().manual_seed(seed)

    def topk(values: Tensor, k: int, dim: int = -1, **options: Any) -> Any:
        order = torch.randperm(values.shape[dim], generator=generator)
        shuffled = values.index_select(dim, order)
        best = torch.sort(shuffled, dim=dim, descending=True, stable=True).indices
        chosen = order[best].narrow(dim, 0, k)
        return torch.return_types.topk((values.gather(dim, chosen), chosen))

    with mock.patch.object(Tensor, "topk", topk), mock.patch.object(torch, "topk", topk):
        yield


@torch.inference_mode()
def last_logits(model: PreTrainedModel, tokens: list[int]) -> Tensor:
    """Return the logits (V,) after a text, from one forward without a cache."""
    with without_limits(find_mixers(model)):
        logits: Tensor = model(input_ids=torch.tensor([tokens]), use_cache=False).logits
    return logits[0, -1]


def rounded(model: PreTrainedModel, tokens: list[int], seed: int) -> Tensor:
    """Return the logits (V,) where each value of the embedding is rounded otherwise."""
    generator = torch.Generator().manual_seed(seed)

    def round_otherwise(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        signs = torch.randint(0, 2, output.shape, generator=generator) * 2 - 1
        return (output * (1 + torch.finfo(output.dtype).eps * signs)).to(output.dtype)

    hook = model.get_input_embeddings().register_forward_hook(round_otherwise)
    try:
        return last_logits(model, tokens)
    finally:
        hook.remove()


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


def judge_in_all_ways(family: str, attention: str) -> Iterator[Outcome]:
    """Judge the family greedily in float32 and, where that is exact, in other ways, too.

    Sampled with sdpa, if the class has it, and in float64 with eager attention.
    """
    for found in judge_both(family, attention):
        yield found
        if found.outcome not in EXACT:
            continue
        changes = alternative(families()[family]) if found.changes else {}
        if attention == "sdpa" or not has_sdpa(family, changes):
            yield judge(family, attention, sampling="gumbel", **changes)
        if attention == "eager":
            yield judge(family, attention, dtype="float64", **changes)


def has_sdpa(family: str, changes: dict[str, Any]) -> bool:
    """Return whether the family can be built with sdpa attention."""
    try:
        build(family, make_config(families()[family], **changes), "sdpa")
    except NotBuiltError:
        return False
    return True


def judge_all(names: list[str]) -> Iterator[Outcome]:
    """Judge the families with these names, all of them if there are none."""
    for name in names or sorted(families()):
        for attention in ATTENTIONS:
            yield from judge_in_all_ways(name, attention)


def save(outcomes: list[Outcome]) -> None:
    """Write the table of the outcomes and its conditions.

    Families that were not tried keep the lines that the table has of them.
    """
    table = pd.DataFrame([asdict(each) for each in outcomes])
    table = table.rename(columns={"model": "class"}).assign(strategies=" ".join(STRATEGIES))
    table = table[COLUMNS]
    table["reason"] = table["reason"].str.split("; ").str[0]
    before = read_table()
    kept = before["family"].isin(families().keys() - set(table["family"]))
    table = pd.concat([before[kept], table]).sort_values("family", kind="stable")
    settings = {"prompts": len(prompts()), "temperature": TEMPERATURE, **OPTIONS}
    conditions = without_model(script="tests/families.py", **settings)
    versions = {**conditions["versions"], "transformers": transformers.__version__}  # type: ignore[dict-item]
    save_measured(table, conditions | {"versions": versions}, DATA)


def read_table() -> pd.DataFrame:
    """Return the table as it was saved."""
    return pd.read_csv(DATA, keep_default_na=False)


def group_of(rows: pd.DataFrame) -> str:
    """Return what came of a family: "exact", "decoder", "refused", "not built" or "wrong".

    The worst of its outcomes by default; "decoder" if it is exact only when configured as one.
    """
    default, other = rows[rows["changes"] == ""], rows[rows["changes"] != ""]
    if (rows["outcome"] == "wrong").any():
        return "wrong"
    plain = default[(default["dtype"] == "float32") & (default["sampling"] == "greedy")]
    if (plain["outcome"] == "refused").any():
        return "decoder" if other["outcome"].isin(EXACT).any() else "refused"
    return "exact" if default["outcome"].isin(EXACT).any() else "not built"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    found = []
    for outcome in judge_all(sys.argv[1:]):
        line = [outcome.outcome, outcome.family, outcome.attention, outcome.dtype]
        line += [outcome.sampling, outcome.changes, outcome.reason]
        sys.stdout.write(" ".join(filter(None, line)) + "\n")
        sys.stdout.flush()
        found.append(outcome)
    save(found)
    sys.exit(any(outcome.outcome == "wrong" for outcome in found))
