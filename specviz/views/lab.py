"""`lab`: a form that runs one strategy, or two, and shows the runs in the step-through.

Contract: for notebooks; runs models through `generate` alone. Any error is shown as a line under
the form.
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
from specviz.util.validate import is_list, require_kind, short
from specviz.views.stepper.widget import StepThrough, step_through

_NO_COMPARISON = "nothing"
_SYNTHETIC = SyntheticDrafter.name
_SUMMARY = (
    "strategy",
    "new_tokens",
    "rounds",
    "mean_acceptance_length",
    "draft_acceptance_rate",
    "full_acceptance_share",
    "discarded_tokens",
    "tokens_per_s",
)
_LAYOUT: dict[str, Any] = {"style": {"description_width": "140px"}, "layout": {"width": "auto"}}
_GRID = {"grid_template_columns": "repeat(auto-fill, minmax(340px, 1fr))"}


def lab(pair: Pair | None = None, prompts: Sequence[Prompt] | None = None) -> "Lab":
    """Choose a strategy, K, B and more in a form, run it, and step through the run.

    Args:
        pair: the draft and the target; None for the embedded pair, which is loaded with the first
            run.
        prompts: to choose from, in order; None for the bundled ones.

    Raises:
        ValueError: this is no pair, or there are no prompts.
    """
    return Lab(pair, load_prompts() if prompts is None else prompts)


class Lab(widgets.VBox):
    """The form, and under it the last run. Made by `lab`.

    Attributes:
        fields: the form's parts by name: strategy, compare, num_draft_tokens, batch_size, prompts,
            max_new_tokens, drafter, acceptance, temperature. `acceptance` belongs to the synthetic
            drafter: the chance that a draft is right if all before it are.
        button: starts a run.
        status: one line: what is being done, or what went wrong.
        results: of the last run, one or two.
        stepper: the step-through of `results`; None before the first run.
    """

    def __init__(self, pair: Pair | None, prompts: Sequence[Prompt]) -> None:
        if pair is not None:
            require_kind("pair", pair, Pair, "pass one, or None for the embedded pair")
        if not is_list(prompts) or len(prompts) == 0:
            raise ValueError(
                f"prompts must be a list of at least one prompt, got {short(prompts)}; "
                "pass a list, or None for the bundled prompts"
            )
        self._pair = pair
        self._prompts = prompts
        self._strategies = {_name(each): each for each in _choices()}
        self.fields = _fields(list(self._strategies), len(prompts))
        self.button = widgets.Button(
            description="Run", button_style="primary", icon="play", layout={"width": "120px"}
        )
        self.button.on_click(lambda _button: self.run())
        self.fields["drafter"].observe(self._enable_acceptance, "value")
        self._enable_acceptance()
        self.status = widgets.HTML()
        self._summary = widgets.HTML()
        self.results: list[Result] = []
        self.stepper: StepThrough | None = None
        form = widgets.GridBox(list(self.fields.values()), layout=_GRID)
        self._parts = (form, widgets.HBox([self.button, self.status]), self._summary)
        super().__init__(self._parts)

    def __repr__(self) -> str:
        return f"Lab({len(self._prompts)} prompts)"

    def run(self) -> None:
        """Run what the form says and show it. An error is shown as one line of text.

        The button is disabled meanwhile.
        """
        self.button.disabled = True
        try:
            self._set_status("running …")
            self._show({name: self._generate(name) for name in self._chosen()})
            self._set_status("")
        except Exception as error:
            self._set_status(" ".join(str(error).split()) or type(error).__name__)
        finally:
            self.button.disabled = False

    def _enable_acceptance(self, _change: Any = None) -> None:
        self.fields["acceptance"].disabled = self.fields["drafter"].value != _SYNTHETIC

    def _chosen(self) -> list[str]:
        """The one strategy or the two different ones that the form selects."""
        names = [self.fields["strategy"].value]
        other = self.fields["compare"].value
        if other not in (_NO_COMPARISON, names[0]):
            names.append(other)
        return names

    def _generate(self, name: str) -> Result:
        values = {field: widget.value for field, widget in self.fields.items()}
        if self._pair is None:  # loaded once, by the first run
            self._pair = load_pair()
        return generate(
            self._pair,
            self._prompts[: values["prompts"]],
            strategy=self._strategies[name],
            drafter=_drafter(values),
            num_draft_tokens=values["num_draft_tokens"],
            batch_size=values["batch_size"],
            max_new_tokens=values["max_new_tokens"],
            sampling=_sampling(values),
            record=True,
            progress=False,
        )

    def _show(self, results: dict[str, Result]) -> None:
        # All that may fail comes first: after an error the last run is still shown.
        traces = [result.trace for result in results.values()]
        stepper = step_through(*traces)  # type: ignore[arg-type]  # recorded, so not None
        self._summary.value = _table(results)
        self.children = (*self._parts, stepper)
        if self.stepper is not None:
            self.stepper.close()
        self.results = list(results.values())
        self.stepper = stepper

    def _set_status(self, text: str) -> None:
        self.status.value = html.escape(text)


def _choices() -> list[Strategy]:
    """Every strategy with its variants, and EQSPEC with each fault from the fourth round on."""
    faulty = [strategy("eqspec", break_invariant=fault, from_round=3) for fault in FAULTS]
    return [*everything(), *faulty]


def _name(chosen: Strategy) -> str:
    options = changed_options(chosen)
    return f"{chosen.name}({options})" if options else chosen.name


def _drafter(values: dict[str, Any]) -> Drafter:
    """The drafter that the form selects.

    The synthetic one gets rates r, r², ..., since draft j counts only with all before it.
    """
    if values["drafter"] != _SYNTHETIC:
        return drafter(values["drafter"])
    positions = range(1, values["num_draft_tokens"] + 1)
    return drafter(_SYNTHETIC, rates=[values["acceptance"] ** position for position in positions])


def _sampling(values: dict[str, Any]) -> SamplingParams | None:
    """None at temperature 0.

    The synthetic drafter can know the target's token only where both draw with the same noise.
    """
    if not values["temperature"]:
        return None
    coupling = "gumbel" if values["drafter"] == _SYNTHETIC else "rejection"
    return SamplingParams(values["temperature"], coupling=coupling)


def _fields(names: list[str], prompts: int) -> dict[str, Any]:
    """The form's parts, by name. names: of the strategies; prompts: how many there are."""
    ints, floats = widgets.IntSlider, widgets.FloatSlider
    return {
        "strategy": _dropdown(names, "strategy", value="eqspec"),
        "compare": _dropdown([_NO_COMPARISON, *names], "compare with"),
        "num_draft_tokens": _slider(ints, 5, 1, 10, "drafts a row (K)"),
        "batch_size": _slider(ints, 8, 1, 32, "rows (B)"),
        "prompts": _slider(ints, 8, 1, prompts, "prompts"),
        "max_new_tokens": _slider(ints, 48, 1, 128, "new tokens a prompt"),
        "drafter": _dropdown(list(DRAFTERS), "drafter"),
        "acceptance": _slider(floats, 0.8, 0, 1, "acceptance", step=0.05),
        "temperature": _slider(floats, 0, 0, 1.5, "temperature", step=0.1),
    }


def _dropdown(options: list[str], text: str, value: str | None = None) -> widgets.Dropdown:
    """value: the option that is selected first; None for the first option."""
    return widgets.Dropdown(options=options, value=value or options[0], description=text, **_LAYOUT)


def _slider(kind: type, value: float, low: float, high: float, text: str, **more: Any) -> Any:
    """kind: of slider; more: its other settings."""
    limits = {"min": low, "max": high, "value": min(value, high)}
    return kind(description=text, continuous_update=False, **limits, **_LAYOUT, **more)


def _table(results: dict[str, Result]) -> str:
    """Return summaries and acceptance by draft position as HTML, a line for each run."""
    lines = []
    for name, result in results.items():
        acceptance = metrics.acceptance(result)
        shares = zip(acceptance["position"], acceptance["acceptance"], strict=True)
        by_position = {f"accepted at {position}": share for position, share in shares}
        lines.append(result.summary[list(_SUMMARY)].assign(strategy=name, **by_position))
    table = pd.concat(lines)
    table.columns = [column.replace("_", " ") for column in table.columns]
    return table.to_html(index=False, float_format="{:.2f}".format, na_rep="", border=0)
