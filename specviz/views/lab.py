"""`lab`: a form that runs one strategy, or two, and shows the runs in the step-through.

Contract: for notebooks; runs models through `generate_stepwise` alone. Any error is shown as a line
under the form. In a live notebook a run gives way to the page after each round, so that it can be
cancelled.
"""

import asyncio
import dataclasses
from collections.abc import Generator, Sequence
from typing import Any

import ipywidgets as widgets
from IPython import get_ipython
from IPython.display import DisplayHandle, display

from specviz.engine.drafters import DRAFTERS, Drafter, SyntheticDrafter, drafter
from specviz.engine.faults import FAULTS
from specviz.engine.models.pair import Pair, load_pair
from specviz.engine.options import Options
from specviz.engine.requests import Prompt
from specviz.engine.sampling import SamplingParams
from specviz.engine.strategies import Strategy, changed_options, everything
from specviz.generation.generate import generate_stepwise
from specviz.generation.result import Result
from specviz.prompts import load_prompts
from specviz.util.text import count
from specviz.util.validate import is_list, require_kind, short
from specviz.views.display import picture_wanted
from specviz.views.labform import GRID, NOTHING, Progress, fields
from specviz.views.labtable import table
from specviz.views.live import Interrupts
from specviz.views.stepper.widget import StepThrough, step_through

_SYNTHETIC = SyntheticDrafter.name
_FAULTY_FROM = 3  # the first round that breaks
_NEED_DRAFTS = ("bonus",)  # faults without effect where nothing is drafted
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Options)}
_DRAFTING = ("num_draft_tokens", "drafter")  # fields that need a strategy which drafts


class Cancelled(Exception):  # noqa: N818 - nothing went wrong
    """The reader has pressed Cancel."""


def lab(pair: Pair | None = None, prompts: Sequence[Prompt] | None = None) -> "Lab":
    """Choose a strategy, K, B and more in a form, run it, and step through the run.

    Args:
        pair: the draft and the target; None for the embedded pair, which is loaded with the first
            run.
        prompts: to choose from, in order; None for the bundled ones.

    Raises:
        ValueError: `pair` is not a pair, or there are no prompts.
    """
    return Lab(pair, load_prompts() if prompts is None else prompts)


class Lab(widgets.VBox):
    """The form, and under it the last run. Made by `lab`.

    Attributes:
        fields: the form's parts by name: strategy, fault, compare, drafter, acceptance,
            num_draft_tokens, batch_size, max_new_tokens, temperature, seed, prompts, own_prompt.
            `acceptance` belongs to the synthetic drafter: the chance that a draft is right if all
            before it are. `fault` breaks an invariant of the strategy, not of the one that it is
            compared with.
        button: starts a run.
        cancel: ends it after the round that is computed now.
        progress: the bar beside them.
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
        self._strategies = {_name(each): each for each in everything()}
        names = [*self._strategies]
        self.fields = fields(names, list(DRAFTERS), FAULTS, len(prompts), _DEFAULTS)
        self._buttons = Progress()
        self.button = self._buttons.run
        self.cancel = self._buttons.cancel
        self.progress = self._buttons.bar
        self.status = self._buttons.status
        self.button.on_click(lambda _button: self._start())
        self.cancel.on_click(lambda _button: self._cancel())
        for name in ("strategy", "compare", "drafter", "own_prompt"):
            self.fields[name].observe(self._enable, "value")
        self._enable()
        self._summary = widgets.HTML()
        self._place: DisplayHandle | None = None
        self._cancelled = False
        self.results: list[Result] = []
        self.stepper: StepThrough | None = None
        form = widgets.GridBox(list(self.fields.values()), layout=GRID)
        self._parts = (form, self._buttons.root, self._summary)
        super().__init__(self._parts)

    def __repr__(self) -> str:
        return f"Lab({count(len(self._prompts), 'prompt')})"

    def _ipython_display_(self) -> None:
        """Display the form in a live session, and under it a place for a picture of the run."""
        if picture_wanted():
            raise NotImplementedError  # IPython then takes what _repr_mimebundle_ returns
        display(self._repr_mimebundle_(), raw=True)
        self._place = display({"text/html": ""}, raw=True, display_id=True)

    def run(self) -> None:
        """Run what the form says and show it. An error is shown as one line of text.

        The button is disabled meanwhile.
        """
        for _ in self._steps():
            pass

    def _start(self) -> None:
        """Run, in a live notebook round by round beside what else the kernel is asked."""
        loop = getattr(getattr(get_ipython(), "kernel", None), "io_loop", None)
        if loop is None:
            self.run()
        else:
            loop.add_callback(self._run_beside)

    async def _run_beside(self) -> None:
        interrupts = Interrupts()
        steps = self._steps()
        try:
            for _ in steps:
                interrupts.listen()
                # Without a pause the kernel reads no messages, and Cancel would never arrive.
                await asyncio.sleep(0.001)
                # Raised inside the run, so that it ends as an interrupt of a cell would end it.
                if interrupts.came:
                    steps.throw(KeyboardInterrupt)
        except KeyboardInterrupt:  # the line under the form says it
            pass
        finally:
            interrupts.stop()

    def _cancel(self) -> None:
        self._cancelled = True
        self.cancel.disabled = True

    def _steps(self) -> Generator[None, None, None]:
        """Run what the form says, round by round, and show it."""
        chosen = self._chosen()
        prompts = self._asked()
        self._cancelled = False
        self._buttons.begin(len(chosen) * len(prompts) * self.fields["max_new_tokens"].value)
        try:
            self._set_status("running …")
            yield
            results: dict[str, Result] = {}
            for name, each in chosen.items():
                results[name] = yield from self._generate(name, each, prompts)
                # Texts that end early would leave the bar short of its end.
                self.progress.max -= self._unwritten(results[name], prompts)
            self._show(results)
            self._set_status("")
        except Cancelled:
            self._set_status("cancelled")
        except Exception as error:
            self._set_status(" ".join(str(error).split()) or type(error).__name__)
        except BaseException:  # an interrupt, or the form is closed
            self._set_status("interrupted")
            raise
        finally:
            self._buttons.end()

    def _unwritten(self, result: Result, prompts: Sequence[Prompt]) -> int:
        """Return how many tokens of the budget a run did not need."""
        budget = len(prompts) * self.fields["max_new_tokens"].value
        return budget - sum(map(len, result.tokens))

    def _generate(
        self, name: str, chosen: Strategy, prompts: Sequence[Prompt]
    ) -> Generator[None, None, Result]:
        """Run one strategy; the generator's value is the result."""
        values = {field: widget.value for field, widget in self.fields.items()}
        if self._pair is None:  # loaded once, by the first run
            self._pair = load_pair()
        before = self.progress.value
        steps = generate_stepwise(
            self._pair,
            prompts,
            strategy=chosen,
            drafter=_drafter(values),
            num_draft_tokens=values["num_draft_tokens"],
            batch_size=values["batch_size"],
            max_new_tokens=values["max_new_tokens"],
            sampling=_sampling(values),
            seed=values["seed"],
            record=True,
        )
        while True:
            try:
                written = next(steps)
            except StopIteration as ended:
                return ended.value
            self.progress.value = before + written
            self._set_status(f"running {name}: {written} tokens")
            yield
            if self._cancelled:
                raise Cancelled

    def _asked(self) -> list[Prompt]:
        own = self.fields["own_prompt"].value
        return [own] if own.strip() else [*self._prompts[: self.fields["prompts"].value]]

    def _chosen(self) -> dict[str, Strategy]:
        """Return the one strategy or the two different ones that the form selects, by name."""
        strategy = self._strategies[self.fields["strategy"].value]
        fault = self.fields["fault"].value
        if fault != NOTHING:
            strategy = dataclasses.replace(strategy, break_invariant=fault, from_round=_FAULTY_FROM)
        chosen = {_name(strategy): strategy}
        other = self.fields["compare"].value
        if other != NOTHING:
            # A run is not compared with itself: the same name counts once.
            chosen.setdefault(other, self._strategies[other])
        return chosen

    def _enable(self, _change: Any = None) -> None:
        """Disable what changes nothing in the run that the form describes."""
        names = [self.fields[name].value for name in ("strategy", "compare")]
        strategies = [self._strategies[name] for name in names if name != NOTHING]
        drafts = any(each.drafts for each in strategies)
        for name in _DRAFTING:
            self.fields[name].disabled = not drafts
        synthetic = self.fields["drafter"].value == _SYNTHETIC
        self.fields["acceptance"].disabled = not (drafts and synthetic)
        self._offer_faults(strategies[0])
        self.fields["prompts"].disabled = bool(self.fields["own_prompt"].value.strip())

    def _offer_faults(self, strategy: Strategy) -> None:
        """Offer the faults that can change a run of this strategy."""
        field = self.fields["fault"]
        field.disabled = not strategy.valid
        faults = [fault for fault in FAULTS if strategy.drafts or fault not in _NEED_DRAFTS]
        options = (NOTHING, *faults)
        kept = field.value if strategy.valid and field.value in options else NOTHING
        if field.options != options:
            field.options = options
        field.value = kept

    def _show(self, results: dict[str, Result]) -> None:
        # All that may fail comes first: after an error the last run is still shown.
        traces = [result.trace for result in results.values()]
        stepper = step_through(*traces)  # type: ignore[arg-type]  # recorded, so not None
        self._summary.value = table(results)
        self.children = (*self._parts, stepper)
        # An open widget keeps its film in the page's memory.
        if self.stepper is not None:
            self.stepper.close()
        self.results = list(results.values())
        self.stepper = stepper
        if self._place is not None:
            stepper.leave_picture_in(self._place)

    def _set_status(self, text: str) -> None:
        self.status.value = text


def _name(chosen: Strategy) -> str:
    options = changed_options(chosen)
    return f"{chosen.name}({options})" if options else chosen.name


def _drafter(values: dict[str, Any]) -> Drafter:
    """Return the drafter that the form selects.

    The synthetic one gets rates r, r², ..., since draft j counts only with all before it.
    """
    if values["drafter"] != _SYNTHETIC:
        return drafter(values["drafter"])
    positions = range(1, values["num_draft_tokens"] + 1)
    return drafter(_SYNTHETIC, rates=[values["acceptance"] ** position for position in positions])


def _sampling(values: dict[str, Any]) -> SamplingParams | None:
    """Return the sampling of the form, None at temperature 0.

    The synthetic drafter can know the target's token only where both draw with the same noise.
    """
    if not values["temperature"]:
        return None
    coupling = "gumbel" if values["drafter"] == _SYNTHETIC else "rejection"
    return SamplingParams(values["temperature"], coupling=coupling)
