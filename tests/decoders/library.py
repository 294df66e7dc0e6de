"""Transformers' own generate(): a batch without speculation, and its ways to speculate row by row.

It is given no EOS but the caller's, and pads with a token that its mask hides.
"""

from typing import Any

from checks.decoders.common import left_padded

from .base import Decoder, Tokens


class Plain(Decoder, name="library.plain"):
    """Right: greedy decoding of a batch with left padding, which ignores the draft."""

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        ids, mask = left_padded(prompts, self.target.device)
        texts = self.target.generate(ids, attention_mask=mask, **self.settings())
        return [self.up_to_eos(text) for text in texts[:, ids.shape[1] :].tolist()]

    def settings(self) -> dict[str, Any]:
        return {
            "do_sample": False,
            "max_new_tokens": self.max_new_tokens,
            "eos_token_id": sorted(self.eos) or None,
            "pad_token_id": 0,
        }

    def up_to_eos(self, tokens: Tokens) -> Tokens:
        for count, token in enumerate(tokens, 1):
            if token in self.eos:
                return tokens[:count]
        return tokens


class PromptLookup(Plain, name="library.prompt_lookup"):
    """Right: prompt lookup, one prompt at a time, which ignores the draft.

    Right with transformers 5.23; 5.17 returns nothing for a prompt that contains EOS.
    """

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        return [text for prompt in prompts for text in super(PromptLookup, self).run([prompt])]

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"prompt_lookup_num_tokens": self.K}


class Assisted(PromptLookup, name="library.assisted"):
    """Right: assisted generation with a draft model, one prompt at a time."""

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        config = self.draft.generation_config
        wanted = {
            "num_assistant_tokens": self.K,
            "num_assistant_tokens_schedule": "constant",
            "assistant_confidence_threshold": 0.0,
        }
        before = {key: getattr(config, key) for key in wanted}
        try:
            config.update(**wanted)
            return super().run(prompts)
        finally:
            config.update(**before)

    def settings(self) -> dict[str, Any]:
        return Plain.settings(self) | {"assistant_model": self.draft}
