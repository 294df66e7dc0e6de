"""Fixtures: models in memory that the tests decode with.

Each class is initialised at random from its config. The draft is a perturbed copy of the target.
"""

import copy
import functools

import pytest
import torch
from transformers import (
    Glm4Config,
    Glm4ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import specviz as sv

VOCABULARY = 97
CLASSES = {
    "llama": (LlamaForCausalLM, LlamaConfig, 0.05),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, 0.05),
    "glm4": (Glm4ForCausalLM, Glm4Config, 0.05),
    "gpt2": (GPT2LMHeadModel, GPT2Config, 0.1),
}  # class, config, how far the draft's weights are from the target's
EOS = [5, 9, 17, 40]

torch.set_num_threads(1)  # tiny models: threads cost more than they save


def make_config(name: str) -> LlamaConfig | Qwen3Config | Glm4Config | GPT2Config:
    ids = {
        "vocab_size": VOCABULARY,
        "eos_token_id": EOS,
        "bos_token_id": 1,
        "pad_token_id": 0,
        "initializer_range": 0.3,
    }
    if name == "gpt2":
        return GPT2Config(n_embd=32, n_layer=3, n_head=4, n_positions=256, **ids)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    return CLASSES[name][1](
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        max_position_embeddings=256,
        **heads,
        **ids,
    )


@functools.cache
def make_pair(name: str, dtype: torch.dtype = torch.float32, device: str = "cpu") -> sv.Pair:
    """A target of class `name`, and a draft whose matrices differ from it by a few per cent."""
    model_class, _, distance = CLASSES[name]
    torch.manual_seed(1)
    target = model_class(make_config(name)).to(dtype)
    draft = copy.deepcopy(target)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in draft.parameters():
            if parameter.ndim > 1:
                parameter += (
                    torch.randn(parameter.shape, generator=generator).to(dtype)
                    * parameter.std()
                    * distance
                )
    return sv.Pair(target.to(device), draft.to(device))


def make_prompts() -> list[list[int]]:
    """Return ten prompts of 1 to 40 tokens.

    They contain pad, bos and eos ids. One has a single token, and one occurs twice.
    """
    generator = torch.Generator().manual_seed(3)
    drawn = [
        torch.randint(0, VOCABULARY, (n,), generator=generator).tolist()
        for n in (1, 2, 7, 30, 12, 3, 40)
    ]
    return [*drawn, [7, 0, EOS[0], 0, EOS[1], 11], [0], drawn[2]]


@functools.cache
def generate_one_by_one(
    name: str, dtype: torch.dtype, max_new_tokens: int, device: str = "cpu"
) -> list[list[int]]:
    """New tokens of `model.generate(do_sample=False)` for each of `make_prompts()`, at batch 1."""
    model = make_pair(name, dtype, device).target
    rows = [torch.tensor([prompt], device=device) for prompt in make_prompts()]
    outputs = [
        model.generate(
            row, attention_mask=torch.ones_like(row), do_sample=False, max_new_tokens=max_new_tokens
        )
        for row in rows
    ]
    return [output[0, row.shape[1] :].tolist() for row, output in zip(rows, outputs, strict=True)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes to hours runs only where `-m` asks for it."""
    if "soak" not in config.option.markexpr:
        long = [item for item in items if item.get_closest_marker("soak")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of a browser, and those that share the survey, on one worker each.

    All tests in a browser then share one JupyterLab, and the slow survey runs once. The other
    tests are distributed one by one. A group by mark (`--dist loadgroup`) would do the same, but
    pytest-xdist 3.8 loses groups with pytest 9.2 (its issue 1386).
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next(
                (
                    place
                    for place in ("tests/browser/", "tests/test_survey.py")
                    if nodeid.startswith(place)
                ),
                nodeid,
            )

    return Scheduling(config, log)


@pytest.fixture
def prompts() -> list[list[int]]:
    return make_prompts()


@pytest.fixture
def pair() -> sv.Pair:
    """A tiny Llama pair in float32."""
    return make_pair("llama")


@pytest.fixture(scope="session")
def embedded() -> sv.Pair:
    return sv.load_pair(device="cpu")
