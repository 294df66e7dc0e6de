"""Every family of causal LMs in transformers, built tiny from its configuration: exact or refused?

`python -m families` tries all of them and writes docs/models.md; names after it try only those.
"""

import copy
import datetime
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from conftest import make_prompts
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

import specviz as sv

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
STRATEGIES = ("inplace", "eqspec", "exspec", "masking", "rollback")
NEW_TOKENS = 10
MOST_PARAMETERS = 5_000_000
EOS = 5

# Sizes under the names that the configurations use. A family takes those that it knows.
SIZES: dict[str, Any] = {
    **dict.fromkeys(("vocab_size",), 97),
    **dict.fromkeys(("hidden_size", "n_embd", "n_embed", "d_model", "embed_dim", "dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "d_ff", "ffn_hidden_size"), 64),
    **dict.fromkeys(("head_dim", "rotary_dim", "qk_rope_head_dim", "qk_nope_head_dim"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 256),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "qk_head_dim"), 16),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "first_k_dense_replace"), 1),
    "word_embed_proj_dim": 32,
    "v_head_dim": 8,
    "num_experts_per_tok": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": EOS,
    "initializer_range": 0.3,  # so that the tokens of random models vary
}
# Tried in this order until a model runs by itself. Latent attention has no groups of query heads.
ATTENTIONS = ("sdpa", "eager")
KV_HEADS = (2, 4)


@dataclass(frozen=True)
class Outcome:
    """What came of a family: "exact", "refused", "not built", or "wrong", which is a bug."""

    family: str
    model: str
    outcome: str
    reason: str = ""


class NotBuiltError(Exception):
    """A family cannot be built tiny; says why."""


def families() -> dict[str, type[PreTrainedConfig]]:
    """Return the configuration class of each family, by its name."""
    return {config.model_type: config for config in MODEL_FOR_CAUSAL_LM_MAPPING}


def build(config_class: type[PreTrainedConfig], attention: str, kv_heads: int) -> PreTrainedModel:
    """Return a random model of the family that runs by itself. Raises whatever the class raises."""
    config = config_class()
    text = config.get_text_config()
    for part in (config, text) if text is not config else (config,):
        for name, value in (SIZES | {"num_key_value_heads": kv_heads}).items():
            if hasattr(part, name):
                setattr(part, name, value)
        for name in ("layer_types", "mlp_layer_types"):
            if getattr(part, name, None):
                setattr(part, name, list(getattr(part, name))[:2])
    how = {"attn_implementation": attention}
    with torch.device("meta"):
        counted = AutoModelForCausalLM.from_config(copy.deepcopy(config), **how)
    size = sum(parameter.numel() for parameter in counted.parameters())
    if size > MOST_PARAMETERS:
        raise NotBuiltError(f"its smallest build here has {size / 1e6:.0f}M parameters")
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, **how).float().eval()
    with torch.inference_mode():
        model(torch.tensor([[3, 4, 6]]))
    return model


def build_any(config_class: type[PreTrainedConfig]) -> PreTrainedModel:
    """Return the first build that runs. Raises NotBuiltError with the last reason."""
    reason = ""
    for attention in ATTENTIONS:
        for kv_heads in KV_HEADS:
            try:
                return build(config_class, attention, kv_heads)
            except Exception as error:  # each class has its own way to refuse a configuration
                lines = str(error).strip().splitlines() or [""]
                reason = f"{type(error).__name__}: {lines[0]}"
    raise NotBuiltError(reason)


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


def judge(family: str, config_class: type[PreTrainedConfig]) -> Outcome:
    """Build the family, decode with each strategy and compare every text with `generate`."""
    try:
        target = build_any(config_class)
    except NotBuiltError as error:
        return Outcome(family, "", "not built", str(error))
    name = type(target).__name__
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
                return Outcome(family, name, "wrong", reason)
    except ValueError as error:
        return Outcome(family, name, "refused", str(error).removeprefix(f"target={name} "))
    return Outcome(family, name, "exact", target.config._attn_implementation)


def judge_all(names: list[str]) -> Iterator[Outcome]:
    """Judge the families with these names, all of them if there are none."""
    known = families()
    for name in names or sorted(known):
        yield judge(name, known[name])


INTRO = """\
# Models

Which causal LMs of transformers specviz decodes. `PYTHONPATH=tests python -m families` writes this
page ({date}, CPU, float32, torch {torch}, transformers {transformers}).

Each family is built tiny from its configuration, with random weights, and drafts with a perturbed
copy of itself. Five strategies ({strategies}) decode five prompts in
batches of four. A family is *exact* if every text equals that of `generate` for the prompt alone.
It is *refused* if specviz says why before it writes anything; what is refused is the default
configuration, and a model of the family with another one may be exact. It is *not built* if its
configuration cannot be made small by the usual names. Nothing is known of those here, but every
model is tried before its first run.

Of {all} families, {exact} are exact, {refused} refused, {not_built} not built and {wrong} wrong.
"""


def page(outcomes: list[Outcome]) -> str:
    """Return docs/models.md."""
    counts = Counter(outcome.outcome for outcome in outcomes)
    text = INTRO.format(
        date=datetime.date.today(),
        torch=torch.__version__.split("+")[0],
        transformers=transformers.__version__,
        strategies=", ".join(STRATEGIES),
        all=len(outcomes),
        exact=counts["exact"],
        refused=counts["refused"],
        not_built=counts["not built"],
        wrong=counts["wrong"],
    )
    for outcome, last in (("exact", "attention"), ("refused", "why"), ("not built", "why")):
        text += f"\n## {outcome.capitalize()}\n\n| family | class | {last} |\n|---|---|---|\n"
        for each in outcomes:
            if each.outcome == outcome:
                reason = each.reason.split("; choose")[0].replace("|", "\\|")
                text += f"| {each.family} | {each.model} | {reason} |\n"
    return text


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    found = []
    for outcome in judge_all(sys.argv[1:]):
        sys.stdout.write(f"{outcome.outcome} {outcome.family} {outcome.reason}\n")
        sys.stdout.flush()
        found.append(outcome)
    if not sys.argv[1:]:
        PAGE.write_text(page(found))
    sys.exit(any(outcome.outcome == "wrong" for outcome in found))
