"""Prometheus pages: what is read from those of vLLM, SGLang and llama.cpp, and what is refused."""

import socket
import time
from pathlib import Path

import numpy as np
import pytest
from odd_servers import JSON, serving

from specviz.cli.main import main as cli
from specviz.costs.breakeven import best_num_draft_tokens
from specviz.costs.ceilings import CPU_TABLE, Ceilings
from specviz.costs.roofline import Roofline
from specviz.costs.shapes import named_pair
from specviz.servers import ServerError, read_page

DATA = Path(__file__).parent / "data" / "servers"
VLLM = DATA / "vllm.prom"
SERVED = "meta-llama/Llama-3.1-8B-Instruct"


def test_vllms_engines_are_added_up():
    (found,) = read_page(str(VLLM))
    assert (found.engine, found.model) == ("vllm", SERVED)
    assert (found.rounds, found.drafted_tokens, found.accepted_tokens) == (1000, 3000, 1700)
    assert found.num_draft_tokens == 3
    assert found.mean_acceptance_length == pytest.approx(2.7)
    assert found.draft_acceptance_rate == pytest.approx(17 / 30)
    positions = found.positions()
    np.testing.assert_allclose(positions["acceptance"], [0.8, 0.56, 0.34])
    np.testing.assert_allclose(positions["conditional_acceptance"], [0.8, 0.7, 0.34 / 0.56])
    assert found.draft_share == 1


def test_only_what_came_after_an_earlier_page_counts(tmp_path):
    earlier = tmp_path / "earlier.prom"
    lines = VLLM.read_text().splitlines()
    halved = []
    for line in lines:
        name, _, value = line.rpartition(" ")
        counts = "_total{" in line and 'engine="1"' in line
        halved.append(f"{name} {float(value) / 2}" if counts else line)
    earlier.write_text("\n".join(halved) + "\n")
    (found,) = read_page(str(VLLM), since=earlier)
    assert found.rounds == 200
    assert found.accepted_by_position.tolist() == [160, 120, 70]
    with pytest.raises(ValueError, match=r"since counts more .* started again in between"):
        read_page(str(earlier), since=VLLM)
    with pytest.raises(ValueError, match="no round of speculative decoding"):
        read_page(str(VLLM), since=VLLM)


def test_sglangs_gauges_are_averaged_and_give_no_positions():
    (found,) = read_page(str(DATA / "sglang.prom"))
    assert (found.engine, found.model) == ("sglang", "zai-org/GLM-4.7")
    assert found.mean_acceptance_length == pytest.approx(3.0)
    assert found.draft_acceptance_rate == pytest.approx(0.6)
    assert found.num_draft_tokens == 4
    assert found.rates is None
    assert found.positions().empty
    # A constant rate with the same mean length.
    assert 1 + found.likely_rates.sum() == pytest.approx(3.0)
    ratios = found.likely_rates[1:] / found.likely_rates[:-1]
    np.testing.assert_allclose(ratios, found.likely_rates[0])
    assert "no acceptance by position" in " ".join(found.unanswered())


@pytest.mark.parametrize(
    ("file", "values", "lengths"),
    [
        ("vllm.prom", ["2.70", "56.7%", "0.800, 0.560, 0.340"], [2.7, 2.7, 2.7]),
        ("llamacpp.prom", ["2.50", "0.55556", "0.800, 0.500, 0.200"], [2.5, 2.5, 2.5]),
        ("sglang.prom", ["3.00", "0.60"], [3.0, np.nan]),
    ],
)
def test_an_engines_own_names_are_shown_as_it_shows_them(file, values, lengths):
    """The rates of the first two differ by a bonus, and by the drafts of a round, not in length."""
    (found,) = read_page(str(DATA / file))
    table = found.definitions()
    assert table["value"].tolist() == values
    np.testing.assert_allclose(table["mean_acceptance_length"], lengths)
    assert table["name"].is_unique
    for length_or_rate, bonus in zip(
        table["definition"][:2], ("included", "no bonus"), strict=True
    ):
        assert bonus in length_or_rate


def test_a_page_without_positions_or_drafts_has_the_other_definitions(tmp_path):
    line = 'vllm:spec_decode_num_drafts_total{model_name="m"} 5'
    (found,) = read_page(page_of(tmp_path, line))
    table = found.definitions()
    assert table["value"].tolist() == ["1.00", "nan%"]
    assert table["mean_acceptance_length"].isna().tolist() == [False, True]


def page_of(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "page.prom"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def ranks(name: str, *values: float) -> list[str]:
    return [
        f'sglang:{name}{{dp_rank="{i}",model_name="m"}} {value}' for i, value in enumerate(values)
    ]


def test_ranks_of_sglang_without_a_round_are_left_out(tmp_path):
    lines = [
        *ranks("spec_accept_length", 3.2, 0.0, 1.0, 0.0),
        *ranks("spec_accept_rate", 0.55, 0.0, 0.0, 0.9),
        *ranks("spec_num_steps", 3, 0, 4, 0),
    ]
    (found,) = read_page(page_of(tmp_path, *lines))
    assert found.mean_acceptance_length == pytest.approx((3.2 + 1.0) / 2)
    # A rank with rounds may have no draft accepted; that of an idle one says nothing.
    assert found.draft_acceptance_rate == pytest.approx(0.55 / 2)
    assert found.num_draft_tokens == 4
    (found,) = read_page(page_of(tmp_path, *ranks("spec_accept_length", 0.0, 3.2, float("nan"))))
    assert found.mean_acceptance_length == pytest.approx(3.2)
    assert np.isnan(found.draft_acceptance_rate)


VLLM_V0 = (
    'vllm:spec_decode_draft_acceptance_rate{model_name="m"} 0.7',
    'vllm:spec_decode_efficiency{model_name="m"} 0.6',
    'vllm:spec_decode_num_accepted_tokens_total{model_name="m"} 700',
    'vllm:spec_decode_num_accepted_tokens_created{model_name="m"} 1.7e9',
    'vllm:spec_decode_num_draft_tokens_total{model_name="m"} 1000',
    'vllm:spec_decode_num_emitted_tokens_total{model_name="m"} 900',
)
TENSORRT = (
    'trtllm_spec_decode_num_draft_tokens_total{model_name="m"} 1000',
    'trtllm_spec_decode_acceptance_length{model_name="m"} 2.4',
    'trtllm_speculative_config_info{model_name="m",spec_num_tokens="3"} 1',
)


@pytest.mark.parametrize("lines", [VLLM_V0, TENSORRT], ids=["vllm V0", "tensorrt-llm"])
def test_names_that_are_not_read_are_listed(tmp_path, lines):
    names = sorted(line.partition("{")[0] for line in lines if "_created" not in line)
    with pytest.raises(ValueError, match=f"these names are not read: {', '.join(names)}; pass a "):
        read_page(page_of(tmp_path, *lines, 'vllm:num_requests_running{model_name="m"} 1'))


def test_an_idle_server_has_nothing_to_read(tmp_path):
    idle = [f'vllm:spec_decode_num_drafts_total{{engine="{i}",model_name="m"}} 0' for i in "01"]
    for lines in (idle, ranks("spec_accept_length", 0.0, 0.0)):
        with pytest.raises(ValueError, match="so there is nothing to read; let the server decode"):
            read_page(page_of(tmp_path, *lines))
    busy = idle[1].replace("} 0", "} 5")
    (found,) = read_page(page_of(tmp_path, idle[0], busy))  # an engine that is idle adds nothing
    assert found.rounds == 5
    page = page_of(tmp_path, *ranks("spec_accept_length", 3.0))
    with pytest.raises(ValueError, match="is of the last interval alone; leave since out"):
        read_page(page, since=page)


def test_llamacpp_names_no_model_and_may_draft_less_than_k():
    (found,) = read_page(str(DATA / "llamacpp.prom"))
    assert (found.engine, found.model, found.rounds) == ("llamacpp", "", 100)
    np.testing.assert_allclose(found.rates, [0.8, 0.5, 0.2])
    assert found.draft_share == pytest.approx(0.9)
    assert "Rounds drafted 90.0% of K" in " ".join(found.unanswered())


@pytest.mark.parametrize(
    ("url", "page"), [("", "/metrics"), ("/v1", "/metrics"), ("/own/page", "/own/page")]
)
def test_a_page_is_found_from_the_address_of_a_server(url, page):
    asked = []

    def answer(path, *_):
        asked.append(path)
        return 200, "text/plain; version=0.0.4", VLLM.read_text()

    with serving(answer) as base:
        (found,) = read_page(base.removesuffix("/v1") + url)
    assert found.rounds == 1000
    assert asked == [page]


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".com"])
def test_a_host_that_no_name_can_be_is_refused(host):
    with pytest.raises(ValueError, match=r"source must be an address .*; pass for instance"):
        read_page(f"http://{host}/v1")


def test_a_timeout_that_no_socket_can_wait_for_is_refused():
    with pytest.raises(ValueError, match=r"timeout_s must be at most 1e\+06, got 1e\+300"):
        read_page("http://127.0.0.1:1", timeout_s=1e300)


def slow(*_):
    time.sleep(1)
    return 200, JSON, "{}"


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (
            lambda *_: (200, "text/html", "<html>Welcome</html>"),
            ValueError,
            r"is not a Prometheus page .*'<html>Welcome",
        ),
        (lambda *_: (404, JSON, "{}"), ServerError, "status 404; start the server with its"),
        (slow, ServerError, r"no answer within 0\.2 s; raise the timeout"),
        (lambda *_: (200, "text/plain", "# nothing\n"), ValueError, "no round of speculative"),
    ],
    ids=["a page of a site", "none", "slow", "no counters"],
)
def test_servers_that_give_no_page(answer, error, words):
    with serving(answer) as url, pytest.raises(error, match=words):
        read_page(url, timeout_s=0.2)


def test_a_server_that_is_down():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ServerError, match="cannot be reached"):
            read_page(f"http://127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('position="2"} 200.0', 'position="2"} 900.0'),
        ("num_drafts_total{", "num_rounds_total{"),
        *(('position="1"', f'position="{each}"') for each in ("7", "a", "1.0", "01", "-1", "²")),
        ('position="1"', f'position="{"9" * 5000}"'),
    ],
)
def test_counts_that_cannot_be_are_refused(tmp_path, old, new):
    path = tmp_path / "page"
    path.write_text(VLLM.read_text().replace(old, new, 1 if "{" in old else -1))
    with pytest.raises(ValueError, match=r"source must count positions 0, .*; read the page again"):
        read_page(str(path))


def test_the_command_says_what_the_page_says_and_what_k_the_cost_model_chooses(capsys):
    command = ["metrics", str(VLLM), "--shapes", "qwen3-8b/0.6b", "--batch-sizes", "1", "8"]
    assert cli([*command, "--dtype", "bfloat16", "--ceilings", str(CPU_TABLE)]) == 0
    said = capsys.readouterr().out
    for words in (SERVED, "2.7", "0.567", "0.607", "56.7%", "best_num_draft_tokens"):
        assert words in said
    pair = named_pair("qwen3-8b/0.6b")
    roofline = Roofline(*pair, Ceilings.load(CPU_TABLE), "bfloat16")
    slots = 512 + 64 + 3
    best = best_num_draft_tokens(roofline.phase_seconds, 1, slots, [0.8, 0.56, 0.34])
    line = said.partition("best_speedup\n")[2].splitlines()[0].split()
    assert (int(line[0]), int(line[3])) == (1, best)


def test_a_server_that_is_down_is_a_failure_not_a_misuse(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert cli(["metrics", url]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"specviz metrics: {url}/metrics: cannot be reached")
    assert cli(["metrics", "/nowhere"]) == 2
