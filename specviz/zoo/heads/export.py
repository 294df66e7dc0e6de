"""The files of a head: `model.safetensors` in float16 and `config.json`."""

import json
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import save_file

from specviz.engine.heads import DFlashHead, DraftHead
from specviz.engine.heads.files import FORMAT, VERSION
from specviz.util.files import make_folder, write_folder

BESIDES = ("target", "training_s")  # in the configuration of a DFlash drafter


def export_head(head: DraftHead, folder: Path) -> None:
    """Write the head's weights as float16, its settings and `training_s` to `folder`.

    A DFlash drafter is written as its `save_pretrained` does, for transformers to load. The weights
    of `head` are rounded to what was written, so it measures as the stored one.

    Raises:
        ValueError: a weight is too large for float16.
        WriteError: the folder cannot be written.
    """
    weights = {}
    with torch.no_grad():
        for name, weight in head.state_dict().items():
            if weight.is_floating_point():
                rounded = weight.to(torch.float16)
                if not rounded.isfinite().all():
                    raise ValueError(f"{name} of the head is not finite in float16; train it again")
                weight.copy_(rounded)
                weight = rounded
            weights[name] = weight.cpu().contiguous()
    config = {"format": FORMAT, "version": VERSION, **asdict(head.settings)}
    if head.training_s is not None:
        config["training_s"] = round(head.training_s, 1)

    def fill(partial: Path) -> None:
        if isinstance(head, DFlashHead):
            stored = deepcopy(head.model).half()
            stored.config.update({name: config[name] for name in BESIDES if name in config})
            stored.save_pretrained(partial)
            return
        partial.mkdir()
        save_file(weights, partial / "model.safetensors", metadata={"format": "pt"})
        text = json.dumps(config, indent=2) + "\n"
        (partial / "config.json").write_text(text, encoding="utf-8")

    make_folder(folder.parent)
    write_folder(folder, fill)
