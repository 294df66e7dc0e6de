"""Write the model card: data, licence, sizes, command, device, time, figures and date."""

import platform
from datetime import date
from pathlib import Path

import pandas as pd
import torch
import transformers
from transformers import PreTrainedModel

from specviz.engine.models.pair import Pair
from specviz.util.files import write

_CARD = """# The embedded pair

Two small Llama models that write Python: a deep and narrow target, and a two-layer draft distilled
from it. specviz itself trained them, so everything in this repository runs without a network. They
are made to be decoded, measured and studied. They are not useful programmers.

| | target | draft |
|---|---|---|
{sizes}

- **Data**: the sources of the Python {python} standard library, as installed with the interpreter
  (`specviz/zoo/corpus.py`). One tenth of the files, chosen by a hash of their path, is held out.
  The draft also learned from the target's greedy continuations.
- **Licence**: the corpus is under the Python Software Foundation License 2.0. These weights are
  offered under the same terms.
- **Command**: `{command}`, {date}, on {device};
  torch {torch}, transformers {transformers}; {hours:.1f} hours in the last session.
- **Training**: target {target_steps} steps, {target_tokens:.1f}M tokens, last loss
  {target_loss:.3f} nats a token (cross-entropy); draft {draft_steps} steps, {draft_tokens:.1f}M
  tokens, last loss {draft_loss:.3f} nats a token (KL from the target).
- **Stored** as float16 safetensors. `specviz.load_pair` loads them as float32 by default.
- `prompts.jsonl`: the first lines of 32 held-out functions and classes.

Measured on the stored weights, CPU, float32 (`specviz evaluate`):

| figure | value |
|---|---|
{figures}
"""


def circumstances(command: str, device: str) -> dict[str, str]:
    """Return what a card says of the circumstances: date, device, command and versions."""
    return {
        "date": str(date.today()),
        "device": f"{device} ({platform.machine()}, {torch.get_num_threads()} threads)",
        "command": command,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def write_card(
    path: Path,
    pair: Pair,
    history: dict[str, list[dict[str, float]]],
    figures: pd.DataFrame,
    facts: dict[str, str],
    seconds: float,
) -> None:
    """Write the card to `path`.

    Args:
        path: the file.
        pair: the models.
        history: what `train` returned for target and draft.
        figures: what `measure_pair` returned.
        facts: what `circumstances` returned.
        seconds: how long the last session took.
    """
    models = {"target": pair.target, "draft": pair.draft}
    last = {name: history[name][-1] for name in models}
    text = _CARD.format(
        sizes=_size_rows(list(models.values())),
        figures="\n".join(f"| {row.figure} | {row.value:.3f} |" for row in figures.itertuples()),
        hours=seconds / 3600,
        target_steps=last["target"]["step"],
        target_tokens=last["target"]["tokens"] / 1e6,
        target_loss=last["target"]["loss"],
        draft_steps=last["draft"]["step"],
        draft_tokens=last["draft"]["tokens"] / 1e6,
        draft_loss=last["draft"]["loss"],
        **facts,
    )
    write(path, text.encode())


def _size_rows(models: list[PreTrainedModel]) -> str:
    """Return the rows of the table of sizes, a column for each model."""
    columns = [_sizes(model) for model in models]
    rows = []
    for name in columns[0]:
        cells = " | ".join(column[name] for column in columns)
        rows.append(f"| {name} | {cells} |")
    return "\n".join(rows)


def _sizes(model: PreTrainedModel) -> dict[str, str]:
    config = model.config
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {
        "parameters": f"{parameters / 1e6:.2f}M",
        "layers x hidden size": f"{config.num_hidden_layers} x {config.hidden_size}",
        "heads (query / key-value)": (
            f"{config.num_attention_heads} / {config.num_key_value_heads}"
        ),
        "vocabulary, positions": f"{config.vocab_size}, {config.max_position_embeddings}",
    }
