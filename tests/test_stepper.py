"""The step-through in Python: what it carries, what it refuses, and the files that it writes.

The tests in tests/browser check what it looks like.
"""

import base64
import gzip
import html
import json
import re
import struct
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import traitlets
from conftest import skip_without
from tiny_run import PROMPTS, TRACE, blank, changed

import specviz as sv
from specviz.record.schema import PHASES
from specviz.record.trace import flatten_requests
from specviz.views.stepper import browser
from specviz.views.stepper import widget as stepper
from specviz.views.stepper.film import film
from specviz.views.stepper.replays import save_replay
from specviz.views.stepper.widget import StepThrough

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC"
)
HOSTILE = (
    "</script><script>alert(1)</script>", "<!--", "-->", "]]>", "&lt;b&gt;",
    "<img src=x onerror=alert(1)>", "\u2028\u2029", "\u202e\u2066abc", "\x00\x07\x1b[31m",
    "👩‍👩‍👧‍👦", "e\u0301\u0302", "\ud800", "x" * 5000, " \t\r\n", "${alert(1)}`'\"", "",
)  # fmt: skip


def disguised() -> sv.Trace:
    """TRACE, with all its names and texts hostile."""
    texts = {str(token): HOSTILE[token % len(HOSTILE)] for token in range(100)}
    names = {"strategy": HOSTILE[0], "target": HOSTILE[5], "device": HOSTILE[2]}
    return replace(TRACE, meta=TRACE.meta | names | {"token_texts": texts})


def named(**texts: str) -> sv.Trace:
    """TRACE with token 10 named t10, and so on; texts: other names, by the usual one."""
    names = {str(token): texts.get(f"t{token}", f"t{token}") for token in range(100)}
    return replace(TRACE, meta=TRACE.meta | {"token_texts": names})


def asked(prompts: list[list[int]]) -> sv.Trace:
    """TRACE, with other prompts of the same lengths, or one more."""
    outputs = [TRACE.output(request) for request in range(TRACE.num_requests)]
    more = len(prompts) - len(outputs)
    budgets = [*TRACE.requests["budget"].tolist(), *[1] * more]
    return replace(TRACE, requests=flatten_requests(prompts, [*outputs, *[[]] * more], budgets))


TABLES = ("rounds", "rows", "feeds", "holes", "moves", "pool")
EMPTY = replace(TRACE, **{table: blank(table, 0) for table in TABLES})


def unpacked(film: bytes) -> dict:
    return json.loads(gzip.decompress(film))


@pytest.fixture(scope="module")
def widget() -> StepThrough:
    return sv.step_through(TRACE, round=0)


@pytest.fixture(scope="module")
def drawing() -> None:
    if not browser.browser_starts():
        skip_without("a browser")


# ---------------------------------------------------------------- what it carries


def test_it_carries_the_film(widget):
    """And the same bytes each time, so that notebooks do not change when nothing has."""
    assert unpacked(widget.film) == film(TRACE)
    assert widget.film == sv.step_through(TRACE).film
    assert widget.other == b""
    assert repr(widget) == "StepThrough(eqspec, 3 rounds, 3 requests)"
    synced = widget.get_state()
    assert (synced["step"], synced["row"], synced["theme"]) == (0, 0, "auto")
    assert {"film", "other", "_css"} <= set(synced)
    assert "main_default={render}" in synced["_esm"]


def test_two_runs_travel_together():
    two = sv.step_through(TRACE, other=changed("rounds", verify_ms=TRACE.rounds["verify_ms"] + 1))
    assert unpacked(two.film) == film(TRACE)
    later = TRACE.rounds["verify_ms"][0] + 1
    assert unpacked(two.other)["rounds"][0]["ms"][2] == pytest.approx(later)
    assert repr(two) == "StepThrough(eqspec, 3 rounds, 3 requests | eqspec, 3 rounds, 3 requests)"


def test_one_prompt_is_written_in_the_singular(embedded):
    run = {"max_new_tokens": 1, "progress": False}
    result = sv.generate(embedded, ["import"], record=True, **run)
    assert repr(result) == "<Result of inplace: 1 prompt, 1 new token, 1 round, recorded>"
    assert repr(result.trace) == "Trace(inplace, 1 request, 1 round)"
    assert repr(sv.step_through(result.trace)) == "StepThrough(inplace, 1 round, 1 request)"
    assert " of 1 prompt exact, " in repr(sv.compare(result, result))


@pytest.mark.parametrize("step", [-1, 15, 999])
def test_a_step_is_one_of_the_run(widget, step):
    words = f"step must be an int from 0 to 14, got {step}"
    with pytest.raises(ValueError, match=words):
        widget.step = step
    with pytest.raises(ValueError, match=words):
        widget.export_png("never.png", step=step)
    assert widget.step == 0


@pytest.mark.parametrize("row", [2, 99])
def test_a_row_is_one_of_the_batch(widget, row):
    words = f"row must be an int from 0 to 1, got {row}; pass a row of the batch"
    with pytest.raises(ValueError, match=words):
        widget.row = row
    with pytest.raises(ValueError, match=words):
        widget.export_png("never.png", row=row)
    assert widget.row == 0


def test_a_row_has_to_be_in_the_round_where_the_view_opens(embedded):
    run = {"max_new_tokens": [1, 12], "record": True, "progress": False}
    trace = sv.generate(embedded, ["import", "class A:"], **run).trace
    last = trace.num_rounds - 1
    assert [trace.rounds["batch"][round] for round in (0, last)] == [2, 1]
    with pytest.raises(ValueError, match=r"^row must be an int from 0 to 0, got 1; "):
        sv.step_through(trace, round=last, row=1)
    view = sv.step_through(trace, row=1)
    view.step = last * len(PHASES)
    assert view.row == 1, "the view keeps it for rounds with more rows"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("trace", None, "record=True"),
        ("trace", "run.safetensors", r"Trace\.load"),
        ("other", 3, "must be a Trace, got int"),
        ("other", asked([[9, *PROMPTS[0][1:]], *PROMPTS[1:]]), "differs from trace in prompt 0"),
        ("other", asked([*PROMPTS, [9]]), "4 prompts and trace 3"),
        ("trace", EMPTY, "no rounds"),
        ("trace", SimpleNamespace(trace=TRACE), r"must be a Trace, got Simple.*; pass its \.trace"),
        ("round", 3, "must be an int from 0 to 2"),
        ("round", -1, "must be an int from 0 to 2"),
        ("round", True, "must be an int from 0 to 2"),
        ("phase", "bonus", "must be one of schedule, draft, verify, accept, synchronise"),
        ("phase", 3, "must be one of schedule"),
        ("row", -1, "must be an int from 0 to 1"),
        ("row", 2, "must be an int from 0 to 1"),
    ],
)
def test_what_cannot_be_shown_is_refused(name, value, words):
    with pytest.raises(ValueError, match=rf"^{name}.*{words}"):
        sv.step_through(**{"trace": TRACE, name: value})


def test_it_opens_at_a_round_a_phase_and_a_row():
    view = sv.step_through(TRACE, round=1, phase="accept", row=1)
    assert (view.step, view.row) == (1 * len(PHASES) + PHASES.index("accept"), 1)


def test_themes_and_rows_are_checked(widget):
    with pytest.raises(traitlets.TraitError):
        widget.theme = "blue"
    with pytest.raises(traitlets.TraitError):
        widget.row = -1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("theme", "auto"),
        ("width", 10),
        ("width", True),
        ("scale", 9),
        ("scale", "2"),
        ("row", -1),
        ("row", 1.5),
        ("step", True),
    ],
)
def test_a_figure_is_checked_before_anything_is_drawn(widget, name, value, tmp_path):
    with pytest.raises(ValueError, match=rf"^{name}\b.*{value!r}"):
        widget.export_png(tmp_path / "figure.png", **{name: value})
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- in a notebook


LIVE = {"text/plain", "application/vnd.jupyter.widget-view+json"}


def test_a_live_page_gets_the_widget_alone(widget, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "notebook.ipynb")
    data, _ = widget._repr_mimebundle_()
    assert set(data) == LIVE
    assert data["text/plain"] == repr(widget)


@pytest.mark.programs
def test_a_notebook_for_keeping_gets_a_picture(widget, monkeypatch, drawing):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    data, metadata = widget._repr_mimebundle_()
    width, _ = png_size(base64.b64decode(data["image/png"]))
    assert width == 1.5 * metadata["image/png"]["width"]
    assert data["text/plain"] == repr(widget)


alts: list[str] = []


class Place:
    """What `display(..., display_id=True)` returns."""

    def __init__(self, outputs: list[dict[str, str]]) -> None:
        self.outputs, self.at = outputs, len(outputs) - 1

    def update(self, bundle: dict[str, str], metadata: dict, **_: object) -> None:
        self.outputs[self.at] = bundle
        alts.append(metadata["image/png"]["alt"])


def test_a_live_page_draws_the_picture_for_later(monkeypatch):
    """The picture is requested once the widget is displayed.

    It is put into an output of its own when it comes, and the widget does not keep it.
    """
    outputs: list[dict[str, str]] = []
    monkeypatch.setenv("JPY_SESSION_NAME", "notebook.ipynb")
    monkeypatch.setattr(
        stepper, "display", lambda bundle, **_: outputs.append(bundle) or Place(outputs)
    )
    shown = sv.step_through(TRACE)
    assert shown._picture_wanted is None
    shown._ipython_display_()
    assert [set(bundle) for bundle in outputs] == [LIVE, {"text/html"}]
    assert (shown._picture_wanted["format"], shown._picture_wanted["theme"]) == ("png", "light")
    shown._picture = base64.b64encode(PIXEL).decode()
    assert set(outputs[1]) == {"image/png", "text/plain"}
    assert png_size(base64.b64decode(outputs[1]["image/png"])) == (1, 1)
    assert shown._picture == ""
    shown.step = 8
    shown._picture = base64.b64encode(PIXEL).decode()
    assert set(outputs[1]) == {"image/png", "text/plain"}, "also of a step that comes later"
    assert alts[-1].startswith(f"Step-through of {shown._names[0]}; round 1, accept")


def test_the_kept_picture_says_in_words_what_it_shows(widget):
    """The style knows it by its width and background, and hides it beside the widget."""
    widget.step = 8
    kept = widget._static_metadata()
    width, alt = kept["image/png"]["width"], kept["image/png"]["alt"]
    words = film(TRACE)["rounds"][1]["stages"][3]["words"]
    assert alt == f"Step-through of {widget._names[0]}; round 1, accept: {words}"
    background = f"img.jp-needs-{kept['needs_background']}-background"
    assert f'{background}[width="{width}"]' in widget._css


def test_outside_a_live_page_it_is_displayed_as_ever(widget, monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    with pytest.raises(NotImplementedError):  # which IPython takes for: ask for the bundle
        widget._ipython_display_()


def test_without_a_browser_there_is_no_picture(widget, monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setattr(stepper, "browser_starts", lambda: False)
    assert "image/png" not in widget._repr_mimebundle_()[0]


# ---------------------------------------------------------------- a page


class Page(HTMLParser):
    """The elements of a page, each with its attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], str]] = []
        self.open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes), ""))
        self.open = True

    def handle_endtag(self, tag: str) -> None:
        self.open = False

    def handle_data(self, data: str) -> None:
        if self.open:
            tag, attributes, text = self.elements[-1]
            self.elements[-1] = tag, attributes, text + data

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for name, attributes, text in self.elements if name == tag]


@pytest.fixture(scope="module", params=["plain", "hostile", "two"])
def page(request, tmp_path_factory) -> tuple[sv.Trace, Page, str]:
    trace = TRACE if request.param == "plain" else disguised()
    path = tmp_path_factory.mktemp("page") / "run.html"
    made = sv.step_through(trace, other=trace if request.param == "two" else None)
    made.step, made.row = 7, 1
    made.export_html(path)
    text = path.read_text(encoding="utf-8")
    return trace, Page(text), text


@pytest.mark.slow
def test_a_page_of_a_large_run_is_below_a_megabyte(tmp_path):
    """32 rows of 128 new tokens, decoded with the embedded pair."""
    run = {"strategy": "eqspec", "batch_size": 32, "max_new_tokens": 128, "record": True}
    result = sv.generate(sv.load_pair(device="cpu"), sv.load_prompts(limit=32), **run)
    path = tmp_path / "run.html"
    sv.step_through(result.trace).export_html(path)
    assert path.stat().st_size < 10**6


def test_a_page_holds_what_the_widget_holds(page):
    trace, parsed, _ = page
    blocks = blocks_of(parsed)
    assert unpacked(blocks["film"]) == film(trace)
    settings = json.loads(blocks["settings"])
    assert settings.pop("_opening")["words"].startswith("Opens at the first violation")
    two = " | " in parsed.of("title")[0][1]
    assert bool(settings.pop("_difference")) == two
    assert settings == {"step": 7, "row": 1, "theme": "auto"}
    assert ("other" in blocks) == two


def blocks_of(page: Page) -> dict[str, bytes]:
    scripts = [each for each in page.of("script") if each[0]["type"] == "application/octet-stream"]
    return {given["id"]: base64.b64decode(text) for given, text in scripts}


def test_nothing_in_it_breaks_out(page):
    """One script and one style, which are the widget's own, whatever the record is made of."""
    trace, parsed, text = page
    assert [tag for tag, _, _ in parsed.elements] == [
        "html", "head", "meta", "meta", "meta", "title", "style", "body", "main", "h1",
        *["script"] * (3 + ("|" in parsed.of("title")[0][1])),
    ]  # fmt: skip
    assert parsed.of("title")[0][1].strip().startswith(f"specviz: {trace.meta['strategy']}, ")
    assert [given["type"] for given, _ in parsed.of("script")].count("module") == 1
    assert not re.search("[\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069\x00-\x08]", text)


def test_it_may_load_nothing_and_holds_no_address_but_the_name_of_svg(page):
    _, parsed, text = page
    (policy,) = (given["content"] for given, _ in parsed.of("meta") if given.get("http-equiv"))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    inline = {"script-src": "'unsafe-inline'", "style-src": "'unsafe-inline'"}
    assert rules == {"default-src": "'none'", "base-uri": "'none'"} | inline
    assert set(re.findall(r"\w+://[^\s\"'`)]+", text)) == {"http://www.w3.org/2000/svg"}


def test_a_file_is_written_whole_or_not_at_all(widget, tmp_path):
    with pytest.raises(
        OSError, match=r"nowhere.run\.html: cannot be written .* folder that exists"
    ):
        widget.export_html(tmp_path / "nowhere" / "run.html")
    widget.export_html(tmp_path / "run.html")
    assert [path.name for path in tmp_path.iterdir()] == ["run.html"]


@pytest.mark.parametrize(
    ("export", "name", "remedy"),
    [
        ("html", "run.png", "would hold HTML, not PNG; end it in .html, or call export_png"),
        ("html", "run.PDF", "would hold HTML, not PDF; end it in .html"),
        ("png", "run.svg", "would hold PNG, not SVG; end it in .png, or call export_svg"),
        ("svg", "run.htm", "would hold SVG, not HTML; end it in .svg, or call export_html"),
    ],
)
def test_a_file_of_another_format_is_refused_before_anything_is_drawn(
    export, name, remedy, widget, monkeypatch, tmp_path
):
    monkeypatch.setattr(StepThrough, "_figure", lambda *_: pytest.fail("drawn"))
    with pytest.raises(ValueError, match=rf"^path=.*{name}' {remedy}$"):
        getattr(widget, f"export_{export}")(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_page_may_have_any_other_name(widget, tmp_path):
    for name in ("run", "run.htm", "run.eqspec"):
        widget.export_html(tmp_path / name)
    assert len(list(tmp_path.iterdir())) == 3


# ---------------------------------------------------------------- from a file


def test_a_saved_record_becomes_a_page(tmp_path):
    record, out = tmp_path / "run.safetensors", tmp_path / "run.HTML"
    TRACE.save(record)
    save_replay(record, out, other=record, step=8)
    blocks = blocks_of(Page(out.read_text()))
    assert json.loads(blocks["settings"])["step"] == 8
    assert blocks["other"] == blocks["film"]


def test_what_cannot_be_replayed_is_refused(tmp_path):
    record = tmp_path / "run.safetensors"
    TRACE.save(record)
    with pytest.raises(
        ValueError, match=r"out must end in one of \.html, \.png, \.svg, got 'r\.pdf"
    ):
        save_replay(record, "r.pdf")
    with pytest.raises(ValueError, match="step must be an int from 0 to 14, got 15"):
        save_replay(record, tmp_path / "run.html", step=15)
    with pytest.raises(sv.TraceError, match=r"none\.safetensors"):
        save_replay(tmp_path / "none.safetensors", tmp_path / "run.html")
    assert [path.name for path in tmp_path.iterdir()] == ["run.safetensors"]


# ---------------------------------------------------------------- figures


def png_size(data: bytes) -> tuple[int, int]:
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", data[16:24])


@pytest.mark.programs
def test_a_figure_as_pixels(widget, drawing, tmp_path):
    """1200 CSS px wide, two pixels for each, unless asked otherwise."""
    small = {"width": 700, "scale": 1}
    figures = {"usual": {}, "light": small, "dark": small | {"theme": "dark"}}
    for name, options in figures.items():
        widget.export_png(tmp_path / name, step=8, row=1, **options)
    pictures = {name: (tmp_path / name).read_bytes() for name in figures}
    assert [png_size(picture)[0] for picture in pictures.values()] == [2400, 700, 700]
    assert pictures["light"] != pictures["dark"]


def svg_texts(path: Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    tags = {each.tag.split("}")[1] for each in root.iter()}
    assert tags <= {"svg", "title", "defs", "pattern", "clipPath", "g", "rect", "path", "text"}
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.programs
def test_a_saved_record_becomes_a_figure_that_says_what_the_step_is(drawing, tmp_path):
    """Heading, sentence, batch with legend, verification and mask of the row, all as text."""
    TRACE.save(tmp_path / "run.safetensors")
    save_replay(tmp_path / "run.safetensors", tmp_path / "figure.svg", step=8)
    texts = svg_texts(tmp_path / "figure.svg")
    words = film(TRACE)["rounds"][1]["stages"][3]["words"]
    assert texts[0] == "eqspec"
    assert "round 1 / 2 · accept" in texts[1]
    assert texts[3:8] == [f"{number} {phase}" for number, phase in enumerate(PHASES, 1)]
    assert words.split()[0] in texts[8]
    for part in ("Batch", "✓ accepted", "Row 0 · verification", "Row 0 · attention mask"):
        assert any(part in text for text in texts), part


@pytest.mark.programs
def test_a_figure_that_does_not_judge_names_no_violation(drawing, tmp_path):
    broken = changed("feeds", position=TRACE.feeds["position"] + 2)
    assert sv.check_invariants(broken)
    for judge in (True, False):
        sv.step_through(broken, judge=judge).export_svg(tmp_path / "figure.svg", step=7)
        texts = " ".join(svg_texts(tmp_path / "figure.svg"))
        judged = ("breaks:", "Invariants", "violation", "position is not the index", "≠")
        judged += ("not their tokens' indices",)
        assert ("not judged" in texts) is not judge
        assert [words in texts for words in judged] == [judge] * len(judged)


@pytest.mark.programs
@pytest.mark.parametrize(("width", "beside"), [(1000, True), (700, False)])
def test_a_figure_of_two_runs_shows_both(drawing, tmp_path, width, beside):
    """One batch; the other panels side by side where there is room."""
    path = tmp_path / "figure.svg"
    sv.step_through(TRACE, other=TRACE).export_svg(path, step=8, width=width)
    assert len(places_of(path, "Both batches, ")) == 1
    above, below = *places_of(path, "A row 0"), *places_of(path, "B row 0")
    assert above[0] == below[0]
    assert above[1] < below[1]
    for panel in ("Row 0 · verification", "Row 0 · attention mask"):
        (_, first), (_, second) = places_of(path, panel)
        assert (first == second) == beside


def places_of(path: Path, words: str) -> list[tuple[float, float]]:
    """Where in a figure there are texts that begin so: px from its left and its top."""
    found = []

    def visit(node, x, y):
        moved = re.match(r"translate\(([-\d.]+)[ ,]+([-\d.]+)\)", node.get("transform", ""))
        x, y = (x + float(moved[1]), y + float(moved[2])) if moved else (x, y)
        if node.tag.endswith("}text") and (node.text or "").startswith(words):
            found.append((x + float(node.get("x")), y + float(node.get("y"))))
        for child in node:
            visit(child, x, y)

    visit(ElementTree.parse(path).getroot(), 0, 0)
    return found


@pytest.mark.programs
def test_a_figure_names_the_rejected_draft_and_those_behind_it(drawing, tmp_path):
    """Row 0 rejects its first draft in round 0, and does not reach the second."""
    path = tmp_path / "figure.svg"
    sv.step_through(named()).export_svg(path, step=3, row=0)
    texts = svg_texts(path)
    assert {("✗", "t14"), ("–", "t15")} <= set(pairwise(texts)), "they hang below the row"
    assert {"✗ rejected", "– not reached"} <= set(texts)
    assert not {"t14", "t15"} & set(read_aloud(path, 0))


@pytest.mark.programs
def test_hostile_text_stays_text_in_a_figure(drawing, tmp_path):
    sv.step_through(disguised()).export_svg(tmp_path / "figure.svg", step=8, row=1)
    texts = svg_texts(tmp_path / "figure.svg")
    assert any("</script>" in text or "</scr" in text for text in texts)
    assert not any(re.search("[\x00-\x1f\u2028\u2029\u202e]", text) for text in texts)


def read_aloud(path: Path, row: int) -> list[str]:
    """What the line "row .. reads" of a figure says, token by token."""
    texts = svg_texts(path)
    first = texts.index(f"row {row} reads") + 1
    return texts[first : texts.index("prompt", first)]  # where the legend begins


@pytest.mark.programs
def test_a_long_token_hides_no_other_and_an_empty_one_has_a_sign(drawing, tmp_path):
    """Row 0 ends with a long token behind an empty and short ones.

    The sign is in the batch, in the line that reads it, and in the verification's cards.
    """
    path = tmp_path / "figure.svg"
    trace = named(t15="", t16="x" * 500)
    sv.step_through(trace).export_svg(path, step=8, row=0, width=900)
    *short, long = read_aloud(path, 0)
    assert short == ["t10", "t11", "t12", "t13", "t19", "∅"]  # and no draft that was not kept
    assert re.fullmatch("x{5,100}…", long)
    assert svg_texts(path).count("∅") >= 4
    assert "" not in svg_texts(path)


def test_without_a_browser_a_figure_says_what_to_do(widget, monkeypatch, tmp_path):
    monkeypatch.setattr(browser, "find_browser", lambda: None)
    words = "needs a browser, and none was found; install Chromium, or set BROWSER_PATH"
    with pytest.raises(OSError, match=words):
        widget.export_svg(tmp_path / "figure.svg")
    assert list(tmp_path.iterdir()) == []


def test_a_named_browser_has_to_be_there(monkeypatch):
    monkeypatch.setenv("BROWSER_PATH", "/nowhere/chromium")
    with pytest.raises(OSError, match=r"BROWSER_PATH must be .*, got '/nowhere/chromium'"):
        browser.find_browser()
    monkeypatch.setenv("BROWSER_PATH", sys.executable)
    assert browser.find_browser() == sys.executable


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", "cannot be run"),
        ("echo nothing", "drew nothing"),
        ("exec sleep 9", r"did not answer within 0\.5 s"),
    ],
)
def test_a_browser_that_fails_is_named(script, words, monkeypatch, tmp_path):
    program = tmp_path / "browser"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("BROWSER_PATH", str(program))
    with pytest.raises(OSError, match=rf"{re.escape(str(program))} {words}"):
        browser.rendered("<p>", "figure", timeout_s=0.5)


@pytest.mark.programs
def test_what_a_page_says_comes_back_as_it_was(drawing):
    said = "a < b && c > d"
    page = f'<!DOCTYPE html><meta charset="utf-8"><pre id="here">{html.escape(said)}</pre>'
    assert browser.rendered(page, "here") == said
