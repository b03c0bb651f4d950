"""Quadrature over rows that can be evaluated one by one: each row at its own nodes and at no others."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from pvi.quadrature import RowExpectations, rules

Pairs = Callable[[Tensor, Sequence[Tensor]], tuple[Tensor, Tensor]]
"""(f ``[t]``, data ``[t, ...]`` of as many rows) -> log p(y | f) and its slope in f, each ``[t]``."""


def packed_expectations(
    pairs: Pairs, capacity: int, loc: Tensor, scale: Tensor, own: Tensor, data: Sequence[Tensor]
) -> RowExpectations:
    """:func:`~pvi.quadrature.expectations` of rows with ``data [n, ...]``.

    ``own [n]`` are the rows' :func:`~pvi.quadrature.classes`, their scales :func:`~pvi.quadrature.clamped`; ``pairs``
    takes up to ``capacity`` pairs of a row and a node.
    """
    table, counts = rules(loc.dtype, loc.device), torch.bincount(own).tolist()
    # Rows of one class lie together: a piece of them is a view.
    order = torch.cat([(own == kind).nonzero()[:, 0] for kind, count in enumerate(counts) if count])
    means, scales, *sorted_data = (value.index_select(0, order) for value in (loc, scale, *data))
    sums = loc.new_empty(4, loc.shape[0])
    for pack in _packs(counts, table.lengths, capacity):
        f, sizes = [], []
        for kind, rows in pack:
            nodes = table.nodes[kind, : table.lengths[kind], None]
            f.append(torch.addcmul(means[rows], scales[rows], nodes).flatten())
            sizes.append(f[-1].shape[0])
        values, slopes = pairs(torch.cat(f), [_repeated(value, pack, table.lengths) for value in sorted_data])
        both = zip(pack, values.split(sizes), slopes.split(sizes), strict=True)
        for (kind, rows), value, slope in both:
            length = table.lengths[kind]
            sums[:2, rows] = table.even[kind, :, :length] @ value.view(length, -1)
            sums[2:, rows] = table.odd[kind, :, :length] @ slope.view(length, -1)
    value, stein, first, turned = torch.empty_like(sums).index_copy_(1, order, sums)
    return RowExpectations(value, first, turned / scale, stein)


def _packs(counts: Sequence[int], lengths: Sequence[int], capacity: int) -> Iterator[list[tuple[int, slice]]]:
    """The rows of every class in packs of at most ``capacity`` pairs."""
    pack: list[tuple[int, slice]] = []
    room, start = capacity, 0
    for kind, count in enumerate(counts):
        end = start + count
        while start < end:
            taken = min(room // lengths[kind], end - start)
            if not taken:
                yield pack
                pack, room = [], capacity
                continue
            pack.append((kind, slice(start, start + taken)))
            room -= taken * lengths[kind]
            start += taken
    if pack:
        yield pack


def _repeated(value: Tensor, pack: Sequence[tuple[int, slice]], lengths: Sequence[int]) -> Tensor:
    """A row's data for each of its nodes."""
    parts = [value[rows].expand(lengths[kind], *value[rows].shape).flatten(0, 1) for kind, rows in pack]
    return torch.cat(parts) if len(parts) > 1 else parts[0]
