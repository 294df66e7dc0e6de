"""The picture of a tree, and the tree that a reader draws from recorded drafts."""

import base64
import itertools
import re

import numpy as np
import pytest
from conftest import generate, make_pair
from test_charts import kinds_of, plain, texts_of
from tiny_run import TRACE
from tree_drafters import GUMBEL

import specviz as sv
from specviz.record.trees import ancestors
from specviz.views import charts
from specviz.views.charts import redrawn
from specviz.views.charts.drawing import draw_tree

PARENTS = [-1, -1, 0, 0, 1, 2]
# Three tokens after each token, three deep.
PATHS = [path for depth in (1, 2, 3) for path in itertools.product(range(3), repeat=depth)]


def branch(parents: list[int], column: int) -> set[int]:
    """The columns from this one to the root, by walking."""
    found = {column, 0}
    while column > 0:
        found.add(column)
        column = parents[column - 1] + 1
    return found


@pytest.mark.parametrize("parents", [PARENTS, [], [-1], list(range(-1, 11)), [-1] * 5])
def test_the_mask_is_the_branch_of_each_token(parents):
    found = kinds_of(charts.token_tree(parents, slot=7))
    seen = np.array(found["mask"].z)
    for line in range(len(parents) + 1):
        assert set(seen[line].nonzero()[0].tolist()) == branch(parents, line)
    assert (ancestors(np.array([parents], int).reshape(1, -1))[0] == seen).all()
    assert texts_of(found["slots"]) == [str(7 + line) for line in range(len(parents) + 1)]
    assert texts_of(found["committed head"]) == ["0–6"]


def test_positions_follow_the_depth_and_slots_the_number():
    found = kinds_of(charts.token_tree(PARENTS, position=21, slot=30))
    assert texts_of(found["position column"]) == ["21", "22", "22", "23", "23", "23", "24"]
    assert texts_of(found["slot column"]) == [str(slot) for slot in range(30, 37)]
    follows = ["", "pending", "pending", "d1", "d1", "d2", "d3"]
    assert texts_of(found["follows column"]) == follows
    assert plain(found["title"].text[0]) == "6 drafts on 3 branches"


def test_a_parent_stands_left_of_its_child_and_above_it():
    found = kinds_of(charts.token_tree(PARENTS))
    x = np.array([each for each in found["edges"].x if each is not None]).reshape(-1, 2)
    y = np.array([each for each in found["edges"].y if each is not None]).reshape(-1, 2)
    assert len(x) == len(PARENTS)
    assert (x[:, 0] < x[:, 1]).all()
    assert (y[:, 0] < y[:, 1]).all()


def test_the_accepted_branch_is_marked_without_colour_too():
    found = kinds_of(charts.token_tree(PARENTS, path=[1, 4]))
    assert plain(found["title"].text[0]) == "2 of 6 drafts accepted: the row gains 3 tokens"
    marked = [name for name in texts_of(found["draft column"]) if name.startswith("✓")]
    assert marked == ["✓ d2", "✓ d5"]
    assert found["accepted edges"].line.width > found["edges"].line.width
    assert len(found["accepted"].x) == 2
    nothing = kinds_of(charts.token_tree(PARENTS, path=[]))
    assert "accepted" not in nothing
    assert plain(nothing["title"].text[0]) == "0 of 6 drafts accepted: the row gains 1 token"


def test_without_a_mask_and_at_the_start_of_a_text():
    assert "mask" not in kinds_of(charts.token_tree(PARENTS, mask=False))
    assert "committed" not in kinds_of(charts.token_tree(PARENTS))


def test_tokens_cannot_inject_markup():
    tokens = ["<b>", "$x$", "</span>", "&lt;", "a b", "\n", "%{x}"]
    for part in charts.token_tree(PARENTS, tokens).data:
        for text in getattr(part, "text", None) or ():
            assert not re.search(r"[<>$]|&(?!(amp|lt|gt|#36);)", plain(text)), text


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"parents": [0]}, "parents"),
        ({"parents": [-1, 1]}, "parents"),
        ({"parents": [-2]}, "parents"),
        ({"parents": [-1] * 17}, "parents"),
        ({"tokens": ["a"]}, "tokens"),
        ({"tokens": "abcdefg"}, "tokens"),
        ({"path": [2]}, "path"),
        ({"path": [0, 1]}, "path"),
        ({"path": [6]}, "path"),
        ({"slot": -1}, "slot"),
    ],
)
def test_what_is_no_tree_is_refused(options, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        charts.token_tree(**{"parents": PARENTS, **options})


# ---------------------------------------------------------------- drawing


@pytest.fixture(scope="module")
def recorded() -> sv.Trace:
    return record()


def record(**options: object) -> sv.Trace:
    drafter = sv.drafter("static_tree", paths=PATHS)
    settings = {"num_draft_tokens": len(PATHS), "max_new_tokens": 8, "record": True, **options}
    prompts = [[5, 6, 7], [8, 9]]
    trace = generate(make_pair("llama"), prompts, drafter=drafter, **settings).trace
    assert trace is not None
    return trace


def offered(drawing) -> list[tuple[int, ...]]:
    """The paths of the buttons that are shown, line by line."""
    names = {id(button): path for path, button in drawing.buttons.items()}
    return [names[id(part)] for line in drawing._lines.children for part in line.children[1:]]


def test_what_follows_a_pressed_draft_is_offered(recorded):
    drawing = draw_tree(recorded, round=1, row=1)
    assert drawing.paths == []
    assert offered(drawing) == [(0,), (1,), (2,)]
    drawing.buttons[1,].value = True
    assert offered(drawing) == [(0,), (1,), (2,), (1, 0), (1, 1), (1, 2)]
    drawing.buttons[1, 2].value = True
    drawing.buttons[0,].value = True
    assert drawing.paths == [(0,), (1,), (1, 2)]
    assert drawing.parents == [-1, -1, 1]
    heading = plain(kinds_of(drawing.figure)["title"].text[0])
    assert heading == "3 drafts on 2 branches"
    assert repr(drawing) == "a tree of drafts, by the ranks on their branches: 0, 1, 1-2"


def test_a_draft_is_released_with_all_that_follows_it(recorded):
    drawing = draw_tree(recorded, start=[(0,), (0, 0), (0, 0, 1), (1,)])
    drawing.buttons[0,].value = False
    assert drawing.paths == [(1,)]
    drawing.buttons[0,].value = True
    assert drawing.paths == [(0,), (1,)]


def test_a_full_tree_takes_no_more_until_one_is_released(recorded):
    drawing = draw_tree(recorded, most=2, start=[(0,), (1,)])
    assert "2 of 2" in drawing._count.value
    assert [path for path in offered(drawing) if not drawing.buttons[path].disabled] == [(0,), (1,)]
    drawing.buttons[1,].value = False
    assert not any(button.disabled for button in drawing.buttons.values())


def test_the_lines_before_a_change_stay_and_so_keep_the_focus(recorded):
    drawing = draw_tree(recorded, start=[(0,), (2,), (0, 0)])
    before = drawing._lines.children
    drawing.buttons[1,].value = True
    after = drawing._lines.children
    assert after[0] is before[0]
    assert after[1] is before[1]
    assert len(after) == len(before) + 1


def test_the_tree_is_that_of_the_record(recorded):
    """Positions, slots and tokens of the picture are those that the target read."""
    entry = recorded.index.rows_of(1).start
    drawing = draw_tree(recorded, round=1, start=[(0,), (0, 1)])
    found = kinds_of(drawing.figure)
    rows = recorded.rows
    assert texts_of(found["slot column"])[0] == str(rows["pending"][entry])
    assert texts_of(found["position column"])[0] == str(rows["length"][entry] - 1)
    token = recorded.text(int(rows["drafts"][entry][PATHS.index((0, 1))]))
    assert drawing._drafts.text((0, 1)) == token
    q = np.exp(rows["draft_logprob"][entry][PATHS.index((0, 1))])
    assert drawing.buttons[0, 1].description.endswith(f" {q:.2f}")


@pytest.mark.sweep(2)
@pytest.mark.parametrize("options", [{}, {"sampling": GUMBEL, "seed": 3}])
def test_the_engine_accepts_of_a_drawn_tree_what_the_drawing_says(options):
    """For every row of the first round, and for trees with and without the accepted branch."""
    trace = record(**options)
    seen = set()
    for row, start in itertools.product((0, 1), ([(0,), (0, 1), (1,), (1, 0)], PATHS[:12])):
        drawing = draw_tree(trace, row=row, most=12, start=start)
        drawing.reveal.value = True
        said = plain(kinds_of(drawing.figure)["title"].text[0])
        again = sv.drafter("static_tree", paths=drawing.paths)
        settings = {"num_draft_tokens": len(start), "max_new_tokens": 8, "record": True}
        prompts = [[5, 6, 7], [8, 9]]
        run = generate(make_pair("llama"), prompts, drafter=again, **settings, **options)
        accepted = run.trace.rows["accepted"][row]
        assert said.startswith(f"{accepted} of {len(start)} drafts accepted")
        seen.add(int(accepted))
    assert len(seen) > 1


def test_of_a_run_that_judges_by_q_no_other_tree_is_known():
    trace = record(sampling=sv.SamplingParams(1.0), seed=1)
    with pytest.raises(ValueError, match=r"^trace must be of a run that decoded greedily"):
        draw_tree(trace)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"round": 99}, "round"),
        ({"row": 2}, "row"),
        ({"most": 17}, "most"),
        ({"start": [(3,)]}, "start"),
        ({"start": [(0, 0)]}, "start"),
        ({"start": [()]}, "start"),
        ({"start": [(0,), (1,)], "most": 1}, "start"),
    ],
)
def test_what_was_not_recorded_cannot_be_drawn(recorded, options, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        draw_tree(recorded, **options)


def test_a_chain_can_be_drawn_from_any_record():
    drawing = draw_tree(TRACE, start=[(0,), (0, 0)])
    assert drawing.parents == [-1, 0]


def test_a_saved_notebook_shows_the_tree(recorded, monkeypatch):
    monkeypatch.setattr(redrawn, "to_png", lambda figure: b"png")
    monkeypatch.setattr(redrawn, "picture_wanted", lambda: True)
    data, metadata = draw_tree(recorded, start=[(0,)])._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == b"png"
    words = "a tree of drafts, by the ranks on their branches: 0"
    assert data["text/plain"] == metadata["image/png"]["alt"] == words
