"""Get a Prometheus page, from a server or a file, and its samples.

Contract: names, labels and numbers come out. Any other text is refused. Not known here: what
the numbers mean.
"""

from __future__ import annotations

import http.client
import math
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from specviz.servers.protocol import check_url
from specviz.util.errors import ServerError
from specviz.util.files import is_file
from specviz.util.validate import quoted_path, require_path, short, shown_path

MAX_BYTES = 64 * 2**20
# By name, model and position, "" for none; then by all labels, such as those of a rank.
Samples = Mapping[tuple[str, str, str], Mapping[frozenset[tuple[str, str]], float]]


def page_address(url: str) -> str:
    """Return the address of a server's page: /metrics, unless `url` names another one."""
    parts = urlsplit(check_url("source", url))
    path = parts.path.rstrip("/")
    if path in ("", "/v1"):
        path = "/metrics"
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def download(url: str, timeout_s: float) -> str:
    """Return the page at an address. Raises ServerError."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            content = answer.read(MAX_BYTES)
    except urllib.error.HTTPError as error:
        raise ServerError(
            f"{url}: answers with status {error.code}; start the server with its metrics, SGLang "
            "with --enable-metrics and llama.cpp with --metrics"
        ) from None
    except TimeoutError:
        raise _too_slow(url, timeout_s) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise _too_slow(url, timeout_s) from None
        cause = short(str(reason))
        raise ServerError(
            f"{url}: cannot be reached ({cause}); start the server, or correct the address"
        ) from None
    return content.decode("utf-8", "replace")


def _too_slow(url: str, timeout_s: float) -> ServerError:
    return ServerError(f"{url}: no answer within {timeout_s:g} s; raise the timeout")


def saved_page(name: str, path: str | Path) -> str:
    """Return the text of a file. Raises ValueError, FileNotFoundError."""
    place = require_path(name, path)
    if not is_file(place):
        raise FileNotFoundError(
            f"{name}={quoted_path(place)} is not a file; pass a saved page, or an address that "
            "begins with http://"
        )
    try:
        return place.read_bytes()[:MAX_BYTES].decode("utf-8", "replace")
    except OSError as error:
        raise ValueError(
            f"{name}: {shown_path(place)} cannot be read ({error.strerror}); pass a saved page"
        ) from None


def samples_of(where: str, text: str) -> Samples:
    """Return the finite samples of a page.

    Raises:
        ValueError: the text is not a Prometheus page.
        ImportError: `prometheus-client` is not installed.
    """
    if find_spec("prometheus_client") is None:
        raise ImportError(
            "a page needs prometheus-client, which is not installed; "
            'run: pip install "specviz[servers]"'
        )
    parser = import_module("prometheus_client.parser")
    found: dict[tuple[str, str, str], dict[frozenset[tuple[str, str]], float]] = defaultdict(dict)
    try:
        for family in parser.text_string_to_metric_families(text):
            for sample in family.samples:
                labels = sample.labels
                model = labels.get("model_name", labels.get("model", ""))
                key = (sample.name, model, labels.get("position", ""))
                if math.isfinite(float(sample.value)):
                    found[key][frozenset(labels.items())] = float(sample.value)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{where}: is not a Prometheus page ({short(str(error))}), it begins with "
            f"{short(text[:40])}; pass the address of /metrics"
        ) from None
    return found
