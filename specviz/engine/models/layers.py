"""Where a model keeps its layers."""

from torch import nn
from transformers import PreTrainedModel


def find_layers(model: PreTrainedModel) -> tuple[str, nn.ModuleList] | None:
    """Return the path and the list of the model's layers; None if it is not certain."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    lists = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == count
    ]
    return lists[0] if len(lists) == 1 else None
