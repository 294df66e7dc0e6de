"""Write the card of the heads: data, budget, curves, figures by head, device, versions and date."""

from collections.abc import Mapping
from pathlib import Path

from specviz.util.files import write
from specviz.zoo.heads.mix import SHARES
from specviz.zoo.heads.training import RATES, UNROLL, TrainedHead

K = 4  # drafts a round, in all figures

_CARD = """# Draft heads of the embedded target

Small modules that draft for the embedded target from its own hidden states. They use its embedding
and its LM head, and are of no use with another model: `target` in `config.json` is the fingerprint
of the one that they belong to.

- **Data**: {tokens:.2f}M tokens in windows of 512, {greedy:.0%} greedy continuations by the target
  of training prompts, {sampled:.0%} sampled at a temperature of 0.8, {corpus:.0%} of the corpus
  (sources of the Python {python} standard library without the held-out tenth of the files).
- **Licence**: the corpus is under the Python Software Foundation License 2.0. These weights are
  offered under the same terms.
- **Command**: `{command}`, {date}, on {device};
  torch {torch}, transformers {transformers}.
- **Loss**: cross-entropy against the target's p, at a quarter of the entries of each window, over
  chains of steps, {unrolls}.
  Each step has .8 of the weight of the one before. EAGLE-1 adds the smooth-L1 distance of its
  features from the target's. Muon at {muon} for matrices and AdamW at {adam} for
  the rest, in float32, with warm-up and linear decay.
- **Stored** as float16 safetensors, without the target's weights.

Measured on the stored weights, in float32, on the target's greedy texts after the 32 bundled
prompts (128 new tokens each, from held-out files), {K} drafts a round. The length is new tokens a
round, bonus included; a run's mean acceptance length is a little larger, as it counts accepted
drafts beyond the end of a text. Top-1 and top-5 are shares of positions, given the true tokens
before. Minutes are wall time of training alone, on a machine that did other work as well. Heads of
different numbers of tokens say little about their kinds: compare them in the second table.

{figures}

Length, and in brackets the loss in nats, by training tokens. Rates decay to 0 at a head's end, so
an earlier entry is less than a training of that length would reach:

{curves}
"""


def write_heads_card(
    path: Path,
    trained: Mapping[str, TrainedHead],
    figures: Mapping[str, Mapping[str, float]],
    tokens: int,
    facts: Mapping[str, str],
) -> None:
    """Write the card to `path`.

    Args:
        path: the file.
        trained: the heads by kind.
        figures: what `measure_head` returned, by kind.
        tokens: how many distinct ones the training windows have.
        facts: what `circumstances` returned.
    """
    steps = {kind: each.head.settings.heads or UNROLL for kind, each in trained.items()}
    text = _CARD.format(
        tokens=tokens / 1e6,
        unrolls=", ".join(f"{count} for {kind}" for kind, count in steps.items()),
        muon=RATES[0],
        adam=RATES[1],
        K=K,
        figures=_figures(trained, figures),
        curves=_curves(trained),
        **SHARES,
        **facts,
    )
    write(path, text.encode())


def _figures(trained: Mapping[str, TrainedHead], figures: Mapping[str, Mapping[str, float]]) -> str:
    """Return the table of figures, a row for each head."""
    names = ["head", "parameters", "MB", "steps", "tokens", "minutes", "length"]
    names += [f"top-1, step {step + 1}" for step in range(K)]
    names += [f"top-5, step {step + 1}" for step in range(K)]
    rows = []
    for kind, each in trained.items():
        parameters = sum(parameter.numel() for parameter in each.head.parameters())
        last = each.history[-1]
        minutes = sum(entry["seconds"] for entry in each.history) / 60
        found = figures[kind]
        row = [kind, f"{parameters / 1e3:.0f}k", f"{2 * parameters / 1e6:.2f}"]
        row += [f"{last['step']}", f"{last['tokens'] / 1e6:.2f}M", f"{minutes:.0f}"]
        row.append(f"{found['length']:.3f}")
        for name in ("top1", "top5"):
            row += [f"{found[f'{name}_{step + 1}']:.3f}" for step in range(K)]
        rows.append(row)
    return table(names, rows)


def _curves(trained: Mapping[str, TrainedHead]) -> str:
    """Return the table of length and loss at marks that double, and at each head's end."""
    rows: dict[float, dict[str, str]] = {}
    for kind, each in trained.items():
        for i, entry in enumerate(each.history):
            doubles = (i + 1) & i == 0  # checkpoint 1, 2, 4, 8, ...
            if doubles or entry is each.history[-1]:
                length = entry.get("length", float("nan"))
                rows.setdefault(entry["tokens"], {})[kind] = f"{length:.2f} ({entry['loss']:.2f})"
    names = ["tokens", *trained]
    cells = []
    for tokens, row in sorted(rows.items()):
        cells.append([f"{tokens / 1e6:.2f}M", *(row.get(kind, "") for kind in trained)])
    return table(names, cells)


def table(names: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
