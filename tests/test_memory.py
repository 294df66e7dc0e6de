"""Memory by the model against the tensors of real runs, and against peaks: of all tensors on a CPU,
of the allocator on a GPU.
"""

from collections.abc import Iterable
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import LlamaConfig, LlamaForCausalLM

import specviz as sv
from specviz.costs.memory import ALWAYS, largest_batch, memory, peak_bytes
from specviz.costs.shapes import ModelShape, named_pair
from specviz.engine.options import Options
from specviz.engine.run import make_run
from specviz.engine.strategies import STRATEGIES, Strategy

K, BATCH, BUDGET = 4, 3, 8
HOW = [
    *(sv.strategy(name) for name in STRATEGIES if name != "exspec"),
    sv.strategy("exspec", window=5),
]
IDS = [how.name for how in HOW]


def make_pair(
    dtype: torch.dtype = torch.float32, scale: int = 1, vocabulary: int = 997, device: str = "cpu"
) -> sv.Pair:
    """Random weights, no EOS; large enough that a page here and there is no matter."""
    torch.manual_seed(0)

    def model(hidden: int, layers: int) -> LlamaForCausalLM:
        heads = {
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "intermediate_size": 5 * hidden // 2,
        }
        config = LlamaConfig(
            hidden_size=hidden,
            num_hidden_layers=layers,
            vocab_size=vocabulary,
            eos_token_id=[],
            **heads,
        )
        return LlamaForCausalLM(config).to(device, dtype)

    return sv.Pair(model(128 * scale, 4), model(64 * scale, 2))


def shapes_of(pair: sv.Pair) -> tuple[ModelShape, ModelShape]:
    return ModelShape.from_config(pair.target.config.to_dict()), ModelShape.from_config(
        pair.draft.config.to_dict()
    )


def make_prompts(longest: int, count: int = 7) -> list[list[int]]:
    return [[(7 * i + j) % 900 for j in range(longest - i)] for i in range(count)]


def parts(table: pd.DataFrame) -> dict[str, int]:
    return dict(zip(table["part"], table["bytes"], strict=True))


def reckon(pair: sv.Pair, how: Strategy, longest: int, **changes: Any) -> pd.DataFrame:
    asked = {
        "dtype": str(pair.target.dtype).removeprefix("torch."),
        "batch_size": BATCH,
        "num_draft_tokens": K,
        "requests": 7,
    }
    return memory(
        *shapes_of(pair),
        how,
        **asked | {"prompt_tokens": longest, "max_new_tokens": BUDGET} | changes,
    )


@pytest.mark.parametrize("how", HOW, ids=IDS)
def test_parts_are_the_bytes_of_the_tensors(how: Strategy) -> None:
    """Weights, slabs, tokens and logits of a run, each tensor's own bytes."""
    pair = make_pair()
    run = make_run(
        pair,
        make_prompts(30),
        Options(strategy=how, batch_size=BATCH, num_draft_tokens=K, max_new_tokens=BUDGET),
    )
    logits: dict[str, int] = {}
    for event in run.events():
        if event.phase == "draft" and event.draft.logits is not None:
            logits["draft logits"] = max(event.draft.logits.nbytes, logits.get("draft logits", 0))
        if event.phase == "verify":
            logits["target logits"] = max(event.logits.nbytes, logits.get("target logits", 0))
    found = parts(reckon(pair, how, 30))
    slabs = {
        name: sum(
            slab.nbytes
            for layer in run.state.caches[name].cache.layers
            for slab in (layer.keys, layer.values)  # noqa: PD011 - a slab, not a frame
        )
        for name in run.state.caches
    }
    assert found["target K/V"] == slabs["target"]
    assert found["draft K/V"] == slabs.get("draft", 0)
    assert found["target logits"] == logits["target logits"]
    assert found["draft logits"] == logits.get("draft logits", 0)
    for name, model in (("target weights", pair.target), ("draft weights", pair.draft)):
        assert found[name] == sum(parameter.nbytes for parameter in model.parameters())
    batch = run.state.batch
    assert found["tokens"] == pytest.approx(
        batch.tokens.nbytes + batch.lengths.nbytes + batch.limits.nbytes, rel=0.05
    )


class Held(TorchDispatchMode):
    """Watches every operation; `peak`: the most bytes that tensors held at once, those of `ignored`
    not counted. What a kernel needs within itself does not show.
    """

    def __init__(self, ignored: Iterable[Tensor]) -> None:
        super().__init__()
        self.peak, self._ignored = 0, {tensor.untyped_storage()._cdata for tensor in ignored}
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        self._alive = {key: held for key, held in self._alive.items() if not held[0].expired()}
        for storage in (
            leaf.untyped_storage() for leaf in tree_leaves(made) if isinstance(leaf, Tensor)
        ):
            if storage._cdata not in self._ignored:
                self._alive.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return made


# prompts or logits are what counts
CASES = [
    ("autoregressive", "bfloat16", 100, 997),
    ("eqspec", "float32", 100, 997),
    ("exspec", "bfloat16", 100, 997),
    ("inplace", "bfloat16", 100, 997),
    ("inplace", "float32", 12, 4999),
    ("masking", "float32", 100, 997),
    ("rollback", "bfloat16", 12, 4999),
]


@pytest.mark.parametrize(("name", "dtype", "longest", "vocabulary"), CASES)
def test_peak_is_within_5_per_cent_of_what_tensors_held_on_a_cpu(
    name: str, dtype: str, longest: int, vocabulary: int
) -> None:
    """All tensors of a run, workspaces and copies among them, beside the weights, which were there
    before.
    """
    pair, prompts, how = (
        make_pair(getattr(torch, dtype), 2, vocabulary),
        make_prompts(longest),
        HOW[IDS.index(name)],
    )
    options = {
        "strategy": how,
        "batch_size": BATCH,
        "num_draft_tokens": K,
        "max_new_tokens": BUDGET,
        "progress": False,
    }
    with Held([*pair.target.parameters(), *pair.draft.parameters()]) as held:
        sv.generate(pair, prompts, **options)
    table = reckon(pair, how, longest)
    weights = parts(table)["target weights"] + parts(table)["draft weights"]
    assert peak_bytes(table) - weights == pytest.approx(held.peak, rel=0.05)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["inplace", "eqspec", "exspec", "autoregressive"])
def test_peak_is_within_5_per_cent_of_the_allocator_on_a_gpu(name: str) -> None:
    how = HOW[IDS.index(name)]
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    pair, prompts = make_pair(torch.bfloat16, 16, 32_000, "cuda:0"), make_prompts(200)
    options = {
        "strategy": how,
        "batch_size": BATCH,
        "num_draft_tokens": K,
        "max_new_tokens": BUDGET,
        "progress": False,
    }
    sv.generate(pair, prompts, **options)
    torch.cuda.synchronize()
    kept = torch.cuda.memory_stats()[
        "requested_bytes.all.current"
    ]  # weights, and what libraries keep
    torch.cuda.reset_peak_memory_stats()
    sv.generate(pair, prompts, **options)
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    table = reckon(pair, how, 200)
    weights = parts(table)["target weights"] + parts(table)["draft weights"]
    assert peak_bytes(table) - weights == pytest.approx(
        peak - kept, rel=0.05
    )  # without the weights, which would hide the rest


def test_the_peak_is_what_is_always_there_and_the_hungriest_phase() -> None:
    table = reckon(make_pair(), sv.strategy("eqspec"), 30)
    when = table.groupby("when")["bytes"].sum()
    assert set(when.index) == {ALWAYS, "schedule", "draft", "verify", "accept", "synchronise"}
    assert peak_bytes(table) == when[ALWAYS] + when.drop(ALWAYS).max()


def test_what_is_not_needed_is_not_counted() -> None:
    pair = make_pair()
    target, draft = shapes_of(pair)
    plain = parts(reckon(pair, sv.strategy("autoregressive"), 30))
    assert plain["draft K/V"] == plain["draft logits"] == plain["drafting"] == 0
    assert plain["draft weights"] == draft.weight_bytes("float32")  # loaded, if not used
    asked = {
        "dtype": "float32",
        "batch_size": BATCH,
        "num_draft_tokens": K,
        "prompt_tokens": 30,
        "max_new_tokens": BUDGET,
    }
    lookup = parts(memory(target, None, sv.strategy("inplace"), **asked))
    assert lookup["draft weights"] == lookup["draft K/V"] == lookup["draft logits"] == 0
    few = reckon(pair, sv.strategy("exspec", window=32), 30, requests=2)
    assert parts(few)["target K/V"] == 2 * (30 + BUDGET + K + 1) * target.kv_bytes_per_slot(
        "float32"
    )


@pytest.mark.parametrize("how", [*HOW[:-1], sv.strategy("exspec", window=100)], ids=IDS)
def test_the_largest_batch_fits_and_one_more_does_not(how: Strategy) -> None:
    target, draft = named_pair("qwen3-8b/0.6b")
    asked = {
        "dtype": "bfloat16",
        "num_draft_tokens": 5,
        "prompt_tokens": 512,
        "max_new_tokens": 128,
    }
    for budget in (40e9, 141e9):
        found = largest_batch(budget, target, draft, how, **asked)
        assert found > 0
        assert peak_bytes(memory(target, draft, how, batch_size=found, **asked)) <= budget
        if how.name != "exspec" or found < 100:  # its pool of 100 rows takes no more
            assert peak_bytes(memory(target, draft, how, batch_size=found + 1, **asked)) > budget
    assert largest_batch(17e9, target, draft, how, **asked) == 0  # not even the weights


GOOD: dict[str, Any] = {
    "dtype": "float32",
    "batch_size": 2,
    "num_draft_tokens": 3,
    "prompt_tokens": 9,
    "max_new_tokens": 4,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size must be an int >= 1, got 0"),
        ({"num_draft_tokens": -1}, "num_draft_tokens must be an int >= 0, got -1"),
        ({"prompt_tokens": 1.5}, "prompt_tokens must be an int >= 1, got 1.5"),
        ({"max_new_tokens": True}, "max_new_tokens must be an int >= 1, got True"),
        ({"requests": 0}, "requests must be an int >= 1, got 0"),
        ({"dtype": "int8"}, "dtype must be one of .*, got 'int8'"),
        ({"batch_size": 33}, "window=32 is smaller than batch_size=33"),
    ],
)
def test_bad_input_says_why(changes: dict[str, Any], message: str) -> None:
    target, draft = named_pair("vicuna-7b/68m")
    with pytest.raises(ValueError, match=message):
        memory(target, draft, sv.strategy("exspec"), **GOOD | changes)


def test_a_budget_that_is_none_says_why() -> None:
    target, draft = named_pair("vicuna-7b/68m")
    asked = {name: value for name, value in GOOD.items() if name != "batch_size"}
    for budget in (0, float("nan"), float("inf")):
        with pytest.raises(
            ValueError,
            match=r"budget_bytes must be a finite number > 0, got .*; pass a number above 0",
        ):
            largest_batch(budget, target, draft, sv.strategy("inplace"), **asked)
    with pytest.raises(ValueError, match=r"dtype must be one of .*, got 'int8'"):
        largest_batch(1e9, target, draft, sv.strategy("inplace"), **asked | {"dtype": "int8"})
