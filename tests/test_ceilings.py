"""What is measured of a device, the file it is kept in, and the curves that are read from it."""

from pathlib import Path

import ceilings as measuring
import numpy as np
import pandas as pd
import pytest
import torch

from specviz.costs.ceilings import Ceilings
from specviz.util.files import save_measured

SMALL = measuring.Sizes(buffers=(4096, 65536), rows=(1, 16), inner=32)
COUNTS = {"copy": 2, "read": 2, "matmul": 4, "launch": 1}


@pytest.fixture(scope="module")
def measured() -> tuple[pd.DataFrame, dict[str, object]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "CPU", SMALL)
        patch.setattr(measuring, "find_device", lambda _: torch.device("cpu"))
        return measuring.ceilings(seconds=0.001)


def test_everything_is_measured(measured: tuple[pd.DataFrame, dict[str, object]]) -> None:
    table, conditions = measured
    assert table["quantity"].value_counts().to_dict() == COUNTS
    assert (table["seconds"] > 0).all()
    assert (table["seconds_low"] <= table["seconds"]).all()
    assert (table["seconds"] <= table["seconds_high"]).all()
    amounts = table["seconds"] * table["rate"]
    by_kind = {kind: amounts[table["quantity"] == kind].to_numpy() for kind in COUNTS}
    np.testing.assert_allclose(by_kind["copy"], [2 * 4096, 2 * 65536])  # both buffers
    np.testing.assert_allclose(by_kind["read"], [4096, 65536])
    np.testing.assert_allclose(by_kind["matmul"], [2 * 32 * 32, 2 * 16 * 32 * 32] * 2)
    np.testing.assert_allclose(by_kind["launch"], measuring.KERNELS)
    assert table.set_index("quantity").loc["copy", "bytes"].tolist() == [8192, 131072]
    assert (conditions["device"], conditions["threads"]) == ("cpu", torch.get_num_threads())


def test_the_file_is_read_back(
    measured: tuple[pd.DataFrame, dict[str, object]], tmp_path: Path
) -> None:
    table, conditions = measured
    save_measured(table, conditions, tmp_path / "ceilings-cpu.csv")
    read, direct = Ceilings.load(tmp_path / "ceilings-cpu.csv"), Ceilings.from_table(table, "cpu")
    assert read.device == direct.device == "cpu"
    assert read.launch_s == pytest.approx(direct.launch_s, rel=1e-4)
    assert read.replay_s is None
    assert set(read.matmul) == {"float32", "bfloat16"}
    np.testing.assert_allclose(read.bandwidth, direct.bandwidth, rtol=1e-4)
    assert [size for size, _ in read.bandwidth] == [4096, 8192, 65536, 131072]


def test_curves_are_monotone_and_interpolated() -> None:
    """A larger set is never faster, more rows never slower; linear in the logarithm of sizes."""
    bandwidth = ((100, 8.0), (1, 2.0), (10, 9.0))
    made = Ceilings(bandwidth, {"float32": ((4, 3.0), (1, 5.0), (16, 11.0))}, 1e-6)
    assert made.bandwidth == ((1, 9.0), (10, 9.0), (100, 8.0))
    assert made.matmul["float32"] == ((1, 5.0), (4, 5.0), (16, 11.0))
    sizes = np.array([0, 1, 10, 10**1.5, 1e9])
    assert made.bandwidth_at(sizes) == pytest.approx([9, 9, 9, 8.5, 8])
    rows = np.array([0, 2, 8, 16, 999.0])
    assert made.matmul_at("float32", rows) == pytest.approx([5, 5, 8, 11, 11])


TABLE = pd.DataFrame(
    [
        ("copy", None, None, 10, 1.0, 5.0),
        ("read", None, None, 5, 1.0, 4.0),
        ("matmul", "float32", 1, 9, 1.0, 6.0),
        ("launch", None, None, None, 1.0, 2.0),
    ],
    columns=["quantity", "dtype", "rows", "bytes", "seconds", "rate"],
)


def test_graphs_are_read_where_they_were_measured() -> None:
    graphs = pd.concat([TABLE, TABLE.tail(1).assign(quantity="replay", rate=8.0)])
    found = Ceilings.from_table(graphs)
    assert (found.launch_s, found.replay_s) == (0.5, 0.125)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            TABLE.drop(columns="rate"),
            "table must have the column rate, which is missing",
        ),
        (
            TABLE[TABLE["quantity"] != "launch"],
            "table must hold a measurement of launch, which is missing",
        ),
        (TABLE.assign(rate=0.0), "table must hold numbers above 0 as rate"),
        (TABLE.assign(rate="fast"), "table must hold numbers above 0 as rate"),
        (TABLE.assign(bytes=np.nan), "table must hold numbers above 0 as bytes"),
    ],
)
def test_a_table_that_is_none_says_why(table: pd.DataFrame, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ceilings.from_table(table)


def test_other_bad_input(tmp_path: Path) -> None:
    made = Ceilings(((1, 1.0),), {"float32": ((1, 1.0),)}, 0.0)
    said = r"dtype must be a measured one \(float32\), got 'float16'; measure it with .*"
    with pytest.raises(ValueError, match=said):
        made.matmul_at("float16", 1)
    said = r"ceilings must be a file, got .*none\.csv"
    with pytest.raises(FileNotFoundError, match=said):
        Ceilings.load(tmp_path / "none.csv")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match=r"ceilings must be a CSV table, got .*empty\.csv'"):
        Ceilings.load(tmp_path / "empty.csv")


@pytest.mark.gpu
def test_a_gpu_is_measured_by_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launched kernels cost more than replayed ones, and a copy goes at the speed of the GPU."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    mib = 2**20
    sizes = measuring.Sizes(buffers=(64 * mib, 512 * mib), rows=(1, 64, 1024), inner=4096)
    monkeypatch.setattr(measuring, "GPU", sizes)
    table, conditions = measuring.ceilings(seconds=0.05, dtypes=("bfloat16",))
    counts = COUNTS | {"matmul": 3, "replay": 1}
    assert table["quantity"].value_counts().to_dict() == counts
    made = Ceilings.from_table(table, str(conditions["device"]))
    assert made.replay_s is not None
    assert made.replay_s < made.launch_s < 1e-4
    assert 5e10 < made.bandwidth_at(1024 * mib) < 2e13
    assert made.matmul_at("bfloat16", 1024) > 10 * made.matmul_at("bfloat16", 1)
