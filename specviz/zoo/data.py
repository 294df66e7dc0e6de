"""From source files to token windows.

The tokenizer of the embedded pair and the order in which training reads the corpus.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from specviz.zoo.corpus import SourceFile

VOCABULARY = 4096
PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
LIBRARY_REPEATS = 3  # an epoch reads library files three times and test-suite files once: a reader's prompts look like the former


def train_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with pad 0, bos 1 and eos 2.

    `decode(encode(x)[1:]) == x` for any text. It prepends bos.
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
    """The file's blocks as one uint16 array: bos, tokens, eos, block after block."""
    ids = (
        [
            token
            for block in tokenizer(file.blocks)["input_ids"]
            for token in (*block, tokenizer.eos_token_id)
        ]
        if file.blocks
        else []
    )
    return np.array(ids, dtype=np.uint16)


@dataclass
class Windows:
    """Batches of token windows in a seeded order: step s always yields the same batch, so a resumed
    run sees what it would have seen.

    Attributes:
        library, tests: encoded files (uint16 arrays). Library files are repeated LIBRARY_REPEATS
        times an epoch.
        rows, length: one batch is an int64 array (rows, length + 1), inputs and targets overlapping
            by one shift.

    Raises ValueError when the files are too short for one batch.
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
                f"an epoch of {self._tokens} tokens is too short for a batch of {self.rows} windows; "
                f"give files with {needed} tokens or more, library files counted {LIBRARY_REPEATS} times"
            )

    @property
    def _tokens(self) -> int:
        return LIBRARY_REPEATS * sum(map(len, self.library)) + sum(map(len, self.tests))

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches, whatever offset the epoch's first window has."""
        return (self._tokens // (self.length + 1) - 1) // self.rows

    def batch(self, step: int) -> np.ndarray:
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._shuffled(epoch))
        return self._epoch[1][index * self.rows : (index + 1) * self.rows].astype(np.int64)

    def _shuffled(self, epoch: int) -> np.ndarray:
        rng = np.random.default_rng([self.seed, epoch])
        files = self.library * LIBRARY_REPEATS + self.tests
        stream = np.concatenate([files[i] for i in rng.permutation(len(files))])
        stream = stream[rng.integers(self.length + 1) :]
        windows = stream[: len(stream) // (self.length + 1) * (self.length + 1)].reshape(
            -1, self.length + 1
        )
        return windows[rng.permutation(len(windows))]


def held_out_windows(encoded: Iterable[np.ndarray], length: int) -> Iterator[np.ndarray]:
    """Consecutive windows (1, <= length + 1) over each file in turn, overlapping by the one token that is context, not target."""
    for tokens in encoded:
        for start in range(0, len(tokens) - 1, length):
            yield tokens[None, start : start + length + 1].astype(np.int64)
