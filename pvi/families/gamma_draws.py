"""Standard Gamma draws as logarithms, differentiable in the shape and safe under ``torch.func``."""

from typing import Any

import torch
from torch import Tensor


def log_gamma_draws(
    shape: Tensor, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
) -> Tensor:
    """Logarithms of Gamma(shape, 1) draws, ``[...] -> [*sample_shape, ...]``.

    G(α) = G(α + 1) U^(1/α) in law: the logarithm stays finite where a draw of a small shape would round to zero.
    """
    alpha = shape.expand((*sample_shape, *shape.shape))
    drawn = torch._standard_gamma(alpha.detach() + 1, generator=generator)
    uniform = torch.rand(alpha.shape, generator=generator, dtype=alpha.dtype, device=alpha.device)
    return _Draw.apply(alpha + 1, drawn).log() + torch.log1p(-uniform) / alpha


class _Slope(torch.autograd.Function):
    """∂x/∂α of a standard Gamma draw at a fixed value of its distribution function (torch's, elementwise)."""

    @staticmethod
    def forward(alpha: Tensor, drawn: Tensor) -> Tensor:
        return torch._standard_gamma_grad(alpha, drawn)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise NotImplementedError("draws have first derivatives only")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], alpha: Tensor, drawn: Tensor) -> tuple[Tensor, int]:
        front = [
            value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)
            for value, dim in zip((alpha, drawn), in_dims, strict=True)
        ]
        found: Tensor = _Slope.apply(*front)
        return found, 0


class _Draw(torch.autograd.Function):
    """A given standard Gamma draw as a function of its shape."""

    generate_vmap_rule = True

    @staticmethod
    def forward(alpha: Tensor, drawn: Tensor) -> Tensor:
        return drawn.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        return gradient * _Slope.apply(*ctx.saved_tensors), None
