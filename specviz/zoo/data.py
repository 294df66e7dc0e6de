"""From source files to token windows: the tokenizer, and the order in which training reads."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from specviz.zoo.corpus import SourceFile

VOCABULARY = 4096
PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
# An epoch reads library files three times and test-suite files once, because prompts in use look
# like library code.
LIBRARY_REPEATS = 3


def train_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer with pad 0, bos 1 and eos 2.

    It prepends bos, and `decode(encode(x)[1:]) == x` for any text.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


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

    Raises:
        ValueError: the files are too short for one batch.
    """

    library: list[np.ndarray]
    tests: list[np.ndarray]
    rows: int
    length: int
    seed: int = 0
    _epoch: tuple[int, np.ndarray] = field(default=(-1, np.empty(0)), repr=False)

    def __post_init__(self) -> None:
        if self.steps_per_epoch < 1:
            needed = (self.rows + 1) * (self.length + 1)
            raise ValueError(
                f"an epoch of {self._tokens} tokens is too short for a batch of {self.rows} "
                f"windows; give files with {needed} tokens or more, library files counted "
                f"{LIBRARY_REPEATS} times"
            )

    @property
    def _tokens(self) -> int:
        return LIBRARY_REPEATS * sum(map(len, self.library)) + sum(map(len, self.tests))

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches that an epoch has with any offset of its first window."""
        return (self._tokens // (self.length + 1) - 1) // self.rows

    def batch(self, step: int) -> np.ndarray:
        """Return the batch of a step, int64 (rows, length + 1)."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._shuffled(epoch))
        return self._epoch[1][index * self.rows : (index + 1) * self.rows].astype(np.int64)

    def _shuffled(self, epoch: int) -> np.ndarray:
        rng = np.random.default_rng([self.seed, epoch])
        files = self.library * LIBRARY_REPEATS + self.tests
        stream = np.concatenate([files[i] for i in rng.permutation(len(files))])
        width = self.length + 1
        stream = stream[rng.integers(width) :]
        whole = len(stream) // width * width
        windows = stream[:whole].reshape(-1, width)
        return windows[rng.permutation(len(windows))]


def held_out_windows(encoded: Iterable[np.ndarray], length: int) -> Iterator[np.ndarray]:
    """Yield consecutive windows, int64 (1, <= length + 1), over each file in turn.

    Windows overlap by one token: the last target of one is the first input of the next.
    """
    for tokens in encoded:
        for start in range(0, len(tokens) - 1, length):
            yield tokens[None, start : start + length + 1].astype(np.int64)
