"""The wheel contains all that the package needs: it runs the demo outside the repository."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_runs_the_demo(tmp_path):
    """specviz comes from the wheel alone, weights and prompts included.

    Its dependencies come from this environment.
    """
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path / "dist"), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(site), str(wheel)],
        check=True,
        capture_output=True,
    )
    script = (
        "import specviz; from specviz.cli.main import main; print(specviz.__file__); "
        "main(['demo', '--limit', '3', '--out', 'run.safetensors'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(site))
    assert "inplace       True" in done.stdout
    assert (tmp_path / "run.safetensors").stat().st_size > 1000
