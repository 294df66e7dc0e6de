"""Training MTP layers and DFlash drafters: chains from many starts are the model's own forwards."""

from functools import cache
from pathlib import Path

import pytest
import torch
from pair import build_model
from torch import Tensor
from transformers import LlamaForCausalLM, MuseGlimmerAssistantModel

import specviz as sv
from specviz.engine.heads import LAST, DraftHead, build_head
from specviz.engine.heads.modules import HeadOutput
from specviz.zoo.heads import export_head, unroll
from specviz.zoo.heads.features import target_features

STARTS = [1, 2, 7, 11]
STEPS = 4
DFLASH = {"layers": (0, 2, LAST), "num_layers": 2, "heads": STEPS}
WEIGHTS = Path(sv.__file__).parent / "zoo" / "weights" / "heads"


@cache
def target() -> LlamaForCausalLM:
    """Return a random target of four layers whose p is far from uniform."""
    model = build_model(layers=4, hidden_size=16, heads=2, kv_heads=1, mlp=16)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(40)
    return model.eval()


@torch.no_grad()
def chains_of(head: DraftHead) -> tuple[Tensor, Tensor, list[HeadOutput]]:
    """Return tokens (1, T), what the head reads of the target, and its chains from STARTS."""
    tokens = torch.randint(3, 60, (1, 16), generator=torch.Generator().manual_seed(1))
    features = target_features(target(), tokens, head.settings.layers).clone()
    return tokens, features, unroll(head, tokens, features, torch.tensor([STARTS]), STEPS)


def test_chains_of_an_mtp_layer_are_those_of_its_model():
    head = build_head("mtp", target())
    tokens, features, chains = chains_of(head)
    for place, start in enumerate(STARTS):
        states = features[:, :start]
        for step, output in enumerate(chains):
            read = tokens[:, 1 : start + step + 1]
            with torch.no_grad():
                _, logits, _ = head._mtp[0](
                    input_ids=read,
                    last_hidden_states=states,
                    attention_mask=torch.ones_like(read),
                    position_ids=torch.arange(1, start + step + 1)[None],
                    mtp_cache=None,
                )
            torch.testing.assert_close(output.logits[:, place], logits[:, 0])
            states = torch.cat([states, output.hidden[:, place, None]], 1)


def test_several_mtp_layers_are_refused():
    with pytest.raises(ValueError, match="num_layers=1"):
        chains_of(build_head("mtp", target(), num_layers=2))


def test_blocks_of_a_dflash_drafter_are_those_of_its_model():
    head = build_head("dflash", target(), **DFLASH)
    tokens, features, chains = chains_of(head)
    for place, start in enumerate(STARTS):
        block = head.target_embedding(torch.tensor([[tokens[0, start], 0, 0, 0, 0]]))
        with torch.no_grad():
            hidden = head.model(block, features[:, :start]).last_hidden_state
            logits = head.target_lm_head(hidden)
        for step, output in enumerate(chains):
            torch.testing.assert_close(output.logits[:, place], logits[:, step + 1])


def test_transformers_loads_a_stored_dflash_drafter(tmp_path):
    head = build_head("dflash", target(), **DFLASH)
    export_head(head, tmp_path / "dflash")
    model = MuseGlimmerAssistantModel.from_pretrained(tmp_path / "dflash")
    assert model.dtype == torch.float16
    expected = {name: each.half() for name, each in head.model.state_dict().items()}
    torch.testing.assert_close(model.state_dict(), expected)


@pytest.mark.parametrize("kind", ["mtp", "dflash"])
def test_shipped_drafters_are_small(kind):
    assert (WEIGHTS / kind / "model.safetensors").stat().st_size < 1.5e6
