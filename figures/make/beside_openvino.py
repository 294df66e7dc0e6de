"""Strategies beside OpenVINO GenAI: its continuous batching on a CPU, plain and with a draft model.

OpenVINO is no dependency of specviz: `pip install openvino-genai openvino-tokenizers`. Run it with
OMP_NUM_THREADS=1 for one thread on all sides. (A script called openvino.py would hide the package.)
"""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import torch
from measure import RUNS, Measured, command
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import logging

import specviz as sv
from specviz.bench import Baseline, Grid, StoredPair, Written, run_bench
from specviz.bench.sources import Prompts, cut

INPUTS = ("input_ids", "attention_mask", "position_ids")
# By default it computes in bfloat16 where the CPU can, and keeps K/V in 8 bits.
PRECISION = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
MAX_STEP_TOKENS = 1 << 20  # one step reads all prompts of a batch, however long they are


def openvino(grid: Grid, limit: int) -> Measured:
    """Measure a grid on the embedded pair."""
    prompts = sv.load_prompts()
    path = RUNS / "openvino.csv"
    path.unlink(missing_ok=True)  # of an earlier run; figures/data has it
    return run_bench(StoredPair(), prompts, grid, path, limit=limit, turns=16)


@dataclass(frozen=True)
class OpenVino(Baseline):
    """Continuous batching of OpenVINO GenAI in float32, with as many threads as torch uses."""

    name: ClassVar[str] = "openvino"
    on_torch: ClassVar[bool] = False

    def prepare(self, pair: sv.Pair) -> None:
        """Convert the models and load them. This takes seconds, once for a pair."""
        pipeline_of(pair, self.drafts, torch.get_num_threads())

    def decode(
        self, pair: sv.Pair, batch: Prompts, max_new_tokens: int, num_draft_tokens: int
    ) -> Written:
        genai = import_module("openvino_genai")
        pipeline = pipeline_of(pair, self.drafts, torch.get_num_threads())
        config = genai.GenerationConfig(
            do_sample=False,
            max_new_tokens=max_new_tokens,
            eos_token_id=pair.eos_token_ids[0],
            stop_token_ids=set(pair.eos_token_ids),
        )
        if self.drafts:
            config.num_assistant_tokens = num_draft_tokens
        handles = []
        for row, prompt in enumerate(batch):
            ids = import_module("openvino").Tensor(np.array([prompt]))
            handles.append(pipeline.add_request(row, ids, config))
        forwards = 0
        row_forwards = 0
        while pipeline.has_non_finished_requests():
            running = [handle.get_status() for handle in handles]
            row_forwards += running.count(genai.GenerationStatus.RUNNING)
            pipeline.step()
            forwards += 1
        tokens = []
        for handle in handles:
            (output,) = handle.read_all()
            tokens.append(cut(list(output.generated_ids)[:max_new_tokens], pair.eos_token_ids))
        return Written(tokens, forwards, row_forwards)


@dataclass(frozen=True)
class OpenVinoSpeculative(OpenVino):
    """The same with drafts: K a round by the pair's draft model, verified in a batch."""

    name: ClassVar[str] = "openvino_speculative"
    drafts: ClassVar[bool] = True


@lru_cache
def pipeline_of(pair: sv.Pair, drafts: bool, threads: int) -> Any:
    # OpenVINO reports each import over the network where this package is installed, and does not
    # where importing it fails.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    genai = import_module("openvino_genai")
    settings: dict[str, Any] = PRECISION | {"INFERENCE_NUM_THREADS": threads}
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_seqs = 1 << 12
    scheduler.max_num_batched_tokens = MAX_STEP_TOKENS
    scheduler.enable_prefix_caching = False  # a second run would not read its prompts
    with TemporaryDirectory() as folder:
        target, draft = Path(folder) / "target", Path(folder) / "draft"
        drafting = {}
        save(pair, pair.target, target)
        if drafts:
            save(pair, pair.draft, draft)
            drafting["draft_model"] = genai.draft_model(draft, "CPU", **settings)
        properties = settings | drafting
        return genai.ContinuousBatchingPipeline(target, scheduler, "CPU", properties=properties)


def save(pair: sv.Pair, model: PreTrainedModel, folder: Path) -> None:
    """Write a model and the tokenizer as OpenVINO reads them: operations, with K/V as variables.

    Its inputs are input_ids, attention_mask, position_ids and beam_idx, its output logits. OpenVINO
    GenAI makes a paged model of it.
    """
    openvino = import_module("openvino")
    convert = import_module("openvino_tokenizers").convert_tokenizer
    folder.mkdir()
    parts = convert(pair.tokenizer, with_detokenizer=True)
    for name, part in zip(("tokenizer", "detokenizer"), parts, strict=True):
        openvino.save_model(part, folder / f"openvino_{name}.xml")
    step = Step(model).eval()
    logging.set_verbosity_error()
    with warnings.catch_warnings(), torch.no_grad():
        # Of the tracer, about shapes that do not change the path through the code.
        warnings.simplefilter("ignore")
        example = step.example()
        converted = openvino.convert_model(step, example_input=example)
    keep_past(converted, example["past"])
    openvino.save_model(converted, folder / "openvino_model.xml", compress_to_fp16=False)


class Past(list[Any]):
    """K/V of each layer (b, H, t, D), to which a forward appends. Takes the place of a cache."""

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self[layer_idx][0].shape[2] if self else 0

    def update(self, key: Tensor, value: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        if layer_idx == len(self):
            self.append((key, value))
        else:
            both = zip(self[layer_idx], (key, value), strict=True)
            self[layer_idx] = tuple(torch.cat(parts, dim=2) for parts in both)
        return self[layer_idx]


class Step(torch.nn.Module):
    """One forward as a function of tensors alone: what is traced."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, past: list[Any]
    ) -> tuple[Tensor, ...]:
        """Return the logits (b, q, V), then keys and values (b, H, t, D), layer by layer."""
        queries, slots = input_ids.shape[1], attention_mask.shape[1]
        ends = torch.arange(queries)[:, None] + (slots - queries)  # (q, 1)
        causal = torch.arange(slots)[None] <= ends  # (q, t)
        cache = Past(list(past))
        logits = self.model(
            input_ids=input_ids,
            attention_mask=causal[None, None] & attention_mask[:, None, None].to(torch.bool),
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
        ).logits
        return (logits, *[states for layer in cache for states in layer])

    def example(self) -> dict[str, Any]:
        """Return arguments to trace it with: 2 rows with 2 new tokens after 3."""
        ids = torch.ones(2, 3, dtype=torch.long)
        positions = torch.arange(5).expand(2, 5)
        # Each layer's heads and their depth are read off what the layer writes.
        _, *flat = self(ids, torch.ones_like(ids), positions[:, :3], [])
        return {
            "input_ids": ids[:, :2],
            "attention_mask": torch.ones_like(positions),
            "position_ids": positions[:, 3:],
            "past": list(zip(flat[::2], flat[1::2], strict=True)),
        }


def keep_past(converted: Any, past: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Name what OpenVINO GenAI expects, and let shapes vary.

    K/V turn from inputs and outputs into variables, with rows that beam_idx chooses.
    """
    ops = import_module("openvino.opset13")
    transformations = import_module("openvino._offline_transformations")
    shape = import_module("openvino").PartialShape
    layers = [f"{layer}.{part}" for layer in range(len(past)) for part in ("key", "value")]
    read, written = ([f"{of}.{name}" for name in layers] for of in ("past_key_values", "present"))
    shapes = [shape([-1, -1])] * len(INPUTS)
    shapes += [shape([-1, each.shape[1], -1, each.shape[3]]) for layer in past for each in layer]
    for given, name, size in zip(converted.inputs, (*INPUTS, *read), shapes, strict=True):
        given.get_tensor().set_names({name})
        given.node.set_friendly_name(name)
        given.node.set_partial_shape(size)
    for made, name in zip(converted.outputs, ("logits", *written), strict=True):
        made.get_tensor().set_names({name})
    converted.validate_nodes_and_infer_types()

    chosen = ops.parameter([-1], np.int32, name="beam_idx")
    chosen.output(0).get_tensor().set_names({"beam_idx"})
    given = converted.inputs[len(INPUTS) :]
    converted.add_parameters([chosen])
    for states in given:
        readers = states.get_target_inputs()
        rows = ops.gather(states, chosen, ops.constant(0))
        for reader in readers:
            reader.replace_source_output(rows.output(0))
    variables = dict(zip(read, written, strict=True))
    transformations.apply_make_stateful_transformation(converted, variables)
    ids = ops.shape_of(converted.input("input_ids").node)
    batch = ops.gather(ids, ops.constant([0]), ops.constant(0))
    for node in converted.get_ops():
        if node.get_type_name() == "ReadValue":
            _, heads, _, depth = node.get_output_partial_shape(0)
            rest = ops.constant([heads.get_length(), 0, depth.get_length()])
            empty = ops.broadcast(ops.constant(np.float32(0)), ops.concat([batch, rest], 0))
            node.set_arguments([empty])
    converted.validate_nodes_and_infer_types()


if __name__ == "__main__":
    ours = ("autoregressive", "autoregressive:compile=true", "inplace", "inplace:compile=true")
    theirs = (OpenVino(), OpenVinoSpeculative(), "hf_generate")
    grid = Grid((*ours, *theirs), num_draft_tokens=(3,), dtypes=("float32",))
    few = Grid(("autoregressive", *theirs), (1, 2), (3,), (8,), repetitions=1)
    command(openvino, {"openvino": {"grid": grid, "limit": 16}}, {"grid": few, "limit": 2})
