"""OpenVINO GenAI on a CPU: continuous batching, plain and with a draft model.

Contract: reads the pair's weights once and keeps its own copies of them; uses nothing of the loop.
OpenVINO is an extra and is imported only when a pair is prepared for it.
"""

import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

from specviz.bench.baselines.base import Baseline, Prompts, Written, cut
from specviz.bench.baselines.openvino_model import save_model, save_tokenizer
from specviz.engine.models.pair import Pair

# One step reads all prompts of a batch, however long they are.
MAX_STEP_TOKENS = 1 << 20
MAX_ROWS = 1 << 12

# Of each target: the pipelines by draft and number of threads.
_Pipelines = dict[tuple[PreTrainedModel | None, int], Any]
_pipelines: WeakKeyDictionary[PreTrainedModel, _Pipelines] = WeakKeyDictionary()


@dataclass(frozen=True)
class OpenVino(Baseline):
    """Continuous batching of OpenVINO GenAI in float32, with as many threads as torch uses."""

    name: ClassVar[str] = "openvino"
    on_torch: ClassVar[bool] = False

    def prepare(self, pair: Pair) -> None:
        """Convert the models and load them. This takes seconds, once for a pair.

        Raises:
            ImportError: OpenVINO is not installed.
            ValueError: the pair is not in float32 on the CPU, or drafts need a tokenizer.
        """
        self._check(pair)
        self._pipeline(pair)

    def decode(
        self, pair: Pair, batch: Prompts, max_new_tokens: int, num_draft_tokens: int
    ) -> Written:
        openvino = import_module("openvino")
        pipeline = self._pipeline(pair)
        config = _config(pair, max_new_tokens)
        if self.drafts:
            config.num_assistant_tokens = num_draft_tokens
        handles = []
        for row, prompt in enumerate(batch):
            ids = openvino.Tensor(torch.tensor([prompt]).numpy())
            handles.append(pipeline.add_request(row, ids, config))
        running = import_module("openvino_genai").GenerationStatus.RUNNING
        forwards = 0
        row_forwards = 0
        while pipeline.has_non_finished_requests():
            row_forwards += [handle.get_status() for handle in handles].count(running)
            pipeline.step()
            forwards += 1
        tokens = []
        for handle in handles:
            (output,) = handle.read_all()
            tokens.append(cut(list(output.generated_ids)[:max_new_tokens], pair.eos_token_ids))
        return Written(tokens, forwards, row_forwards)

    def _pipeline(self, pair: Pair) -> Any:
        draft = pair.draft if self.drafts else None
        threads = torch.get_num_threads()
        made = _pipelines.setdefault(pair.target, {})
        if (draft, threads) not in made:
            made[draft, threads] = _make_pipeline(pair, draft, threads)
        return made[draft, threads]

    def _check(self, pair: Pair) -> None:
        if find_spec("openvino_genai") is None:
            raise ImportError(
                f"{self.name} needs OpenVINO GenAI, which is not installed; "
                'run: pip install "specviz[openvino]"'
            )
        if pair.device.type != "cpu" or pair.target.dtype != torch.float32:
            dtype = str(pair.target.dtype).removeprefix("torch.")
            raise ValueError(
                f"{self.name} decodes in float32 on the CPU, got a pair in {dtype} on "
                f"{pair.device}; load the pair so, or leave {self.name} out"
            )
        if self.drafts and pair.tokenizer is None:
            raise ValueError(
                f"{self.name} needs pair.tokenizer, got None; pass the pair a tokenizer, "
                f"or leave {self.name} out"
            )


@dataclass(frozen=True)
class OpenVinoSpeculative(OpenVino):
    """The same with drafts: K a round by the pair's draft model, verified in a batch."""

    name: ClassVar[str] = "openvino_speculative"
    drafts: ClassVar[bool] = True


def _make_pipeline(pair: Pair, draft: PreTrainedModel | None, threads: int) -> Any:
    # OpenVINO reports each import over the network where this package is installed, and does not
    # where importing it fails.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    genai = import_module("openvino_genai")
    # By default it computes in bfloat16 where the CPU can, and keeps K/V in 8 bits.
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
    }
    with TemporaryDirectory() as folder:
        target_path = Path(folder) / "target"
        _save(pair, pair.target, target_path)
        drafting = {}
        if draft is not None:
            _save(pair, draft, Path(folder) / "draft")
            drafting["draft_model"] = genai.draft_model(Path(folder) / "draft", "CPU", **settings)
        scheduler = genai.SchedulerConfig()
        scheduler.max_num_seqs = MAX_ROWS
        scheduler.max_num_batched_tokens = MAX_STEP_TOKENS
        scheduler.enable_prefix_caching = False  # a second run would not read its prompts
        return genai.ContinuousBatchingPipeline(
            target_path, scheduler, "CPU", properties=settings | drafting
        )


def _save(pair: Pair, model: PreTrainedModel, folder: Path) -> None:
    folder.mkdir()
    save_model(model, pair.vocabulary_size, folder)
    if pair.tokenizer is not None:
        save_tokenizer(pair.tokenizer, folder)


def _config(pair: Pair, max_new_tokens: int) -> Any:
    config = import_module("openvino_genai").GenerationConfig()
    config.do_sample = False
    config.max_new_tokens = max_new_tokens
    eos = pair.eos_token_ids
    if eos:
        config.eos_token_id = eos[0]
        config.stop_token_ids = set(eos)
    else:
        config.ignore_eos = True
    return config
