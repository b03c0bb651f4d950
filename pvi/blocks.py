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
from pvi.row_likelihoods import RowLikelihood, many_expectations
from pvi.stack import partition

ROWS = 2**13
"""Rows of a block on the CPU, where larger ones are no faster: clients that are done leave by whole blocks."""


class Block(NamedTuple):
    """m clients, shorter ones padded with rows of zeros.

    ``design [m, n, size]`` and ``squares``, its squares (``None`` where the family has no use for them), ``offset
    [m, n]``, and the ``likelihood`` of their rows.
    """

    design: Tensor
    squares: Tensor | None
    offset: Tensor
    likelihood: RowLikelihood

    @property
    def num_clients(self) -> int:
        """m."""
        return self.offset.shape[0]


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


def split(blocks: Sequence[Block], value: Tensor) -> tuple[Tensor, ...]:
    """``value [M, ...]`` by block."""
    if len(blocks) == 1:
        return (value,)
    return torch.split_with_sizes(value, [block.num_clients for block in blocks])


def flags(blocks: Sequence[Block], value: Tensor) -> list[list[bool]]:
    """The truth of ``value [M]`` by block."""
    return [part.tolist() for part in split(blocks, value)]


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
    if len(problems) == 1:
        transposed, offset = predictors[0].design.mT.contiguous()[None], predictors[0].offset[None]
    else:
        first = predictors[0]
        transposed = first.design.new_zeros(len(rows), first.design.shape[1], max(rows))
        offset = first.offset.new_zeros(len(rows), max(rows))
        for index, predictor in enumerate(predictors):
            transposed[index, :, : rows[index]] = predictor.design.mT
            offset[index, : rows[index]] = predictor.offset
    design, family = transposed.mT, problems[0].family
    squares = None if is_dense(family) else design.square()
    return Block(design, squares, offset, RowLikelihood(problems, engine))


def size(block: Block) -> int:
    """Bytes that a block holds on to: a design is not the client's once its problem is made anew."""
    return sum(value.nbytes for value in (block.design, block.squares) if value is not None)


def is_dense(family: GaussianFamily) -> bool:
    """Whether the family has every precision matrix."""
    return family.num_natural == family.size + family.size * (family.size + 1) // 2


def variances(block: Block, family: Product, natural: Tensor) -> Tensor:
    """Variances of the rows' predictors, ``natural [m, num_natural] -> [m, n]``."""
    return family.predictor_variance(natural, block.design, block.squares)


def row_expectations(blocks: Sequence[Block], family: Product, naturals: Sequence[Tensor]) -> list[RowExpectations]:
    """Quadrature over each row's predictor, ``[m, num_natural] -> [m, n]`` by block; 0 where there is no row."""
    moments = []
    for block, natural in zip(blocks, naturals, strict=True):
        loc = predicted(block.design, family.location(natural)) + block.offset
        moments.append((loc, variances(block, family, natural).sqrt()))
    return many_expectations([block.likelihood for block in blocks], moments)


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
