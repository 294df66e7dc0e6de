"""`specviz audit` as a CI calls it, and its page, which no text of a file can break."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from conftest import check_refusal, generate_one_by_one, make_pair, make_prompts

import specviz as sv
from specviz.cli.main import main
from specviz.views.audit_page import MOST_ROWS, audit_page, save_audit
from specviz.views.policy import POLICY

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202e\x00"
WEIGHTS = Path(sv.__file__).parent / "zoo" / "weights"


class Elements(HTMLParser):
    """The names and attributes of all elements of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def write_lines(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The paths of a reference, the same outputs, wrong ones, and cut ones."""
    monkeypatch.chdir(tmp_path)
    prompts = ["def add(a, b):", "class Stack:"]
    pair = sv.load_pair(device="cpu")
    tokens = sv.generate(pair, prompts, max_new_tokens=8, progress=False).tokens
    records = [{"prompt": p, "token_ids": t} for p, t in zip(prompts, tokens, strict=True)]
    wrong = [records[0], {**records[1], "token_ids": [*tokens[1][:3], 1, *tokens[1][4:]]}]
    cut = [records[0], {**records[1], "token_ids": tokens[1][:3], "max_tokens": 3}]
    kinds = {"right": records, "same": records, "wrong": wrong, "cut": cut}
    return {name: write_lines(Path(f"{name}.jsonl"), lines) for name, lines in kinds.items()}


def audited(files: dict[str, str], candidate: str, *more: str) -> int:
    target = ["--target", str(WEIGHTS / "target"), "--device", "cpu"]
    sides = ["--reference", files["right"], "--candidate", files[candidate]]
    return main(["audit", *sides, *target, *more])


def test_right_outputs_pass(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert audited(files, "same") == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "right: all 2 texts are equal"
    assert said.endswith("written to same.html\n")
    assert "right: all 2 texts are equal" in Path("same.html").read_text(encoding="utf-8")
    assert audited(files, "cut", "--report", "deep/page.html") == 0
    assert capsys.readouterr().out.startswith("right: 1 of 2 texts are equal; 1 end earlier\n")
    assert Path("deep/page.html").exists()


def test_an_unexplained_divergence_fails(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert audited(files, "wrong", "--control", files["same"]) == 1
    said = capsys.readouterr()
    verdict = said.out.splitlines()[0]
    begins = "1 unexplained divergence in 2 texts, the first in prompt 1 at token 3, with a gap of"
    assert verdict.startswith(begins)
    assert f"specviz audit: {verdict}\n" in said.err
    page = Path("wrong.html").read_text(encoding="utf-8")
    elements = Elements(page)
    assert verdict in elements.text
    assert {"svg", "table"} <= elements.names
    assert "McNemar" in elements.text
    assert re.search(r"unexplained</td><td>1</td><td>2</td><td>50.0%</td><td>9.5% – 90.5%", page)


def test_a_divergence_that_nothing_judges_fails(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    sides = ["--reference", files["right"], "--candidate", files["wrong"]]
    assert main(["audit", *sides]) == 1
    assert capsys.readouterr().out.startswith("not judged: it is not known whether rounding")


def test_prompts_from_a_file(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    lines = Path("right.jsonl").read_text(encoding="utf-8").splitlines()
    bare = [{"token_ids": json.loads(line)["token_ids"]} for line in lines]
    reference = write_lines(Path("bare.jsonl"), bare)
    target = ["--target", str(WEIGHTS / "target"), "--device", "cpu"]
    sides = ["--reference", reference, "--candidate", reference]
    assert main(["audit", *sides, *target]) == 2
    assert "line 1 of bare.jsonl has no prompt" in capsys.readouterr().err
    assert main(["audit", *sides, *target, "--prompts", files["right"]]) == 0


def test_misuse_is_said_in_one_sentence(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.jsonl").write_text('{"token_ids": [1]}\n{"token_ids":\n')
    for more, says in (
        (["--candidate", "missing.jsonl"], "--candidate 'missing.jsonl' is not a file"),
        (["--candidate", "bad.jsonl"], "line 2 of bad.jsonl is not JSON"),
        (["--report", "right.jsonl/page.html"], "cannot be written"),
    ):
        assert audited(files, "same", *more) == 2 - ("written" in says)
        said = capsys.readouterr()
        assert says in said.err.splitlines()[-1]
        assert said.out == ""


def test_a_report_does_not_replace_what_is_audited(tmp_path, capsys):
    sides = {}
    for side in ("reference", "candidate"):
        sides[side] = write_lines(tmp_path / side, [{"prompt": "a", "text": "b"}])
    command = ["audit", "--reference", sides["reference"], "--candidate", sides["candidate"]]
    for side, path in sides.items():
        before = Path(path).read_bytes()
        assert main([*command, "--report", path]) == 2
        assert f"--{side} {path!r} would be replaced" in capsys.readouterr().err
        assert Path(path).read_bytes() == before


def test_texts_cannot_break_the_page(tmp_path: Path) -> None:
    theirs = [{"prompt": HOSTILE, "text": f"a{HOSTILE}"}, {"prompt": "p", "text": "\ud800"}]
    ours = [{"prompt": HOSTILE, "text": f"a{HOSTILE[::-1]}"}, {"prompt": "p", "text": "b"}]
    found = sv.audit(theirs, ours)
    page = save_audit(found, tmp_path / "a" / "page.html").read_text(encoding="utf-8")
    assert f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">' in page
    elements = Elements(page)
    assert not elements.names & {"script", "img", "iframe", "link", "a"}
    assert not {name for name in elements.attributes if name.startswith("on")}
    assert not elements.attributes & {"src", "href"}
    for letter in "\x1b\u202e\x00":
        assert letter not in page
    assert "<script>alert(1)" in elements.text
    named = sv.audit(write_lines(tmp_path / "<img src=x>.jsonl", [{"text": "a"}]), ["b"])
    assert "img" not in Elements(audit_page(named)).names


def test_a_long_table_is_cut() -> None:
    count = MOST_ROWS + 7
    page = audit_page(sv.audit(["a"] * count, ["b"] * count))
    assert "7 more are in the report's frame()" in page
    assert page.count("<tr>") < count + 20


def test_the_picture_marks_every_divergence() -> None:
    prompts = make_prompts()
    right = generate_one_by_one()
    texts = [{"prompt": p, "token_ids": t} for p, t in zip(prompts, right, strict=True)]
    wrong = []
    for prompt, tokens in zip(prompts, right, strict=True):
        wrong.append({"prompt": prompt, "token_ids": [(tokens[0] + 1) % 97, *tokens[1:]]})
    found = sv.audit(texts, wrong, make_pair("llama"))
    assert len(found.unexplained) == len(prompts)
    page = audit_page(found)
    assert len(re.findall(r"<title>prompt \d+: [\d.e+-]+</title>", page)) == len(prompts)
    assert f"noise explains {found.limit:.3g}" in page


def test_only_an_audit_has_a_page() -> None:
    check_refusal(lambda: audit_page(3), "audit must be a Audit")
