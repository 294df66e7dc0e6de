"""figures/data/families.csv and docs/models.md: what came of each family, by families.py."""

import json
import re
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import torch
import transformers
from families import EXACT, OPTIONS, STRATEGIES, TEMPERATURE, Outcome, prompts
from tiny_models import families

from specviz.studies.machine import device_conditions
from specviz.util.files import save_measured

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "models.md"
DATA = ROOT / "figures" / "data" / "families.csv"
PLAIN = ["float32", "greedy"]  # the way in which every family is tried
COLUMNS = ["family", "class", "attention", "dtype", "sampling", "strategies", "changes"]
COLUMNS += ["outcome", "reason"]

INTRO = """\
# Models

Which causal LMs of transformers specviz decodes. `make families` wrote this page and
[families.csv](../figures/data/families.csv) on {date} (CPU, torch {torch}, transformers
{transformers}). A family has the name that its configuration gives as `model_type`.

Each family is built tiny from its configuration, with random weights, and drafts with a perturbed
copy of itself. It has a layer of each type that its default configuration has, and windows shorter
than the prompts. Five strategies ({strategies})
decode six prompts of 1 to 30 tokens in batches of three, so that rows enter as others leave:
greedily in float32, with sdpa and eager attention, greedily in float64, and sampled with
`coupling="gumbel"`. A family is *exact* if every greedy text is that of `generate` for
the prompt alone, and every sampled one that of decoding the prompt alone without drafts. It is
*exact but for a near tie* if a text parts only where the logits of both tokens differ by less than
rounding changes them, or where layers that select tokens find equal scores and another choice among
these makes the model itself write it. It is *refused* if specviz says why before it writes
anything. None ended in another error.

Of {all} families, {exact} are exact by default and {other} more as decoders, {refused} are refused,
{not_built} cannot be built here, and {wrong} write a wrong text.
"""

# What was found while these families were made exact, none of it in specviz.
FAULTS = """\

## Faults of transformers

These are in transformers {transformers} itself, with or without specviz.

- Gated delta nets and Mamba: padding on the right decays and shifts a row's state. Pad on the left.
- Llama 4: query temperatures are taken from the place in the cache, the same for all rows, so texts
  of a padded batch longer than `floor_scale` may differ from those alone. So it is in Inkling with
  `log_scaling_n_floor`.
- Bamba, Falcon-H1 and others with a finite `time_step_limit`, Nemotron-H and Zamba2 with their
  `time_step_min`: time steps are clamped where several tokens are read and not where one is, so
  texts differ with and without a cache. specviz never clamps, nor do the texts it is compared with.
- MiniMax: if the first layer has linear attention, padding changes the text.
- Mixtures of experts in float64: call `model.set_experts_implementation("eager")` before.
- RecurrentGemma: states stay in the modules, so a prompt of one token goes on from the text before.
- RoBERTa's kind: `generate` counts positions from 0, and a forward without `position_ids` from
  `pad_token_id` + 1. specviz therefore refuses it.
- Moshi: the cache drops tokens beyond the window, and no mask hides them, so texts depend on how a
  prompt is cut. specviz therefore refuses it.
"""


def save(outcomes: list[Outcome]) -> None:
    """Write the table of the outcomes, its conditions, and the page.

    Families that were not tried keep the lines that the table has of them.
    """
    table = pd.DataFrame([asdict(each) for each in outcomes])
    table = table.rename(columns={"model": "class"}).assign(strategies=" ".join(STRATEGIES))
    table = table[COLUMNS]
    table["reason"] = table["reason"].str.split("; ").str[0]
    before = read_table()
    kept = before["family"].isin(families().keys() - set(table["family"]))
    table = pd.concat([before[kept], table]).sort_values("family", kind="stable")
    conditions = device_conditions(
        torch.device("cpu"), prompts=len(prompts()), temperature=TEMPERATURE, **OPTIONS
    )
    versions = {**conditions["versions"], "transformers": transformers.__version__}  # type: ignore[dict-item]
    save_measured(table, conditions | {"versions": versions}, DATA)
    PAGE.write_text(page(), encoding="utf-8")


def read_table() -> pd.DataFrame:
    """Return the table as it was saved."""
    return pd.read_csv(DATA, keep_default_na=False)


def page() -> str:
    """Return docs/models.md, from the table and its conditions."""
    conditions = json.loads(DATA.with_suffix(".json").read_text(encoding="utf-8"))
    found = [Family(name, rows) for name, rows in read_table().groupby("family")]
    groups: dict[str, list[Family]] = {name: [] for name in Family.GROUPS}
    for family in found:
        groups[family.group].append(family)
    versions = conditions["versions"]
    text = INTRO.format(
        date=conditions["created"][:10],
        torch=versions["torch"].split("+")[0],
        transformers=versions["transformers"],
        strategies=", ".join(STRATEGIES),
        all=len(found),
        **{name.replace(" ", "_"): len(families) for name, families in groups.items()},
    )
    text += _section("Wrong", {each.name: each.why for each in groups["wrong"]})
    text += "\n## Exact\n\n" + _names(each.name for each in groups["exact"])
    for note in sorted({note for each in groups["exact"] for note in each.notes}):
        text += f"\n{note}:\n" + _names(each.name for each in groups["exact"] if note in each.notes)
    text += "\n## Exact with `is_decoder=True`\n\n" + _names(each.name for each in groups["other"])
    text += _section("Refused", {each.name: each.why for each in groups["refused"]})
    text += _section("Not built", {each.name: each.why for each in groups["not built"]})
    return text + FAULTS.format(transformers=versions["transformers"])


def _names(names: Iterable[str]) -> str:
    listed = ", ".join(f"`{name}`" for name in names)
    return textwrap.fill(listed, 100, break_on_hyphens=False, break_long_words=False) + "\n"


def _section(title: str, reasons: dict[str, str]) -> str:
    """Return a table of reasons, each with the families that it holds for."""
    if not reasons:
        return ""
    text = f"\n## {title}\n\n| why | families |\n|---|---|\n"
    for reason in sorted(set(reasons.values())):
        names = ", ".join(f"`{name}`" for name, other in reasons.items() if other == reason)
        text += f"| {reason} | {names} |\n".replace("\\|", "|")
    return text


class Family:
    """The outcomes of one family: by default, and otherwise configured."""

    GROUPS = ("exact", "other", "refused", "not built", "wrong")

    def __init__(self, name: str, rows: pd.DataFrame) -> None:
        self.name = name
        self._default = rows[rows["changes"] == ""]
        self._other = rows[rows["changes"] != ""]

    @property
    def group(self) -> str:
        """The worst of the outcomes by default; "other" if it is only refused by default."""
        default, other = set(self._default["outcome"]), set(self._other["outcome"])
        if "wrong" in default | other:
            return "wrong"
        plain = self._default[(self._default[["dtype", "sampling"]] == PLAIN).all(axis=1)]
        if "refused" in set(plain["outcome"]):
            return "other" if other & set(EXACT) else "refused"
        return "exact" if default & set(EXACT) else "not built"

    @property
    def why(self) -> str:
        """Why it is refused, or not built, by default and otherwise."""
        reasons = [_reasons(self._default)]
        if (self._other["outcome"] == "refused").any():
            otherwise = _reasons(self._other)
            changes = self._other["changes"].iloc[0]
            if otherwise != reasons[0]:
                reasons.append(f"with {changes} it {otherwise}")
        return "; ".join(reasons)

    @property
    def notes(self) -> list[str]:
        """What is to be said of an exact family."""
        rows = self._default
        found = []
        if (rows["reason"] == "the class has no sdpa attention").any():
            found.append("Of these, with eager attention alone, since the class has no other")
        for row in rows[~rows["outcome"].isin(["exact", "not built"])].itertuples():
            found.append(f"Of these, {row.outcome} in {row.dtype}, {row.sampling}")
        return found


def _reasons(rows: pd.DataFrame) -> str:
    """Return what was wrong, without figures, once for both kinds of attention."""
    reasons = rows[~rows["outcome"].isin(EXACT)]["reason"]
    reasons = reasons[~reasons.str.contains("has no sdpa")]
    plain = [re.sub(r": its logits differ by .*?, since", ", since", each) for each in reasons]
    return " and ".join(dict.fromkeys(plain))
