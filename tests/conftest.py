"""Models in memory that the tests decode with, runs that they share, and how errors are checked.

Each class is initialised at random from its config. The draft is a perturbed copy of the target.
"""

import copy
import functools
import gc
import itertools
import os
import re
import signal
import subprocess
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    Glm4Config,
    Glm4ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import specviz as sv
from specviz.engine.strategies import Strategy

HERE = Path(__file__).parent
VOCABULARY = 97
NEW_TOKENS = 24
CLASSES = {
    "llama": (LlamaForCausalLM, LlamaConfig, 0.05),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, 0.05),
    "glm4": (Glm4ForCausalLM, Glm4Config, 0.05),
    "gpt2": (GPT2LMHeadModel, GPT2Config, 0.1),
}  # class, config, how far the draft's weights are from the target's
EOS = [5, 9, 17, 40]
GOLDEN = (5**0.5 - 1) / 2

# Shells start background jobs with Ctrl-C ignored, and all that these start ignores it as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)  # tiny models: threads cost more than they save


def make_config(name: str) -> LlamaConfig | Qwen3Config | Glm4Config | GPT2Config:
    ids = {
        "vocab_size": VOCABULARY,
        "eos_token_id": EOS,
        "bos_token_id": 1,
        "pad_token_id": 0,
        "initializer_range": 0.3,
    }
    if name == "gpt2":
        return GPT2Config(n_embd=32, n_layer=3, n_head=4, n_positions=256, **ids)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    return CLASSES[name][1](
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        max_position_embeddings=256,
        **heads,
        **ids,
    )


@functools.cache
def make_pair(name: str, dtype: torch.dtype = torch.float32, device: str = "cpu") -> sv.Pair:
    """A target of class `name`, and a draft whose matrices differ from it by a few per cent."""
    model_class, _, distance = CLASSES[name]
    torch.manual_seed(1)
    target = model_class(make_config(name)).to(dtype)
    draft = copy.deepcopy(target)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in draft.parameters():
            if parameter.ndim > 1:
                parameter += (
                    torch.randn(parameter.shape, generator=generator).to(dtype)
                    * parameter.std()
                    * distance
                )
    return sv.Pair(target.to(device), draft.to(device))


def make_prompts() -> list[list[int]]:
    """Return ten prompts of 1 to 40 tokens.

    They contain pad, bos and eos ids. One has a single token, and one occurs twice.
    """
    generator = torch.Generator().manual_seed(3)
    drawn = [
        torch.randint(0, VOCABULARY, (n,), generator=generator).tolist()
        for n in (1, 2, 7, 30, 12, 3, 40)
    ]
    return [*drawn, [7, 0, EOS[0], 0, EOS[1], 11], [0], drawn[2]]


generate = functools.partial(sv.generate, progress=False)


@functools.cache
def generate_one_by_one(
    name: str = "llama",
    dtype: torch.dtype = torch.float32,
    max_new_tokens: int = NEW_TOKENS,
    device: str = "cpu",
) -> list[list[int]]:
    """New tokens of `model.generate(do_sample=False)` for each of `make_prompts()`, at batch 1."""
    return generate_alone(make_pair(name, dtype, device).target, make_prompts(), max_new_tokens)


def generate_alone(
    model: PreTrainedModel, prompts: list[list[int]], max_new_tokens: int
) -> list[list[int]]:
    """What transformers writes, prompt by prompt: the text that every strategy must write."""
    rows = [torch.tensor([prompt], device=model.device) for prompt in prompts]
    outputs = [
        model.generate(
            row, attention_mask=torch.ones_like(row), do_sample=False, max_new_tokens=max_new_tokens
        )
        for row in rows
    ]
    return [output[0, row.shape[1] :].tolist() for row, output in zip(rows, outputs, strict=True)]


def decoded(strategy: str | Strategy = "inplace", **options: object) -> sv.Result:
    """`make_prompts()` through the tiny Llamas, recorded; a process decodes each such run once.

    Do not change a result: other tests read it too.
    """
    run = {"batch_size": 4, "num_draft_tokens": 4, "max_new_tokens": NEW_TOKENS, "record": True}
    return _decoded(strategy, tuple(sorted((run | options).items())))


@functools.cache
def _decoded(strategy: str | Strategy, options: tuple[tuple[str, Any], ...]) -> sv.Result:
    return generate(make_pair("llama"), make_prompts(), strategy=strategy, **dict(options))


def in_turn(*axes: Iterable[Any], every: int) -> list[Any]:
    """All combinations of the axes' values, as parameters of a test.

    The fast tests have every `every`-th of them: each value in turn, whatever the axis. With as
    many as the last axis has, every two values of the other axes meet once there.
    """
    found = []
    for places in itertools.product(*map(enumerate, axes)):
        is_fast = sum(number for number, _ in places) % every == 0
        marks = [] if is_fast else [pytest.mark.slow]
        found.append(pytest.param(*(value for _, value in places), marks=marks))
    return found


def check_refusal(
    call: Callable[[], object], begins: str, *parts: str, error: type[Exception] = ValueError
):
    """`call` fails in specviz itself, with one line: what is wrong, a semicolon, and the remedy."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is error
    assert message.startswith(begins), message
    assert [part for part in parts if part not in message] == [], message
    assert message.partition("; ")[2], message
    assert "\n" not in message
    assert len(message) < 600, message
    raised_in = traceback.extract_tb(caught.value.__traceback__)[-1].filename
    assert Path(raised_in).is_relative_to(Path(sv.__file__).parent), raised_in


def example(name: str) -> Any:
    """The class of this name from docs/extend.md; its example is run."""
    text = (HERE.parent / "docs" / "extend.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (block,) = (block for block in blocks if f"class {name}(" in block)
    names = {"__name__": "example"}
    exec(compile(block, "extend.md", "exec"), names)
    return names[name]


def debug_page(title: str) -> str:
    """Return one section of docs/debug.md."""
    page = (HERE.parent / "docs" / "debug.md").read_text(encoding="utf-8")
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def run_program(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """A program run in tests/, on one thread; what it prints is kept."""
    options = {"cwd": HERE, "env": os.environ | {"OMP_NUM_THREADS": "1"}} | options
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


REQUIRED = "SPECVIZ_REQUIRE_BROWSER"  # set where browser and node have to be there
MISSING = "is missing on this machine"


def skip_without(program: str):
    """Skip a test that needs this program; fail it where it has to be there."""
    skip_or_fail = pytest.fail if os.environ.get(REQUIRED) else pytest.skip
    skip_or_fail(f"{program} {MISSING}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter):
    """Say how many tests lacked a browser or node, and what brings them."""
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", ())]
    lacking = sum(MISSING in str(reason) for reason in skipped)
    if lacking:
        terminalreporter.write_line(
            f"{lacking} tests were left out, since they need Chromium or node. Install both (on "
            "Debian `apt-get install chromium nodejs npm`), then `make js programs` runs them."
        )


def pytest_addoption(parser: pytest.Parser):
    text = "of all slow cases, and those in a browser, run about every N-th (1: all)"
    parser.addoption("--share", type=int, default=1, metavar="N", help=text)


def is_kept(index: int, every: int) -> bool:
    """Whether this case is one of the kept ones, about every `every`-th.

    Multiples of the golden ratio are spread evenly and share no period with any axis, so that
    each value of each axis is met.
    """
    return index * GOLDEN % 1 < 1 / every


def thin_sweeps(items: list[pytest.Item]):
    """Mark as slow what a `sweep` leaves out of the fast tests."""
    cases = Counter[str]()
    for item in items:
        sweep = item.get_closest_marker("sweep")
        if sweep is None or item.get_closest_marker("slow"):
            continue
        test = item.nodeid.partition("[")[0]
        if not is_kept(cases[test], *sweep.args):
            item.add_marker(pytest.mark.slow)
        cases[test] += 1


def beyond(items: list[pytest.Item], share: int) -> list[pytest.Item]:
    """Return the cases that a run with `--share` leaves out."""
    long = [
        item
        for item in items
        if item.get_closest_marker("slow") or item.get_closest_marker("browser")
    ]
    return [item for index, item in enumerate(long) if not is_kept(index, share)]


@pytest.hookimpl(tryfirst=True)  # before `-m` reads the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]):
    """Leave out what takes minutes to hours unless `-m` asks for it, and `gpu` without a GPU."""
    thin_sweeps(items)
    left_out = beyond(items, config.option.share)
    if "soak" not in config.option.markexpr:
        left_out += [item for item in items if item.get_closest_marker("soak")]
    if left_out:
        names = {item.nodeid for item in left_out}
        items[:] = [item for item in items if item.nodeid not in names]
        config.hook.pytest_deselected(items=left_out)
    no_gpu = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(no_gpu)


def pytest_collection_finish():
    """Let no garbage collection look again at what was imported, which stays until the end.

    Without this the benchmark's tests, which collect garbage between cells, take twice as long.
    """
    gc.collect()
    gc.freeze()


# Their tests take long and share nothing. As pieces of one test each they come last, and fill up
# the workers.
SPREAD = tuple(f"tests/test_{name}.py" for name in ("bench", "families", "graphs", "models"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of a file, and all tests in a browser, on one worker.

    The tests of a file share recorded runs, which are then decoded once; those in a browser share
    one JupyterLab. A group by mark (`--dist loadgroup`) would do the same, but pytest-xdist 3.8
    loses groups with pytest 9.2 (its issue 1386).
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            if path.startswith("tests/browser/"):
                return "tests/browser/"
            return nodeid if path in SPREAD else path

    return Scheduling(config, log)


@pytest.fixture
def prompts() -> list[list[int]]:
    return make_prompts()


@pytest.fixture
def pair() -> sv.Pair:
    """A tiny Llama pair in float32."""
    return make_pair("llama")


@pytest.fixture(scope="session")
def embedded() -> sv.Pair:
    return sv.load_pair(device="cpu")
