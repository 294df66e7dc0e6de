"""A causal LM of transformers as OpenVINO reads it: its operations, with K/V as variables.

Contract: the folder gets openvino_model.xml and .bin with the inputs input_ids, attention_mask,
position_ids and beam_idx and the output logits, from which OpenVINO GenAI makes a paged model.
"""

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

KeyValue = tuple[Tensor, Tensor]
INPUTS = ("input_ids", "attention_mask", "position_ids")


class _Past:
    """K/V of each layer (b, H, t, D), to which a forward appends. Takes the place of a cache."""

    def __init__(self, layers: list[KeyValue]) -> None:
        self.layers = layers

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.layers[layer_idx][0].shape[2] if self.layers else 0

    def update(self, key: Tensor, value: Tensor, layer_idx: int, *_: Any, **__: Any) -> KeyValue:
        if layer_idx == len(self.layers):
            self.layers.append((key, value))
        else:
            before = self.layers[layer_idx]
            self.layers[layer_idx] = (
                torch.cat([before[0], key], dim=2),
                torch.cat([before[1], value], dim=2),
            )
        return self.layers[layer_idx]


class _Step(torch.nn.Module):
    """One forward as a function of tensors alone: what is traced."""

    def __init__(self, model: PreTrainedModel, vocabulary: int) -> None:
        super().__init__()
        self.model = model
        rows = model.get_output_embeddings().weight.shape[0]
        # A slice of everything would keep OpenVINO from computing the last token's logits alone.
        self.vocabulary = vocabulary if vocabulary < rows else None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        past: list[KeyValue],
    ) -> tuple[Tensor, ...]:
        """Return the logits (b, q, V), then keys and values (b, H, t, D), layer by layer."""
        queries = input_ids.shape[1]
        slots = attention_mask.shape[1]
        ends = torch.arange(queries)[:, None] + (slots - queries)  # (q, 1)
        causal = torch.arange(slots)[None] <= ends  # (q, t)
        cache = _Past(list(past))
        logits = self.model(
            input_ids=input_ids,
            attention_mask=causal[None, None] & attention_mask[:, None, None].to(torch.bool),
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
        ).logits
        if self.vocabulary is not None:
            logits = logits[..., : self.vocabulary]
        flat = [tensor for layer in cache.layers for tensor in layer]
        return (logits, *flat)


def save_model(model: PreTrainedModel, vocabulary: int, folder: Path) -> None:
    """Write the model, with logits of the first `vocabulary` ids, into the folder."""
    openvino = import_module("openvino")
    step = _Step(model, vocabulary).eval()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            # Of the tracer, about shapes that do not change the path through the code.
            warnings.simplefilter("ignore")
            example = _example(step)
            converted = openvino.convert_model(step, example_input=example)
    finally:
        logging.set_verbosity(verbosity)
    _name(converted, example["past"])
    _keep_past(converted, example["past"])
    openvino.save_model(converted, folder / "openvino_model.xml", compress_to_fp16=False)


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the tokenizer into the folder."""
    openvino = import_module("openvino")
    convert = import_module("openvino_tokenizers").convert_tokenizer
    names = ("openvino_tokenizer.xml", "openvino_detokenizer.xml")
    for name, part in zip(names, convert(tokenizer, with_detokenizer=True), strict=True):
        openvino.save_model(part, folder / name)


def _example(step: _Step) -> dict[str, Any]:
    """Return arguments of `step` to trace it with: 2 rows with 2 new tokens after 3."""
    ids = torch.ones(2, 3, dtype=torch.long)
    positions = torch.arange(5).expand(2, 5)
    # Each layer's heads and their depth are read off what the layer writes.
    _, *flat = step(ids, torch.ones_like(ids), positions[:, :3], [])
    return {
        "input_ids": ids[:, :2],
        "attention_mask": torch.ones_like(positions),
        "position_ids": positions[:, 3:],
        "past": list(zip(flat[::2], flat[1::2], strict=True)),
    }


def _past_names(past: list[KeyValue], what: str) -> list[str]:
    return [f"{what}.{layer}.{part}" for layer in range(len(past)) for part in ("key", "value")]


def _name(converted: Any, past: list[KeyValue]) -> None:
    """Name inputs and outputs as OpenVINO GenAI expects, and let their shapes vary."""
    shape = import_module("openvino").PartialShape
    shapes = [shape([-1, -1])] * len(INPUTS)
    for layer in past:
        for states in layer:
            shapes.append(shape([-1, states.shape[1], -1, states.shape[3]]))
    names = [*INPUTS, *_past_names(past, "past_key_values")]
    for given, name, size in zip(converted.inputs, names, shapes, strict=True):
        given.get_tensor().set_names({name})
        given.node.set_friendly_name(name)
        given.node.set_partial_shape(size)
    names = ["logits", *_past_names(past, "present")]
    for made, name in zip(converted.outputs, names, strict=True):
        made.get_tensor().set_names({name})
    converted.validate_nodes_and_infer_types()


def _keep_past(converted: Any, past: list[KeyValue]) -> None:
    """Turn K/V from inputs and outputs into variables, with rows that beam_idx chooses."""
    ops = import_module("openvino.opset13")
    transformations = import_module("openvino._offline_transformations")
    chosen = ops.parameter([-1], np.int32, name="beam_idx")
    chosen.output(0).get_tensor().set_names({"beam_idx"})
    given = converted.inputs[len(INPUTS) :]
    converted.add_parameters([chosen])
    for states in given:
        readers = states.get_target_inputs()
        rows = ops.gather(states, chosen, ops.constant(0))
        for reader in readers:
            reader.replace_source_output(rows.output(0))
    before = _past_names(past, "past_key_values")
    after = _past_names(past, "present")
    transformations.apply_make_stateful_transformation(
        converted, dict(zip(before, after, strict=True))
    )
    ids = ops.shape_of(converted.input("input_ids").node)
    batch = ops.gather(ids, ops.constant([0]), ops.constant(0))
    for node in converted.get_ops():
        if node.get_type_name() == "ReadValue":
            _, heads, _, depth = node.get_output_partial_shape(0)
            rest = ops.constant([heads.get_length(), 0, depth.get_length()])
            empty = ops.broadcast(ops.constant(np.float32(0)), ops.concat([batch, rest], 0))
            node.set_arguments([empty])
    converted.validate_nodes_and_infer_types()
