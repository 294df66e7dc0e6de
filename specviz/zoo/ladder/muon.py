"""Muon in float32: on a CPU that has no bfloat16 instructions, torch's own takes most of a step.

The formulas and constants are those of `torch.optim.Muon`, which iterates in bfloat16.
"""

from typing import Any

import torch
from torch import Tensor, nn

from specviz.zoo.train import optimisers_for


class Float32Muon(torch.optim.Muon):
    """`torch.optim.Muon` whose Newton-Schulz iteration keeps the dtype of the gradient."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters once. There is no closure to call."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        buffer = state["momentum_buffer"]
        buffer.lerp_(gradient, 1 - group["momentum"])
        direction = gradient.lerp(buffer, group["momentum"])  # Nesterov
        rows, columns = parameter.shape
        rate = group["lr"] * max(1.0, rows / columns) ** 0.5
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        coefficients = group["ns_coefficients"]
        orthogonal = orthogonalise(direction, coefficients, group["ns_steps"], group["eps"])
        parameter.add_(orthogonal, alpha=-rate)


def orthogonalise(
    matrix: Tensor, coefficients: tuple[float, float, float], steps: int, smallest: float
) -> Tensor:
    """Return a matrix with the singular vectors of `matrix` and singular values near 1.

    It is the quintic Newton-Schulz iteration of Muon. `smallest` bounds the norm from below.
    """
    a, b, c = coefficients
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    found = wide / wide.norm().clamp(min=smallest)
    for _ in range(steps):
        gram = found @ found.T
        change = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        found = torch.addmm(found, change, found, beta=a)
    return found if wide is matrix else found.T


def float32_optimisers(model: nn.Module, rates: tuple[float, float]) -> list[torch.optim.Optimizer]:
    """Return what `optimisers_for` returns, with Muon in float32."""
    muon, others = optimisers_for(model, rates)
    return [Float32Muon(muon.param_groups[0]["params"], lr=rates[0]), others]
