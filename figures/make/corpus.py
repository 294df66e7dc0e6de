"""What models and heads are trained on: the standard library's sources, and texts of the target.

A *file* is one `.py` of the standard library. A *block* is one top-level piece of a file: the head
with its imports, a function or a class. A block is one document. It begins with `<bos>` and ends
with `<eos>`, so a model trained on blocks learns when a function is finished. Files are split by a
hash of their path, so the same tenth of them is held out on every machine. Licence of the text:
PSF-2.0.
"""

import hashlib
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from measure import Kept
from tokenizers import ByteLevelBPETokenizer, processors
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

import specviz as sv
from specviz.engine.heads.files import fingerprint

SKIPPED_FOLDERS = {
    "site-packages", "dist-packages", "__pycache__", "encodings", "pydoc_data", "lib2to3", "data",
}  # fmt: skip
TEST_FOLDERS = {"test", "tests", "idle_test"}

# A block starts at an unindented decorator, function or class. `split_blocks` joins decorators with
# what they decorate.
_BLOCK_START = re.compile(r"^(?=@|def |async def |class )", re.MULTILINE)
_DEFINITION = re.compile(r"^(async def|def|class) ", re.MULTILINE)

VOCABULARY = 4096
PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
# An epoch reads library files three times and test-suite files once, because prompts in use look
# like library code.
LIBRARY_REPEATS = 3

# Texts that the target writes.
NEW_TOKENS = 128
PROMPT_TOKENS = (8, 256)  # shortest and longest
CHUNK = 512  # documents that are written together
TEMPERATURE = 0.8  # of sampled continuations

# The bundled prompts.
COUNT = 32
SHORTEST = 10  # tokens
LONGEST = 300
LEFT = 40  # tokens of the block, at least, that a prompt leaves for the model to write

# Of the windows that heads are trained on. At inference a head follows texts of the target.
SHARES = {"greedy": 0.5, "sampled": 0.25, "corpus": 0.25}


@dataclass(frozen=True)
class SourceFile:
    """One source file.

    Attributes:
        path: relative to the standard library.
        text: its content.
        held_out: whether training leaves it out.
        is_test: whether it belongs to a test suite.
    """

    path: str
    text: str
    held_out: bool
    is_test: bool

    @property
    def blocks(self) -> list[str]:
        """The file's top-level blocks in order, without surrounding blank lines."""
        return split_blocks(self.text)


def split_blocks(text: str) -> list[str]:
    """Cut Python source at its unindented decorators, functions and classes.

    Decorators stay together, and with what they decorate.
    """
    blocks: list[str] = []
    has_only_decorators = False
    for piece in filter(str.strip, _BLOCK_START.split(text)):
        piece = piece.strip("\n")
        if has_only_decorators:
            blocks[-1] += "\n" + piece
        else:
            blocks.append(piece)
        has_only_decorators = blocks[-1].startswith("@") and not _DEFINITION.search(blocks[-1])
    return blocks


def is_held_out(path: str) -> bool:
    """Return whether the file at this POSIX path is held out: a tenth, the same everywhere."""
    return int(hashlib.sha256(path.encode()).hexdigest(), 16) % 10 == 0


def read_corpus(root: str | Path | None = None) -> list[SourceFile]:
    """Return all usable sources below `root`, sorted by path.

    Character tables, generated help texts and deliberately broken test data are left out, as are
    files that are not UTF-8. root: by default the running interpreter's standard library.
    """
    folder = Path(root or sysconfig.get_path("stdlib"))
    files = []
    for file in sorted(folder.rglob("*.py")):
        path = file.relative_to(folder)
        is_config = any(part.startswith("config-") for part in path.parts)
        if is_config or SKIPPED_FOLDERS & set(path.parts):
            continue
        with suppress(UnicodeDecodeError):
            text = file.read_text(encoding="utf-8")
            if text.strip():
                name = path.as_posix()
                is_test = bool(TEST_FOLDERS & set(path.parts[:-1]))
                files.append(SourceFile(name, text, is_held_out(name), is_test))
    return files


def train_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer with pad 0, bos 1 and eos 2.

    It prepends bos, and `decode(encode(x)[1:]) == x` for any text.
    """
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        texts, vocabulary, min_frequency=0, special_tokens=[PAD, BOS, EOS], show_progress=False
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._tokenizer, pad_token=PAD, bos_token=BOS, eos_token=EOS,
        padding_side="left", clean_up_tokenization_spaces=False,
    )  # fmt: skip


def encode_blocks(tokenizer: PreTrainedTokenizerFast, file: SourceFile) -> np.ndarray:
    """Return the file's blocks as one uint16 array: bos, tokens, eos, block after block."""
    ids: list[int] = []
    if file.blocks:  # the tokenizer takes no empty list
        for block in tokenizer(file.blocks)["input_ids"]:
            ids += [*block, tokenizer.eos_token_id]
    return np.array(ids, dtype=np.uint16)


@dataclass
class Windows:
    """Batches of token windows in a seeded order.

    Step s always gives the same batch, so a resumed run reads what it would have read.

    Attributes:
        library, tests: encoded files (uint16 arrays). Library files are repeated LIBRARY_REPEATS
            times an epoch.
        rows, length: one batch is an int64 array (rows, length + 1). Inputs are its first `length`
            columns, targets its last.
        seed: seed of the order.
    """

    library: list[np.ndarray]
    tests: list[np.ndarray]
    rows: int
    length: int
    seed: int = 0
    _epoch: tuple[int, np.ndarray] = field(default=(-1, np.empty(0)), repr=False)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches that an epoch has with any offset of its first window."""
        tokens = LIBRARY_REPEATS * sum(map(len, self.library)) + sum(map(len, self.tests))
        return (tokens // (self.length + 1) - 1) // self.rows

    def batch(self, step: int) -> np.ndarray:
        """Return the batch of a step, int64 (rows, length + 1)."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._epoch[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch])
            files = self.library * LIBRARY_REPEATS + self.tests
            stream = np.concatenate([files[i] for i in rng.permutation(len(files))])
            width = self.length + 1
            stream = stream[rng.integers(width) :]
            windows = stream[: len(stream) // width * width].reshape(-1, width)
            self._epoch = (epoch, windows[rng.permutation(len(windows))])
        return self._epoch[1][index * self.rows : (index + 1) * self.rows].astype(np.int64)


def held_out_windows(encoded: Iterable[np.ndarray], length: int) -> Iterator[np.ndarray]:
    """Yield consecutive windows, int64 (1, <= length + 1), over each file in turn.

    Windows overlap by one token: the last target of one is the first input of the next.
    """
    for tokens in encoded:
        for start in range(0, len(tokens) - 1, length):
            yield tokens[None, start : start + length + 1].astype(np.int64)


def cut_prompts(
    blocks: Sequence[np.ndarray], count: int, rng: np.random.Generator
) -> list[list[int]]:
    """Return `count` prompts: blocks (bos first) drawn and cut at random, never the whole block."""
    shortest, longest = PROMPT_TOKENS
    usable = [block for block in blocks if len(block) > shortest + 1]
    drawn = [usable[i] for i in rng.choice(len(usable), count)]
    prompts = []
    for block in drawn:
        length = rng.integers(shortest, min(longest, len(block) - 1) + 1)
        prompts.append(block[:length].tolist())
    return prompts


def continuations(
    pair: sv.Pair,
    blocks: Sequence[np.ndarray],
    count: int,
    folder: Path,
    *,
    sampled: bool = False,
) -> list[np.ndarray]:
    """Return `count` documents: prompts with their continuations, greedy or sampled.

    They are made in chunks, which are kept in `folder`, so an interrupted run resumes. Those of
    another target or of other blocks are never taken. Greedy and sampled ones have different
    prompts.
    """
    name = "sampled" if sampled else "continuations"
    read = hashlib.sha256(np.concatenate(blocks).tobytes()).hexdigest()
    about = {"target": fingerprint(pair.target), "blocks": read, "new_tokens": NEW_TOKENS}
    kept = Kept(name, about, folder)

    def written(start: int, size: int) -> list[list[int]]:
        prompts = cut_prompts(blocks, size, np.random.default_rng([int(sampled), start]))
        sampling = sv.SamplingParams(TEMPERATURE) if sampled else None
        run = {"batch_size": 64, "max_new_tokens": NEW_TOKENS, "sampling": sampling, "seed": start}
        result = sv.generate(pair, prompts, strategy="autoregressive", progress=False, **run)
        return [prompt + new for prompt, new in zip(prompts, result.tokens, strict=True)]

    documents = []
    for start in tqdm(range(0, count, CHUNK), desc=name, unit="chunk"):
        size = min(CHUNK, count - start)
        documents += kept.get((start, size), partial(written, start, size))
    return [np.array(document, np.uint16) for document in documents]


def split_documents(tokens: np.ndarray, bos: int) -> list[np.ndarray]:
    """Cut an encoded file at its bos tokens."""
    return [part for part in np.split(tokens, np.flatnonzero(tokens == bos)) if len(part)]


def library_of(pair: sv.Pair) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the library files that are not held out, encoded, and their blocks."""
    assert pair.tokenizer is not None
    library = []
    for file in read_corpus():
        if not file.held_out and not file.is_test:
            library.append(encode_blocks(pair.tokenizer, file))
    blocks: list[np.ndarray] = []
    for tokens in library:
        blocks += split_documents(tokens, pair.tokenizer.bos_token_id)
    return library, blocks


def mix_windows(
    sources: Mapping[str, Sequence[np.ndarray]],
    length: int,
    seed: int = 0,
    shares: Mapping[str, float] = SHARES,
) -> tuple[np.ndarray, np.ndarray]:
    """Return windows (n, length) in a seeded order, and for each the number of its source (n,).

    The documents of a source are shuffled and joined. As many windows are taken as the shares
    allow: the source that is short for its share decides.

    Args:
        sources: for each name in `shares` the encoded documents or files.
        length: tokens in a window.
        seed: of the order.
        shares: of the windows, by source; their sum is 1.
    """
    cut = {}
    for number, name in enumerate(shares):
        order = np.random.default_rng([seed, number]).permutation(len(sources[name]))
        stream = np.concatenate([sources[name][i] for i in order])
        cut[name] = stream[: len(stream) // length * length].reshape(-1, length)
    allowed = min(len(cut[name]) / share for name, share in shares.items())
    counts = {name: int(share * allowed) for name, share in shares.items()}
    windows = np.concatenate([cut[name][:count] for name, count in counts.items()])
    numbers = np.repeat(np.arange(len(shares)), list(counts.values()))
    order = np.random.default_rng(seed).permutation(len(windows))
    return windows[order], numbers[order]


def cut_bundled_prompts(
    tokenizer: PreTrainedTokenizerBase, files: Sequence[SourceFile], seed: int = 0
) -> list[dict[str, str | int]]:
    """Return COUNT prompts from held-out library files, as source, tokens and text.

    Lengths are spread evenly over the logarithm. `tokens` includes bos. A file gives at most two
    prompts, a block at most one.
    """
    blocks = [
        (file.path, block)
        for file in files
        if file.held_out and not file.is_test
        for block in file.blocks
        if block.startswith(("def ", "class "))
    ]
    rng = np.random.default_rng(seed)
    prompts: list[dict[str, str | int]] = []
    used: set[str] = set()
    for length in np.geomspace(SHORTEST, LONGEST, COUNT).round().astype(int)[::-1]:
        for i in rng.permutation(len(blocks)):
            path, block = blocks[i]
            of_this_file = sum(prompt["source"] == path for prompt in prompts)
            text = None
            if of_this_file < 2 and block not in used:
                text = _cut(tokenizer, block, int(length))
            if text is not None:
                used.add(block)
                num_tokens = len(tokenizer(text)["input_ids"])
                prompts.append({"source": path, "tokens": num_tokens, "text": text})
                break
    return prompts[::-1]


def _cut(tokenizer: PreTrainedTokenizerBase, block: str, wanted: int) -> str | None:
    """Return the block's first lines, up to the end of a line nearest to `wanted` tokens.

    None if the nearest one is further than a tenth away.
    """
    ids = tokenizer(block)["input_ids"]
    places = range(SHORTEST, min(LONGEST, len(ids) - LEFT) + 1)
    ends = [i for i in places if tokenizer.decode(ids[i : i + 1]).startswith("\n")]
    nearest = min(ends, key=lambda i: abs(i - wanted), default=None)
    if nearest is None or abs(nearest - wanted) > max(1, wanted // 10):
        return None
    text = tokenizer.decode(ids[1:nearest])
    return text if tokenizer(text)["input_ids"] == ids[:nearest] else None
