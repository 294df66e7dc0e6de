"""The step-through as an output that stays alive without a kernel."""

import html
import re

import pytest
from tiny_run import TRACE

import specviz as sv


def test_the_notebook_keeps_the_exported_page(tmp_path):
    view = sv.step_through(TRACE, round=1)
    view.export_html(tmp_path / "run.html")
    frame = view.embed(height=700)._repr_html_()
    assert 'sandbox="allow-scripts"' in frame
    assert "height: 700px" in frame
    (page,) = re.findall(r'srcdoc="([^"]*)"></iframe>$', frame)
    assert html.unescape(page) == (tmp_path / "run.html").read_text()
    assert repr(view.embed()) == repr(view)


def test_a_page_that_would_bloat_the_notebook_is_refused():
    with pytest.raises(ValueError, match=r"limit_mb=0\.01 is less than the 0\.\d MB of this page"):
        sv.step_through(TRACE).embed(limit_mb=0.01)


@pytest.mark.parametrize(
    ("name", "value"), [("height", 0), ("height", "tall"), ("limit_mb", 0), ("limit_mb", "1 MB")]
)
def test_arguments_are_checked(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        sv.step_through(TRACE).embed(**{name: value})
