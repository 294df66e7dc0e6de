"""What a target's generation_config asks of `generate()` that specviz does not do.

Contract: names settings and their values. Not known here: what a run does about them.
"""

from typing import Any

from transformers import PreTrainedModel

# Each of these changes the text of generate(do_sample=False), unless it has one of these values.
_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "guidance_scale": (1.0,),
    "num_beams": (1,),
    "penalty_alpha": (0.0,),
    "dola_layers": (),
    "bad_words_ids": (),
    "force_words_ids": (),
    "constraints": (),
    "sequence_bias": (),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "exponential_decay_length_penalty": (),
    "watermarking_config": (),
    "stop_strings": (),
    "max_time": (),
    "token_healing": (False,),
    "cache_implementation": ("dynamic", "static", "offloaded", "offloaded_static", "hybrid"),
}


def ignored_settings(model: PreTrainedModel) -> dict[str, Any]:
    """Return the settings of the model's generation_config that specviz does not apply."""
    config = getattr(model, "generation_config", None)
    found = {}
    for name, without_effect in _WITHOUT_EFFECT.items():
        value = getattr(config, name, None)
        if value is not None and value not in without_effect:
            found[name] = value
    return found


def describe_ignored(model: PreTrainedModel) -> str | None:
    """Return in one sentence which settings specviz does not apply; None if there is none."""
    ignored = ignored_settings(model)
    if not ignored:
        return None
    listed = ", ".join(f"{name}={value!r}" for name, value in ignored.items())
    return (
        f"target.generation_config has {listed}: generate() would apply it and specviz does not, "
        "so the text may differ; set it to None on pair.target.generation_config to compare the two"
    )
