"""Decode shapes like Qwen3-Next's and Gemma 3's with random weights, on a GPU or tiny on a CPU.

    PYTHONPATH=tests python -m gpu_states --out FOLDER
    PYTHONPATH=tests python -m gpu_states --out FOLDER --tiny

Texts of ragged batches are compared with the target's own, in float32 without TF32: random weights
leave few near ties there. Then K + 1 tokens are timed beside one, in bfloat16, by each way to read
them. What is done is written as it goes: texts.csv and times.csv.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from families import perturbed
from states import times_of
from tiny_models import families, make_config
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

import specviz as sv
from specviz.util.files import conditions, save_measured

STRATEGIES = ("inplace", "eqspec", "exspec", "masking")
B, PROMPTS, NEW_TOKENS = 8, 12, 24
UNTIED = {"tie_word_embeddings": False}  # else texts of random models repeat their last token
# Widths as published; fewer layers and experts, so that target and draft fit beside each other.
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3_next": {"num_hidden_layers": 12, "num_experts": 64},
    "gemma3_text": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "num_hidden_layers": 12,
        "sliding_window": 128,
    },
}


def make(config: PreTrainedConfig, dtype: torch.dtype, device: str) -> PreTrainedModel:
    torch.manual_seed(0)
    with torch.device(device):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation="sdpa"
        )
    return model.eval()


def texts(name: str, config: PreTrainedConfig, device: str) -> Iterator[dict[str, object]]:
    """Yield for each strategy and way whether its texts are those of autoregressive decoding."""
    target = make(config, torch.float32, device)
    target.generation_config.eos_token_id = None
    pair = sv.Pair(target, perturbed(target))
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 200, (PROMPTS,), generator=generator).tolist()
    most = min(config.vocab_size, 1000)
    prompts = [torch.randint(9, most, (n,), generator=generator).tolist() for n in lengths]
    prompts[0] = prompts[0][:1]
    options = {"max_new_tokens": NEW_TOKENS, "progress": False}
    alone = sv.generate(pair, prompts, strategy="autoregressive", batch_size=1, **options)
    for state in ("states", "inputs") if name == "qwen3_next" else ("states",):
        for strategy in STRATEGIES:
            begin = time.perf_counter()
            found = sv.generate(
                pair,
                prompts,
                strategy=strategy,
                batch_size=B,
                levers=sv.Levers(state=state),
                **options,
            )
            yield {
                "shape": name,
                "state": state,
                "strategy": strategy,
                "equal": found.tokens == alone.tokens,
                "differing": sum(a != b for a, b in zip(found.tokens, alone.tokens, strict=True)),
                "tokens_a_round": float(found.rows["gained"].mean()),
                "seconds": time.perf_counter() - begin,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    found: dict[str, list[dict[str, object]]] = {"texts": [], "times": []}
    meta = sv.generate(sv.load_pair(device=device), ["x"], max_new_tokens=1, progress=False).meta
    for name, changes in SHAPES.items():
        kind = families()[name]
        config = make_config(kind, **UNTIED) if arguments.tiny else kind(**changes, **UNTIED)
        measured = {
            "texts": texts(name, config, device),
            "times": ({"shape": name} | line for line in _times(config, device)),
        }
        for table, lines in measured.items():
            for line in lines:
                sys.stdout.write(f"{line}\n")
                found[table].append(line)
                where = conditions(meta, tiny=arguments.tiny, measured=__doc__)
                save_measured(pd.DataFrame(found[table]), where, arguments.out / f"{table}.csv")


@torch.inference_mode()
def _times(config: PreTrainedConfig, device: str) -> Iterator[dict[str, object]]:
    yield from times_of(make(config, torch.bfloat16, device))


if __name__ == "__main__":
    main()
