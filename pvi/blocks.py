"""Clients with linear predictors, in blocks of similar size whose designs are stacked.

A block is one batched computation for everything that runs over rows; what runs over latents is one for all clients.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.engine import Engine
from pvi.families import GaussianFamily, Product
from pvi.families.rows import combined, curvature, predicted
from pvi.objectives import LocalProblem
from pvi.programs.linear_predictor import LinearPredictor
from pvi.quadrature import RowExpectations
from pvi.row_sums import RowSums
from pvi.stack import partition

ROWS = 2**13
"""Rows of a block on the CPU, where larger ones are no faster: clients that are done leave by whole blocks."""


class Block(NamedTuple):
    """m clients, shorter ones padded with rows of zeros.

    ``design [m, n, size]`` and ``squares``, its squares (``None`` where the family has no use for them), ``offset
    [m, n]``, ``present [m, n]`` (``None`` where nothing is padded), the likelihoods' ``widths``, and their ``sums``.
    """

    design: Tensor
    squares: Tensor | None
    offset: Tensor
    present: Tensor | None
    widths: tuple[float, ...]
    sums: RowSums

    @property
    def num_clients(self) -> int:
        """m."""
        return len(self.widths)


def gather(problems: Sequence[LocalProblem], engine: Engine | None) -> tuple[list[int], tuple[Block, ...]]:
    """Clients of one family in blocks, and their positions in the order of the blocks."""
    blocks: list[Block] = []
    order: list[int] = []
    for members in partition(problems) if len(problems) > 1 else [[0]]:
        longest = max(problems[index].batch.num_rows for index in members)
        most = max(1, ROWS // longest) if problems[0].batch.device.type == "cpu" else len(members)
        for start in range(0, len(members), most):
            chosen = members[start : start + most]
            blocks.append(_kept([problems[index] for index in chosen], engine))
            order.extend(chosen)
    return order, tuple(blocks)


def by_block(blocks: Sequence[Block], value: Tensor) -> list[tuple[Block, Tensor]]:
    """The blocks, each with its clients' part of ``value [M, ...]``."""
    return list(zip(blocks, value.split([block.num_clients for block in blocks]), strict=True))


def flags(blocks: Sequence[Block], value: Tensor) -> list[list[bool]]:
    """The truth of ``value [M]`` by block."""
    return [part.tolist() for part in value.split([block.num_clients for block in blocks])]


def _kept(problems: Sequence[LocalProblem], engine: Engine | None) -> Block:
    if engine is None:
        return block(problems, None)
    designs = [_predictor(problem).design for problem in problems]
    key = ("block", *(id(design) for design in designs))
    return engine.kept(key, designs, lambda: block(problems, engine), size)


def block(problems: Sequence[LocalProblem], engine: Engine | None) -> Block:
    """The block of some clients; designs are laid out column by column, for which products with them are fastest."""
    predictors = [_predictor(problem) for problem in problems]
    rows = [len(predictor.offset) for predictor in predictors]
    present = None
    if len(problems) == 1:
        transposed, offset = predictors[0].design.mT.contiguous()[None], predictors[0].offset[None]
    else:
        first, longest = predictors[0], max(rows)
        transposed = first.design.new_zeros(len(rows), first.design.shape[1], longest)
        offset = first.offset.new_zeros(len(rows), longest)
        for index, predictor in enumerate(predictors):
            transposed[index, :, : rows[index]] = predictor.design.mT
            offset[index, : rows[index]] = predictor.offset
        if min(rows) < longest:
            numbers = torch.arange(longest, device=offset.device)
            present = numbers < torch.tensor(rows, device=offset.device)[:, None]
    design, family = transposed.mT, problems[0].family
    squares = None if is_dense(family) else design.square()
    widths = tuple(predictor.width for predictor in predictors)
    return Block(design, squares, offset, present, widths, RowSums(problems, engine))


def size(block: Block) -> int:
    """Bytes of a block's copies."""
    copies = (block.squares, block.design if block.num_clients > 1 else None)
    return sum(value.nbytes for value in copies if value is not None)


def is_dense(family: GaussianFamily) -> bool:
    """Whether the family has every precision matrix."""
    return family.num_natural == family.size + family.size * (family.size + 1) // 2


def variances(block: Block, family: Product, natural: Tensor) -> Tensor:
    """Variances of the rows' predictors, ``natural [m, num_natural] -> [m, n]``."""
    return family.predictor_variance(natural, block.design, block.squares)


def row_expectations(block: Block, family: Product, natural: Tensor) -> RowExpectations:
    """Quadrature over each row's predictor, ``[m, n]``; 0 where there is no row."""
    loc = predicted(block.design, family.location(natural)) + block.offset
    scale = variances(block, family, natural).sqrt()
    found = block.sums.expectations(loc, scale, block.widths)
    if block.present is None:
        return found
    present, zero = block.present, torch.zeros_like(loc)
    return RowExpectations(*[torch.where(present, value, zero) for value in found])


def slopes(block: Block, first: Tensor) -> Tensor:
    """Aᵀ g, ``[m, n] -> [m, size]``."""
    return combined(block.design, first)


def hessians(block: Block, weights: Tensor, chosen: Sequence[int]) -> Tensor:
    """Aᵀ W A of some of the clients, ``[len(chosen), size, size]``."""
    if len(chosen) == block.num_clients:
        return curvature(block.design, weights)
    return torch.cat([curvature(block.design[k : k + 1], weights[k : k + 1]) for k in chosen])


def targets(block: Block, family: Product, weights: Tensor) -> Tensor:
    """η of exp(-½ Σ w_i (A_i·x)²) in the family, ``[m, num_natural]``."""
    zero = weights.new_zeros(len(weights), family.size)
    return family.quadratic(zero, block.design, weights, zero, block.squares)


def _predictor(problem: LocalProblem) -> LinearPredictor:
    assert isinstance(problem.predictor, LinearPredictor)
    return problem.predictor
