"""Measure how long a reader waits for a picture. `make paint` runs this file.

It measures in headless Chromium without a GPU, on the exported page, which shows the map of the
run, the batch and, beside it, one lens:
- click to paint: from the time stamp of a real click on "next phase" to the first task after the
  next frame, which shows the panels as they are then. This includes script, the wait for that
  frame, style, layout and paint. It excludes the screen's own delay and any motion that follows.
  Two clicks are a third of a second apart, so that the page can draw the next panels ahead.
- back, click to paint: the same for "previous phase"; it is drawn ahead once the reader goes back.
- click to screen: the same clicks by the browser's Event Timing, to the moment when the frame was
  presented; in steps of 8 ms.
- open in Python: the call `step_through(run)`, which makes the film and packs it.
- open in the browser: from the start of the navigation to the file until all panels are drawn.
- open: both.
- brush, frame to frame: while a range is dragged over the whole map of the run, to and fro with a
  move in every frame, the time from one frame to the next; the browser draws 60 a second at most.
- export_png, first: the first figure of this process, which starts a browser. export_png, next: one
  of those after it.
Runs are generated here, by random models that only have to have the right shape, and kept nowhere.
"""

import copy
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import pandas as pd
import torch
from playwright.sync_api import Browser, Page
from transformers import LlamaConfig, LlamaForCausalLM

import specviz as sv
from browser.chromium import Log, open_page, start_browser
from browser.stepper import Stepper
from specviz.record.trace import Trace
from specviz.util.files import conditions, save_measured
from specviz.views.stepper.browser import find_browser

OUT = Path(__file__).parents[2] / "figures" / "data" / "paint.csv"
WINDOW = {"width": 1400, "height": 1800}
VOCABULARY, CLICKS, MOVES, WARM_UP, OPENINGS = 97, 64, 240, 15, 5
PAUSE_MS = 350  # longer than a motion lasts
WATCH = """
window.waits = [];
window.shown = [];
const { port1, port2 } = new MessageChannel();
let clicked = 0;
port1.onmessage = () => window.waits.push(performance.now() - clicked);
document.addEventListener('click', (event) => {
  clicked = event.timeStamp;
  requestAnimationFrame(() => port2.postMessage(null));
}, { capture: true });
new PerformanceObserver((list) => {
  window.shown.push(...list.getEntriesByName('click').map((each) => each.duration));
}).observe({ type: 'event', durationThreshold: 16 });
const observer = new MutationObserver(() => {
  if (!document.querySelector('.specviz[data-ready]')) return;
  window.opened = performance.now();
  observer.disconnect();
});
observer.observe(document, {
  subtree: true, childList: true, attributes: true, attributeFilter: ['data-ready'],
});
"""


def make_pair() -> sv.Pair:
    """Return small random models; the draft is close enough to the target to match sometimes."""
    torch.manual_seed(1)
    ids = {
        "vocab_size": VOCABULARY,
        "eos_token_id": 5,
        "bos_token_id": 1,
        "pad_token_id": 0,
        "initializer_range": 0.3,
    }
    heads = {
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "num_hidden_layers": 1,
    }
    config = LlamaConfig(
        hidden_size=16, intermediate_size=32, max_position_embeddings=4096, **heads, **ids
    )
    target = LlamaForCausalLM(config)
    draft = copy.deepcopy(target)
    with torch.no_grad():
        for parameter in draft.parameters():
            if parameter.ndim > 1:
                parameter += torch.randn_like(parameter) * parameter.std() * 0.05
    return sv.Pair(target, draft)


def make_run(rows: int, prompt_tokens: int, new_tokens: int) -> Trace:
    """Record EQSPEC with K = 5 and all rows in one batch.

    Prompts have up to `prompt_tokens` tokens. Tokens have texts of up to 7 letters.
    """
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(
        max(prompt_tokens - 24, 2), prompt_tokens + 1, (rows,), generator=generator
    ).tolist()
    prompts = [
        torch.randint(6, VOCABULARY, (length,), generator=generator).tolist() for length in lengths
    ]
    pair = make_pair()
    trace = sv.generate(
        pair,
        prompts,
        strategy="eqspec",
        batch_size=rows,
        max_new_tokens=new_tokens,
        record=True,
        progress=False,
    ).trace
    texts = {str(token): f" {'abcdefg'[: token % 7]}" for token in range(VOCABULARY)}
    return replace(trace, meta=trace.meta | {"token_texts": texts})


def open_file(page: Page, trace: Trace, path: Path) -> tuple[Stepper, float]:
    """The run's page, and the seconds that the call of `step_through` took."""
    began = time.perf_counter()
    widget = sv.step_through(trace)
    seconds = time.perf_counter() - began
    widget.export_html(path)
    page.goto(path.as_uri())
    return Stepper(page.locator(".specviz")).wait(), seconds


def click_to_paint(page: Page, trace: Trace, path: Path) -> dict[str, list[float]]:
    """Return the milliseconds of CLICKS clicks on "next phase", and of as many on the way back.

    A few clicks before them warm up.
    """
    stepper, _ = open_file(page, trace, path)
    stepper.go(0)  # a page opens where the rows first accept unequally
    last, measured = WARM_UP + CLICKS, {}
    for button, before, steps in (
        ("next phase", "", range(1, last + 1)),
        ("previous phase", "back, ", range(last - 1, -1, -1)),
    ):
        stepper.button(button).hover()
        page.evaluate("window.waits.length = window.shown.length = 0")
        for step in steps:
            page.mouse.down()
            page.mouse.up()
            page.wait_for_timeout(PAUSE_MS)
            stepper.is_at(step)
        waits, shown = page.evaluate("[window.waits, window.shown]")
        assert len(waits) == last
        measured |= {
            f"{before}click to paint": waits[WARM_UP:],
            f"{before}click to screen": shown[WARM_UP:],
        }
    return measured


BRUSH = """async (canvas, moves) => {
  const box = canvas.getBoundingClientRect(), frames = [];
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const look = { bubbles: true, pointerId: 1, buttons: 1, clientY: box.top + 60 };
  let before = await frame();
  for (let move = 0; move < moves; move++) {
    const share = 0.5 - 0.42 * Math.cos((move / moves) * 6 * Math.PI);
    canvas.dispatchEvent(
      new PointerEvent('pointermove', { ...look, clientX: box.left + box.width * share }),
    );
    const now = await frame();
    frames.push(now - before);
    before = now;
  }
  return frames;
}"""


def brushing(page: Page, trace: Trace, path: Path) -> dict[str, list[float]]:
    """Return the milliseconds from frame to frame while a range is dragged, after a warm-up."""
    stepper, _ = open_file(page, trace, path)
    canvas = stepper.canvas("map")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 60)
    page.mouse.down()
    frames = canvas.evaluate(BRUSH, WARM_UP + MOVES)
    page.mouse.up()
    assert stepper.panel("map").locator(".sv-totals strong").inner_text().startswith("rounds ")
    return {"brush, frame to frame": frames[WARM_UP:]}


def opening(page: Page, trace: Trace, path: Path) -> dict[str, list[float]]:
    """Milliseconds of OPENINGS openings."""
    measured: dict[str, list[float]] = {"open in Python": [], "open in the browser": [], "open": []}
    for _ in range(OPENINGS):
        _, seconds = open_file(page, trace, path)
        parts = [1000 * seconds, page.evaluate("window.opened")]
        for values, value in zip(measured.values(), (*parts, sum(parts)), strict=True):
            values.append(value)
    return measured


def figures(page: Page, trace: Trace, path: Path) -> dict[str, list[float]]:
    """Return the milliseconds of the first figure, and those of OPENINGS more of other steps."""
    view, took = sv.step_through(trace), []
    for step in range(OPENINGS + 1):
        began = time.perf_counter()
        view.export_png(path.with_suffix(".png"), step)
        took.append(1000 * (time.perf_counter() - began))
    return {"export_png, first": took[:1], "export_png, next": took[1:]}


def measure(browser: Browser) -> tuple[pd.DataFrame, Trace]:
    """The table, and one of the runs."""
    records = []
    with (
        tempfile.TemporaryDirectory() as folder,
        open_page(browser, viewport=WINDOW) as (page, log),
    ):
        page.add_init_script(WATCH)
        for look, rows, prompt, new, goals in CASES:
            trace = make_run(rows, prompt, new)
            for what, values in look(page, trace, Path(folder) / "run.html").items():
                slots = int(trace.rounds["slots"].max())
                numbers = {
                    "median_ms": median(values),
                    "best_ms": min(values),
                    "worst_ms": max(values),
                    "goal_ms": goals.get(what),
                }
                records.append(
                    {"what": what, "B": rows, "T": slots, "times": len(values), **numbers}
                )
        assert log == Log()
    return pd.DataFrame(records), trace


CASES = (
    (click_to_paint, 8, 175, 80, {"click to paint": 16, "back, click to paint": 16}),
    (click_to_paint, 32, 1965, 80, {"click to paint": 33, "back, click to paint": 33}),
    (opening, 64, 48, 128, {"open": 1500}),
    (brushing, 64, 48, 128, {"brush, frame to frame": 17}),
    (figures, 8, 175, 80, {}),
)  # what is done, B, tokens of the longest prompt, new tokens, goals in ms


def main() -> None:
    path = find_browser()
    if path is None:
        raise SystemExit(
            "make paint: no Chromium, Chrome or Edge found; install Chromium or set BROWSER_PATH"
        )
    with start_browser(path) as browser:
        table, trace = measure(browser)
        where = conditions(
            trace.meta,
            browser=f"headless Chromium {browser.version}",
            cores=os.cpu_count(),
            window=WINDOW,
            measured=__doc__,
        )
    save_measured(table, where, OUT)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
