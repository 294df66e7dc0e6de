"""Draw the step-through for the README: the most ragged round of a real run, light and dark.

`make figures` calls it.
"""

import base64
import tempfile
from pathlib import Path

from playwright.sync_api import Page

import specviz as sv
from browser.chromium import open_page, start_browser
from browser.runs import record
from browser.stepper import Stepper
from specviz.views import charts
from specviz.views.stepper.browser import find_browser
from specviz.views.stepper.png import with_palette

OUT = Path(__file__).parents[2] / "figures"
WINDOW = {"width": 1400, "height": 1000}
ROW = 2
STYLE = (
    "body { margin: 0 } "
    ".specviz { border: 0 !important; border-radius: 0 !important; outline: 0 !important }"
)
REDRAW = """async (url) => {
  const image = new Image(), canvas = document.createElement('canvas');
  image.src = url;
  await image.decode();
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext('2d').drawImage(image, 0, 0);
  return canvas.toDataURL('image/png');
}"""


def redrawn(page: Page, png: bytes) -> bytes:
    """Return the same picture from a canvas.

    `with_palette` reads a canvas's row filters, but not those of a screenshot.
    """
    page.goto("about:blank")
    url = page.evaluate(REDRAW, "data:image/png;base64," + base64.b64encode(png).decode())
    return base64.b64decode(url.partition(",")[2])


def main() -> None:
    path = find_browser()
    if path is None:
        raise SystemExit(
            "make figures: no Chromium, Chrome or Edge found; install Chromium or set BROWSER_PATH"
        )
    trace = record("eqspec", prompts=8, tokens=64, batch_size=8)
    ragged = charts.pick_ragged_round(trace)
    widget = sv.step_through(trace, round=ragged, phase="accept", row=ROW)
    with start_browser(path) as browser, tempfile.TemporaryDirectory() as folder:
        page_file = Path(folder) / "run.html"
        widget.export_html(page_file)
        for theme in ("light", "dark"):
            with open_page(browser, viewport=WINDOW, color_scheme=theme) as (page, _):
                page.goto(page_file.as_uri())
                stepper = Stepper(page.locator(".specviz")).wait()
                png = redrawn(page, stepper.root.screenshot(style=STYLE))
            picture = OUT / f"step-through-{theme}.png"
            picture.write_bytes(with_palette(png))
            print(f"{picture}: {picture.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
