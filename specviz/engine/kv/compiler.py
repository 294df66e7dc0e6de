"""How torch's compiler is set up for models on a CPU.

Not known here: models, caches and calls.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import torch

# Compiled variants of a model's code (one row or many, one token a row or more, ...). Torch's
# default is too low.
VARIANTS = 64
# Their sizes change between rounds. Code for the first sizes alone would be compiled for nothing.
ARGUMENTS = ("input_ids", "position_ids", "attention_mask", "features")
ACCESS = ("rows", "slots", "order", "writing", "window")
VARYING = ",".join(
    [f"L['arguments']['{name}']" for name in ARGUMENTS]
    + [f"L['arguments']['past_key_values'].access.{name}" for name in ACCESS]
)
PACKING = {"freezing": True, "max_autotune_gemm": True, "max_autotune_gemm_backends": "CPP"}
# GCC would inline parts of the compiler's own kernels so early that their sums stay in memory. A
# product of 8 rows then takes twice as long.
LATE_INLINING = "-fno-early-inlining"


def require_compiler() -> None:
    """Raise ValueError if torch finds no C++ compiler."""
    builder: Any = import_module("torch._inductor.cpp_builder")  # not before it is needed
    try:
        builder.get_cpp_compiler()
    except torch._inductor.exc.InvalidCxxCompiler:
        raise ValueError(
            "compile=True needs a C++ compiler on a CPU, and torch found none; install g++ or "
            "clang++, or set the environment variable CXX to one"
        ) from None


def late_inlining() -> str | None:
    """Return the processor to compile for and LATE_INLINING; None where torch takes no flag."""
    builder: Any = import_module("torch._inductor.cpp_builder")  # not before it is needed
    given = getattr(torch._inductor.config.cpp, "march", "")
    is_usual = platform.system() == "Linux" and platform.machine() == "x86_64"
    if not is_usual or given == "" or not builder.is_gcc():
        return None
    return f"{given or 'native'} {LATE_INLINING}"


@contextmanager
def _parsing_once() -> Iterator[None]:
    """Keep the templates of kernels. Torch parses them for each layer, a fifth of its time."""
    kernels: Any = import_module("torch._inductor.codegen.common").KernelTemplate
    parse = getattr(kernels, "_template_from_string", None)
    if parse is None:
        yield
        return
    kernels._template_from_string = staticmethod(cache(parse))
    try:
        yield
    finally:
        kernels._template_from_string = staticmethod(parse)


@contextmanager
def compiler_settings(packs: bool) -> Iterator[None]:
    """Set what the compiler needs. The settings are global, and not only ours."""
    sources: Any = torch.compiler.config
    with_onednn = torch._C._get_mkldnn_enabled()
    with (
        torch._dynamo.config.patch(recompile_limit=VARIANTS),
        sources.patch(dynamic_sources=VARYING),
        torch._inductor.config.patch(freezing=packs),
        _parsing_once(),
    ):
        try:
            # What oneDNN packs cannot be kept on disk: every process would compile it again.
            torch._C._set_mkldnn_enabled(with_onednn and not packs)
            yield
        finally:
            torch._C._set_mkldnn_enabled(with_onednn)
