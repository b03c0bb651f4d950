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
from pvi.quadrature import RowExpectations, many_expectations
from pvi.solvers.expected import MAX_SCALE
from pvi.solvers.row_sums import RowSums
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


class Clients(NamedTuple):
    """What stays the same over a solve for M clients, in the order of the ``blocks``.

    Of the ``cavity [M, num_natural]`` ``slope [M, size]`` is its gradient in x at 0, ``precision [M, size, size]`` its
    precision.
    """

    family: Product
    blocks: tuple[Block, ...]
    cavity: Tensor
    slope: Tensor
    precision: Tensor


def by_block(clients: Clients, value: Tensor) -> list[tuple[Block, Tensor]]:
    """The blocks, each with its clients' part of ``value [M, ...]``."""
    sizes = [block.num_clients for block in clients.blocks]
    return list(zip(clients.blocks, value.split(sizes), strict=True))


def flags(clients: Clients, value: Tensor) -> list[list[bool]]:
    """The truth of ``value [M]`` by block."""
    found = iter(value.tolist())
    return [[next(found) for _ in range(block.num_clients)] for block in clients.blocks]


def gather(
    problems: Sequence[LocalProblem], cavities: Sequence[Tensor], engine: Engine | None
) -> tuple[list[int], Clients]:
    """Clients with one family, and their positions in the order of the blocks."""
    family, device = problems[0].family, cavities[0].device
    blocks: list[Block] = []
    order: list[int] = []
    for members in partition(problems) if len(problems) > 1 else [[0]]:
        longest = max(problems[index].batch.num_rows for index in members)
        most = max(1, ROWS // longest) if device.type == "cpu" else len(members)
        for start in range(0, len(members), most):
            chosen = members[start : start + most]
            blocks.append(_kept([problems[index] for index in chosen], engine))
            order.extend(chosen)
    cavity = torch.stack([cavities[index] for index in order])
    zero = cavity.new_zeros(len(order), family.size)
    slope = torch.func.grad(lambda x: (cavity * family.statistics(x)).sum())(zero)
    return order, Clients(family, tuple(blocks), cavity, slope, family.precision_matrix(cavity))


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


def narrowed(clients: Clients, natural: Tensor) -> Tensor:
    """Starts ``[M, num_natural]``, or ones with their means under which E[exp f] is finite for every row's f."""
    widest = [variances(block, clients.family, part).amax(-1) for block, part in by_block(clients, natural)]
    return natural * (torch.cat(widest)[:, None].sqrt() / MAX_SCALE).square().clamp(min=1)


def row_expectations(block: Block, family: Product, natural: Tensor) -> RowExpectations:
    """Quadrature over each row's predictor, ``[m, n]``; 0 where there is no row."""
    loc = predicted(block.design, family.location(natural)) + block.offset
    scale = variances(block, family, natural).sqrt()
    found = many_expectations(block.sums, loc, scale, block.widths, block.sums.at_once)
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
