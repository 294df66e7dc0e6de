"""Without a browser its tests are skipped, or fail where the environment requires them."""

import pytest

from browser import conftest


@pytest.mark.parametrize("asked", [None, *conftest.REQUIRED])
def test_a_missing_browser(monkeypatch, asked):
    monkeypatch.setattr(conftest, "find_browser", lambda: None)
    for name in conftest.REQUIRED:
        monkeypatch.delenv(name, raising=False)
    if asked:
        monkeypatch.setenv(asked, "1")
    outcome = pytest.fail.Exception if asked else pytest.skip.Exception
    with pytest.raises(outcome, match="install Chromium"):
        conftest.browser_path()
