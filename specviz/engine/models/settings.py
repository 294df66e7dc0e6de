"""What a target's generation_config asks of `generate()` that specviz does not do.

Contract: names settings and their values. Not known here: what a run does about them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from transformers import GenerationConfig, PreTrainedModel

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


# What a call of generate() may be given besides, and changes its text.
_PASSED = ("logits_processor", "prefix_allowed_tokens_fn", "stopping_criteria")


def ignored_settings(model: PreTrainedModel) -> dict[str, Any]:
    """Return the settings of the model's generation_config that specviz does not apply."""
    return with_effect(getattr(model, "generation_config", None))


def with_effect(config: GenerationConfig | None) -> dict[str, Any]:
    """Return the settings of a generation config that change the text of greedy decoding."""
    return _with_effect(lambda name: getattr(config, name, None))


def ignored_in_call(model: PreTrainedModel, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a call of the model's generate() applies, and specviz does not.

    Args:
        model: the model.
        given: the call's arguments, which take precedence over its generation_config, and that over
            the model's.
    """
    configs = (given.get("generation_config"), getattr(model, "generation_config", None))

    def value_of(name: str) -> Any:
        if name in given:
            return given[name]
        found = (getattr(config, name, None) for config in configs)
        return next((value for value in found if value is not None), None)

    found = _with_effect(value_of)
    if value_of("do_sample"):
        found["do_sample"] = True
    for name in _PASSED:
        passed = given.get(name)
        if passed is not None and passed != []:
            each = passed if isinstance(passed, list) else [passed]
            found[name] = [getattr(one, "__name__", type(one).__name__) for one in each]
    return found


def _with_effect(value_of: Callable[[str], Any]) -> dict[str, Any]:
    found = {}
    for name, without_effect in _WITHOUT_EFFECT.items():
        value = value_of(name)
        if value is not None and value not in without_effect:
            found[name] = value
    return found


def describe_ignored(model: PreTrainedModel) -> str | None:
    """Return in one sentence which settings specviz does not apply; None if there is none."""
    ignored = ignored_settings(model)
    if not ignored:
        return None
    return (
        f"target.generation_config has {listed(ignored)}: generate() would apply it and specviz "
        "does not, so the text may differ; pass generation_config='target', or set it to None on "
        "pair.target.generation_config"
    )


def listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())
