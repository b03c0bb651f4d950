"""Ends of supports and of natural-parameter spaces."""

import math

import torch
from torch import Tensor


def first_crossing(room: Tensor, change: Tensor) -> Tensor:
    """The smallest room / -change over the last axis where ``room > 0`` shrinks, infinite where none does."""
    ratio = torch.where(change < 0, room / -change, torch.full_like(room, math.inf))
    return ratio.amin(-1)


def above_zero(x: Tensor) -> Tensor:
    """Draws that round to 0, which an open support excludes, become the smallest positive normal number."""
    return x.clamp(min=torch.finfo(x.dtype).tiny)


def inside_unit(x: Tensor) -> Tensor:
    """Draws that round to 0 or 1 become the numbers next to these inside the open unit interval."""
    return above_zero(x).clamp(max=1 - 0.5 * torch.finfo(x.dtype).eps)
