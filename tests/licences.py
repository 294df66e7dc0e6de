"""Write build/licences.md, a table of the licences of all dependencies, for a release.

Run as `PYTHONPATH=tests python -m licences`. The licences are read from the installed packages
with importlib.metadata: the requirements in pyproject.toml, extras included, and theirs in turn.
"""

import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "build" / "licences.md"
# Extras that a test machine may lack, with the licence that these projects state. Their own
# requirements are not followed.
STATED = {
    "ray": "Apache-2.0",
}
# Packages whose metadata names no licence: read from the licence text that they ship.
READ = {"kaleido": "MIT", "logistro": "MIT", "axe-playwright-python": "MIT"}
SPELLED = {
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 3-Clause": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "new BSD License": "BSD-3-Clause",
}
# Packages of another platform, or of a build of torch for CUDA.
BY_MACHINE = ("nvidia-", "cuda-", "triton", "colorama", "pywin", "appnope")
HEAD = """# Licences

The dependencies of specviz and of its extras, direct and indirect, with the licence that each
package states. specviz is under the [Apache License 2.0](../LICENSE). `make licences` writes this
page from the installed packages. A build of torch for CUDA brings NVIDIA's libraries along, under
NVIDIA's own terms; they are not in the table.

| package | asked for by | licence |
|---|---|---|
"""


def asked() -> dict[str, str]:
    """Return, for each package that pyproject.toml names, what requires it.

    That is "specviz", or the first of its extras.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = {}
    for group, texts in {
        "specviz": project["dependencies"],
        **project["optional-dependencies"],
    }.items():
        for text in texts:
            found.setdefault(
                canonicalize_name(Requirement(text).name),
                group if group == "specviz" else f"extra {group}",
            )
    return found


def closure() -> dict[str, str]:
    """`asked`, and what is installed because those ask for it."""
    found = asked()
    waiting = [(name, "") for name in found]
    seen = set(waiting)
    while waiting:
        name, extra = waiting.pop()
        for requirement in required(name, extra):
            inner = canonicalize_name(requirement.name)
            found.setdefault(inner, name)
            new = {(inner, ""), *((inner, each) for each in requirement.extras)} - seen
            seen |= new
            waiting += sorted(new)
    return found


def required(name: str, extra: str) -> Iterator[Requirement]:
    """What an installed package asks for on this machine, and is there."""
    package = installed(name)
    for text in (package.requires or []) if package else []:
        requirement = Requirement(text)
        if (
            requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        ) and installed(requirement.name):
            yield requirement


def installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def licence(name: str) -> str:
    """As the package states it: an SPDX expression, else its classifiers, else a short text."""
    package = installed(name)
    if name in STATED or package is None:
        return STATED.get(name, "")
    meta = package.metadata
    classified = [
        line.rpartition(" :: ")[2]
        for line in meta.get_all("Classifier") or []
        if line.startswith("License :: ")
    ]
    text = (meta["License"] or "").strip()
    short = [text] if text and len(text) < 50 and "\n" not in text else []
    stated = (
        [meta["License-Expression"]]
        if meta["License-Expression"]
        else [READ[name]]
        if name in READ
        else classified or short
    )
    return " AND ".join(
        dict.fromkeys(SPELLED.get(each, each) for each in stated if each != "OSI Approved")
    )


def licences() -> dict[str, str]:
    """Return the licence of each package of `closure`, "" where none is stated."""
    names = sorted(closure())
    return {name: licence(name) for name in names if not name.startswith(BY_MACHINE)}


def table() -> str:
    by = closure()
    lines = [f"| {name} | {by[name]} | {text} |" for name, text in licences().items()]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(table(), encoding="utf-8")
