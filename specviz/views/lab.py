"""`lab`: a form that runs one strategy, or two, and shows in the step-through what happened.

Contract: for notebooks; runs models through `generate` alone. What goes wrong is shown as a line under the form, whatever it is.
"""

import html
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets
import pandas as pd

from specviz import metrics
from specviz.engine.drafters import DRAFTERS, Drafter, SyntheticDrafter, drafter
from specviz.engine.faults import FAULTS
from specviz.engine.models.pair import Pair, load_pair
from specviz.engine.requests import Prompt
from specviz.engine.sampling import SamplingParams
from specviz.engine.strategies import Strategy, changed_options, everything, strategy
from specviz.generation.generate import generate
from specviz.generation.result import Result
from specviz.prompts import load_prompts
from specviz.views.stepper.widget import StepThrough, step_through

_NOTHING = "nothing"
_SYNTHETIC = SyntheticDrafter.name
_SUMMARY = (
    "strategy", "new_tokens", "rounds", "mean_acceptance_length", "draft_acceptance_rate", "full_acceptance_share", "discarded_tokens",
    "tokens_per_s",
)  # fmt: skip


def lab(pair: Pair | None = None, prompts: Sequence[Prompt] | None = None) -> "Lab":
    """Choose a strategy, K, B and the rest in a form, run it, and step through the run.

    Args:
        pair: who drafts and verifies; None for the embedded pair, which is loaded with the first run.
        prompts: to choose from, the first ones; None for the bundled ones.

    Raises:
        ValueError: no prompts.
    """
    return Lab(pair, load_prompts() if prompts is None else prompts)


class Lab(widgets.VBox):
    """The form, and under it the last run. Made by `lab`.

    Attributes:
        fields: the form's parts by name: strategy, compare, num_draft_tokens, batch_size, prompts, max_new_tokens, drafter, acceptance
            (of the synthetic drafter: the chance that a draft is right if those before it are), temperature.
        button: runs what the form says.
        status: one line: what is being done, or what went wrong.
        results: of the last run, one or two; stepper: the widget that shows them, None before.
    """

    def __init__(self, pair: Pair | None, prompts: Sequence[Prompt]) -> None:
        if isinstance(prompts, str) or len(prompts) == 0:
            raise ValueError(
                f"prompts={prompts!r} is no list of prompts; pass at least one, or None for the bundled ones"
            )
        self._pair, self._prompts = pair, prompts
        self._strategies = {_name(each): each for each in _choices()}
        self.fields = _fields(list(self._strategies), len(prompts))
        self.button = widgets.Button(
            description="Run", button_style="primary", icon="play", layout={"width": "120px"}
        )
        self.button.on_click(lambda _: self.run())
        self.fields["drafter"].observe(lambda _: self._allow(), "value")
        self._allow()
        self.status, self._numbers = widgets.HTML(), widgets.HTML()
        self.results: list[Result] = []
        self.stepper: StepThrough | None = None
        form = widgets.GridBox(
            list(self.fields.values()),
            layout={"grid_template_columns": "repeat(auto-fill, minmax(340px, 1fr))"},
        )
        self._parts = (form, widgets.HBox([self.button, self.status]), self._numbers)
        super().__init__(self._parts)

    def __repr__(self) -> str:
        return f"Lab({len(self._prompts)} prompts)"

    def run(self) -> None:
        """Run what the form says, and show it; what goes wrong is shown as one line. The button rests meanwhile."""
        self.button.disabled = True
        try:
            self._say("running …")
            self._show({name: self._generate(name) for name in self._chosen()})
            self._say("")
        except Exception as error:
            self._say(" ".join(str(error).split()) or type(error).__name__)
        finally:
            self.button.disabled = False

    def _allow(self) -> None:
        """Acceptance can be set for the one drafter that takes it."""
        self.fields["acceptance"].disabled = self.fields["drafter"].value != _SYNTHETIC

    def _chosen(self) -> list[str]:
        names = [self.fields["strategy"].value, self.fields["compare"].value]
        return [name for name in dict.fromkeys(names) if name != _NOTHING]

    def _generate(self, name: str) -> Result:
        values = {field: widget.value for field, widget in self.fields.items()}
        if self._pair is None:
            self._pair = load_pair()
        return generate(
            self._pair, self._prompts[: values["prompts"]], strategy=self._strategies[name], drafter=_drafter(values),
            num_draft_tokens=values["num_draft_tokens"], batch_size=values["batch_size"], max_new_tokens=values["max_new_tokens"],
            sampling=_sampling(values), record=True, progress=False,
        )  # fmt: skip

    def _show(self, results: dict[str, Result]) -> None:
        stepper = step_through(*(result.trace for result in results.values()))  # type: ignore[arg-type]  # recorded
        self._numbers.value = _table(results)
        self.children = (*self._parts, stepper)
        if self.stepper is not None:
            self.stepper.close()
        self.results, self.stepper = list(results.values()), stepper

    def _say(self, text: str) -> None:
        self.status.value = html.escape(text)


def _choices() -> list[Strategy]:
    """Every strategy and its variants, and EQSPEC with each fault, from the fourth round on."""
    return [
        *everything(),
        *(strategy("eqspec", break_invariant=fault, from_round=3) for fault in FAULTS),
    ]


def _name(chosen: Strategy) -> str:
    options = changed_options(chosen)
    return f"{chosen.name}({options})" if options else chosen.name


def _drafter(values: dict[str, Any]) -> Drafter:
    """The synthetic one gets rates r, r², ..., since draft j counts only with all before it."""
    if values["drafter"] != _SYNTHETIC:
        return drafter(values["drafter"])
    return drafter(
        _SYNTHETIC,
        rates=[values["acceptance"] ** j for j in range(1, values["num_draft_tokens"] + 1)],
    )


def _sampling(values: dict[str, Any]) -> SamplingParams | None:
    """None at temperature 0. The synthetic drafter can only know what is right where the noise is shared."""
    if not values["temperature"]:
        return None
    return SamplingParams(
        values["temperature"], coupling="gumbel" if values["drafter"] == _SYNTHETIC else "rejection"
    )


def _fields(names: list[str], prompts: int) -> dict[str, Any]:
    def slider(value: int, low: int, high: int, text: str) -> widgets.IntSlider:
        return widgets.IntSlider(
            min(value, high),
            min=low,
            max=high,
            description=text,
            continuous_update=False,
            **_LAYOUT,
        )

    def share(value: float, high: float, step: float, text: str) -> widgets.FloatSlider:
        return widgets.FloatSlider(
            value, min=0, max=high, step=step, description=text, continuous_update=False, **_LAYOUT
        )

    return {
        "strategy": widgets.Dropdown(
            options=names, value="eqspec", description="strategy", **_LAYOUT
        ),
        "compare": widgets.Dropdown(
            options=[_NOTHING, *names], description="compare with", **_LAYOUT
        ),
        "num_draft_tokens": slider(5, 1, 10, "K, drafts a row"),
        "batch_size": slider(8, 1, 32, "B, rows"),
        "prompts": slider(8, 1, prompts, "prompts"),
        "max_new_tokens": slider(48, 1, 128, "new tokens each"),
        "drafter": widgets.Dropdown(options=list(DRAFTERS), description="drafter", **_LAYOUT),
        "acceptance": share(0.8, 1, 0.05, "acceptance"),
        "temperature": share(0, 1.5, 0.1, "temperature"),
    }


_LAYOUT: dict[str, Any] = {"style": {"description_width": "120px"}, "layout": {"width": "auto"}}


def _table(results: dict[str, Result]) -> str:
    """A line for each run, by name: its summary, and the share of entries in which the draft at each position was accepted."""
    lines = []
    for name, result in results.items():
        accepted = metrics.acceptance(result).set_index("position")["acceptance"]
        at = {f"accepted at {position}": share for position, share in accepted.items()}
        lines.append(result.summary[list(_SUMMARY)].assign(strategy=name, **at))
    table = pd.concat(lines).rename(columns=lambda column: column.replace("_", " "))
    return table.to_html(index=False, float_format="{:.2f}".format, na_rep="", border=0)
