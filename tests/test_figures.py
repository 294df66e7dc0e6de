"""figures/: what `make figures` writes, and that nothing lies there which no command makes."""

import re
from pathlib import Path

import pytest
from conftest import make_pair, make_prompts

from specviz.studies import figures
from specviz.views.stepper import browser
from specviz.views.stepper.widget import StepThrough

FOLDER = Path(__file__).parents[1] / "figures"


@pytest.fixture
def tiny_pair(monkeypatch):
    monkeypatch.setattr(figures, "load_pair", lambda: make_pair("llama"))
    monkeypatch.setattr(figures, "load_prompts", lambda limit: make_prompts()[:limit])
    monkeypatch.setattr(figures, "NEW_TOKENS", 6)


@pytest.mark.slow
def test_each_strategy_gets_its_pictures_and_its_page(tiny_pair, monkeypatch, tmp_path):
    asked = []
    for kind in ("png", "svg"):
        monkeypatch.setattr(
            StepThrough,
            f"export_{kind}",
            lambda view, path, **look: (asked.append((view.step % 5, look)), path.touch()),
        )
    monkeypatch.setattr(figures, "check_browser", lambda: None)  # nothing is drawn
    written = figures.make_figures(tmp_path / "new")
    assert sorted(written) == sorted(
        path for path in (tmp_path / "new").rglob("*") if path.is_file()
    )
    assert [look.get("theme") for _, look in asked] == [*figures.THEMES, None] * 5
    assert {step for step, _ in asked} == {0, 2, 3, 4}
    index = (tmp_path / "new" / "replays" / "index.html").read_text()
    links = re.findall(r'href="([^"]+)"', index)
    assert len(links) == len(figures.PICTURES) + 1
    for link in links:
        assert "default-src 'none'" in (tmp_path / "new" / "replays" / link).read_text()


def test_figures_need_a_browser(tiny_pair, monkeypatch, tmp_path):
    monkeypatch.setattr(browser, "find_browser", lambda: None)
    with pytest.raises(OSError, match="BROWSER_PATH"):
        figures.make_figures(tmp_path)


def test_no_figure_is_an_orphan():
    """The README of figures/ names each file, with its command; data files come in pairs."""
    told = (FOLDER / "README.md").read_text()
    files = [
        path.relative_to(FOLDER).as_posix()
        for path in FOLDER.rglob("*")
        if path.is_file() and path.name != "README.md"
    ]
    patterns = {
        re.escape(name).replace(r"\*", "[^/]*")
        for name in re.findall(r"`([^`\s]+\.[a-z*]+)`", told)
    }
    assert [
        name for name in files if not any(re.fullmatch(pattern, name) for pattern in patterns)
    ] == []
    names = [picture.name for picture in figures.PICTURES]
    assert {f"{name}-{theme}.png" for name in names for theme in figures.THEMES} <= set(files)
    assert all(
        Path(name).with_suffix(".json").as_posix() in files
        for name in files
        if name.endswith(".csv")
    )
