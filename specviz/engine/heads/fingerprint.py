"""The fingerprint of a target: which model a head was trained on.

It is the same for all dtypes in which one checkpoint is loaded, as long as the dtype keeps the
eight leading bits of each weight: bfloat16 is the coarsest of them, so its bits are hashed. A
float16 load of weights below 6e-5 does not keep them.
"""

import hashlib

import torch
from torch import nn


def fingerprint(model: nn.Module) -> str:
    """Return a SHA-256, in hex, of the names, shapes and values of the model's parameters."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(f"{name} {tuple(parameter.shape)}\n".encode())
        rounded = parameter.detach().to(torch.bfloat16).cpu().contiguous()
        digest.update(rounded.view(torch.int16).numpy().astype("<i2", copy=False).tobytes())
    return digest.hexdigest()
