"""Quadrature over rows that can be evaluated one by one: each row at its own nodes and at no others."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from pvi.quadrature import RowExpectations, Rules, rules

Pairs = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(f ``[t]``, rows ``[t]``) -> log p(y_row | f) and its slope in f, each ``[t]``."""


def packed_expectations(pairs: Pairs, capacity: int, loc: Tensor, scale: Tensor, own: Tensor) -> RowExpectations:
    """:func:`expectations` of rows that can be evaluated one by one: each at its own nodes and at no others.

    ``own [n]`` are the rows' :func:`classes`, their scales :func:`clamped`; ``pairs`` takes up to ``capacity`` pairs.
    """
    table = rules(loc.dtype, loc.device)
    sums = loc.new_empty(4, len(loc))
    for pieces in _packs(own, table, capacity):
        f = torch.cat(
            [
                (loc[rows] + scale[rows] * table.nodes[kind, : table.lengths[kind], None]).flatten()
                for kind, rows in pieces
            ]
        )
        index = torch.cat([rows.repeat(table.lengths[kind]) for kind, rows in pieces])
        values, slopes = pairs(f, index)
        sizes = [table.lengths[kind] * len(rows) for kind, rows in pieces]
        for (kind, rows), value, slope in zip(pieces, values.split(sizes), slopes.split(sizes), strict=True):
            length = table.lengths[kind]
            both = table.even[kind, :, :length] @ value.unflatten(0, (length, -1))
            slant = table.odd[kind, :, :length] @ slope.unflatten(0, (length, -1))
            sums[:, rows] = torch.cat([both, slant])
    return RowExpectations(sums[0], sums[2], sums[3] / scale, sums[1])


def _packs(own: Tensor, table: Rules, capacity: int) -> Iterator[list[tuple[int, Tensor]]]:
    """Rows by class in packs of at most ``capacity`` pairs of rows and nodes."""
    pack: list[tuple[int, Tensor]] = []
    room = capacity
    for kind, count in enumerate(torch.bincount(own).tolist()):
        rows, length = (own == kind).nonzero()[:, 0] if count else own[:0], table.lengths[kind]
        while len(rows):
            taken = room // length
            if not taken:
                yield pack
                pack, room = [], capacity
                continue
            pack.append((kind, rows[:taken]))
            room -= length * len(pack[-1][1])
            rows = rows[taken:]
    if pack:
        yield pack
