"""The step-through on a page, as a reader sees it: by roles, names, text and pixels.

Tests never call its scripts.
"""

from playwright.sync_api import Locator, Page, expect

# Options of a profile: the looks in which every view has to be accessible.
LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "forced light": {"color_scheme": "light", "forced_colors": "active"},
    "forced dark": {"color_scheme": "dark", "forced_colors": "active"},
}

DIGEST = """(canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let hash = 17;
  for (const word of new Uint32Array(data.buffer)) hash = (Math.imul(hash, 31) + word) | 0;
  return `${canvas.width}x${canvas.height}:${hash}`;
}"""
COUNT = """(canvas, name) => {
  const probe = document.createElement('canvas').getContext('2d');
  probe.fillStyle = getComputedStyle(canvas.closest('.specviz')).getPropertyValue(name).trim();
  probe.fillRect(0, 0, 1, 1);
  const [wanted] = new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer);
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Uint32Array(data.buffer).reduce((sum, word) => sum + (word === wanted ? 1 : 0), 0);
}"""

FIND = """(canvas, words) => {
  const tip = canvas.closest('.specviz').querySelector('.sv-tip');
  const box = canvas.getBoundingClientRect();
  for (let y = box.top + 3; y < box.bottom; y += 6) {
    for (let x = box.left + 5; x < box.right; x += 10) {
      const moved = new PointerEvent('pointermove', { clientX: x, clientY: y, bubbles: true });
      canvas.dispatchEvent(moved);
      if (!tip.hidden && tip.textContent.includes(words)) return [x, y];
    }
  }
  return null;
}"""


class Stepper:
    def __init__(self, root: Locator) -> None:
        self.root = root
        self.page: Page = root.page

    def wait(self) -> "Stepper":
        expect(self.root).to_have_attribute("data-ready", "")
        return self

    @property
    def step(self) -> int:
        return int(self.root.get_attribute("data-step") or -1)

    @property
    def row(self) -> int:
        return int(self.root.get_attribute("data-row") or -1)

    def is_at(self, step: int, row: int | None = None) -> None:
        expect(self.root).to_have_attribute("data-step", str(step))
        if row is not None:
            expect(self.root).to_have_attribute("data-row", str(row))

    def go(self, step: int, row: int | None = None) -> None:
        """By the slider and the list of rows."""
        self.root.get_by_role("slider", name="step").fill(str(step))
        if row is not None:
            self.root.get_by_role("combobox", name="row").select_option(index=row)
        self.is_at(step, row)

    def press(self, *keys: str) -> None:
        """Press keys one after the other, and wait until what they ask for is painted."""
        self.root.focus()
        for key in keys:
            self.page.keyboard.press(key)
        self.frame()

    def frame(self) -> None:
        """Wait until what was asked for is painted."""
        self.page.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def button(self, name: str) -> Locator:
        return self.root.get_by_role("button", name=name, exact=True)

    def panel(self, name: str, run: int = 0) -> Locator:
        if name == "map":  # one for all runs
            return self.root.locator(".sv-panel.sv-map")
        if name == "stage":  # one for both runs
            return self.root.locator(".sv-panel.sv-stage")
        return self.root.locator(".sv-lens").nth(run).locator(f".sv-panel.sv-{name}")

    def look(self, name: str, run: int = 0) -> None:
        """Pin a panel of the lens, unless it is seen already."""
        if name in ("map", "stage") or self.panel(name, run).is_visible():
            return
        lens = self.root.locator(".sv-lens").nth(run)
        if lens.is_hidden():
            switch = self.root.get_by_role("group", name="run in the lens")
            switch.locator("button").nth(run).click()
        tab = lens.locator(f"[data-lens={name}]")
        if tab.is_visible():
            tab.evaluate("(tab) => tab.click()")  # the pointer stays where it is
            self.frame()

    def canvas(self, name: str, run: int = 0) -> Locator:
        self.look(name, run)
        return self.panel(name, run).locator("canvas").first

    def sentence(self, run: int = 0) -> str:
        return self.root.locator(".sv-words").nth(run).inner_text()

    def digest(self, panel: str = "stage", run: int = 0) -> str:
        """Of all that is drawn in a panel: equal pictures, equal digests."""
        self.frame()
        return str(self.canvas(panel, run).evaluate(DIGEST))

    def count(self, colour: str, panel: str = "stage") -> int:
        """Count a panel's pixels that have exactly the colour of a CSS variable ("orange-soft")."""
        self.frame()
        return int(self.canvas(panel).evaluate(COUNT, f"--sv-{colour}"))

    def table(self, panel: str, run: int = 0) -> list[list[str]]:
        """Return the lines of a panel's table, head first; show the picture again afterwards."""
        self.look(panel, run)
        toggle = self.panel(panel, run).get_by_role("button", name="show as table")
        toggle.click()
        self.frame()
        lines = self.panel(panel, run).locator("table tr")
        cells = lines.evaluate_all(
            "(lines) => lines.map((line) => [...line.cells].map((cell) => cell.textContent))"
        )
        toggle.click()
        expect(self.panel(panel, run).locator("table")).to_be_hidden()
        return cells

    def find(self, words: str, panel: str = "stage") -> tuple[float, float]:
        """Move the pointer to where a panel's tooltip has these words; return page coordinates."""
        canvas = self.canvas(panel)
        canvas.scroll_into_view_if_needed()
        place = canvas.evaluate(FIND, words)
        assert place, f"no place in the panel {panel!r} says {words!r}"
        self.page.mouse.move(*place)
        expect(self.root.locator(".sv-tip")).to_contain_text(words)
        return place[0], place[1]
