"""Several clients' local problems as one: their data stacked, clients first, shorter ones padded.

Nothing is assumed about the program: whether a stack's likelihoods are those of its clients is tried out. Where padding
changes them (a model that counts its rows, say), only clients with equally many rows are stacked.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pvi.buckets import buckets
from pvi.families.kinds import is_gaussian
from pvi.objectives import LocalProblem
from pvi.programs.errors import ProgramError
from pvi.programs.local_reparameterisation import Layers, log_likelihood_local
from pvi.programs.program import log_likelihood
from pvi.programs.weighted import constants_of, refill, signature, tensors_of, weighted_log_likelihood

CHECKED = 5
"""Clients of a stack, at least, whose likelihoods are compared with their own."""
POWERS = (1.0, 1e2, 1e4)
"""Of q, to draw from: the likelihood may overflow at wide draws, which tells nothing."""


class NotVectorisable(Exception):
    """Why clients' problems cannot be computed together, in words for the user."""


class Stack(NamedTuple):
    """``problem`` is that of the client with most rows; every client has its shapes after padding.

    ``tensors`` are the clients' data ``[M, n, ...]`` (``[M]`` where an argument is a single number) and ``weights
    [M, n]`` 1 for a row and 0 for padding, ``None`` where nothing is padded. ``rows [M]`` counts the rows.
    """

    problem: LocalProblem
    tensors: tuple[Tensor, ...]
    weights: Tensor | None
    rows: tuple[int, ...]


def kind(problem: LocalProblem) -> Hashable:
    """What problems must share to be stacked; see :func:`keep` for what must outlive it."""
    sites = problem.program.sites
    every = (*sites.shared, *sites.private, *sites.observed, *sites.enumerated)
    return (
        # A model at other hyperparameters is another object.
        id(problem.program.model),
        problem.extension,
        problem.alpha,
        problem.absorbed is None,
        problem.program.counted,
        tuple((site.name, site.ownership, site.distribution, site.by_row) for site in every),
        tuple(repr(site.support) for site in sites.private),
        signature(problem.batch),
    )


def keep(problem: LocalProblem) -> tuple[Any, ...]:
    """What :func:`kind` tells apart by ids, to be held as long as these are compared."""
    return problem.program.model, constants_of(problem.batch)


def has_fixed_rows(problem: LocalProblem) -> bool:
    """Whether padding would change the program: latents with one value a row, or a plate that draws its own rows."""
    sites = problem.program.sites
    return sites.subsampling is not None or any(site.by_row for site in (*sites.private, *sites.enumerated))


def partition(problems: Sequence[LocalProblem], *, pad: bool = True) -> list[list[int]]:
    """Positions of the problems that are stacked together, by kind and size; without ``pad`` by equal sizes."""
    kinds: dict[Hashable, list[int]] = {}
    for index, problem in enumerate(problems):
        exact = None if pad and not has_fixed_rows(problem) else problem.batch.num_rows
        kinds.setdefault((kind(problem), exact), []).append(index)
    found: list[list[int]] = []
    for members in kinds.values():
        runs = buckets([problems[index].batch.num_rows for index in members])
        found.extend([members[position] for position in run] for run in runs)
    return found


def stack(problems: Sequence[LocalProblem]) -> Stack:
    """The stack of problems of one kind. Padding repeats a client's first row, which lies in every support."""
    rows = tuple(problem.batch.num_rows for problem in problems)
    longest = max(rows)
    largest = problems[rows.index(longest)]

    def padded(value: Tensor) -> Tensor:
        if value.ndim == 0 or len(value) == longest:
            return value
        return torch.cat([value, value[:1].expand(longest - len(value), *value.shape[1:])])

    columns = zip(*[tensors_of(problem.batch) for problem in problems], strict=True)
    # A graph is captured for one layout in memory: views in it may fail on another.
    tensors = tuple(
        (column[0][None] if len(column) == 1 else torch.stack([padded(value) for value in column])).contiguous()
        for column in columns
    )
    weights = None
    if min(rows) < longest:
        device = tensors[0].device
        present = torch.arange(longest, device=device) < torch.tensor(rows, device=device)[:, None]
        weights = present.to(largest.batch.dtype)
    return Stack(largest, tensors, weights, rows)


class Local(NamedTuple):
    """For layers that are drawn row by row: which, and q's mean and standard deviations ``[size]``."""

    layers: Layers
    loc: Tensor
    sd: Tensor


def likelihood(
    problem: LocalProblem,
    tensors: Sequence[Tensor],
    weights: Tensor | None = None,
    scale: Tensor | float = 1.0,
    rows: Tensor | None = None,
    local: Local | None = None,
) -> Callable[[Tensor], Tensor]:
    """x ``[size]`` -> log p(y_m | x) in nats at a client's data, given as tensors; safe under ``vmap`` over clients.

    ``weights`` and ``scale`` as in :func:`~pvi.programs.weighted.weighted_log_likelihood`; ``rows [b]`` are those
    that a plate which subsamples is handed. With ``local`` the argument is x with the rows' own noise behind it.
    """
    program, batch = problem.program, refill(problem.batch, tensors)
    if program.sites.subsampling is not None:
        return lambda x: log_likelihood(program, x, batch, rows)
    if local is None:
        return lambda x: weighted_log_likelihood(program, x, batch, weights, scale)
    size, (layers, loc, sd) = problem.family.size, local

    def by_row(joined: Tensor) -> Tensor:
        noise = joined[size:].reshape(-1, layers.num_noise)
        return log_likelihood_local(program, layers, joined[:size], loc, sd, noise, batch, weights, scale)

    return by_row


class Flat(NamedTuple):
    """Clients' rows end to end, for mini-batches: ``tensors [Σ n_m, ...]`` (``[M]`` for single numbers).

    Client m's rows start at ``offsets[m]``.
    """

    problem: LocalProblem
    tensors: tuple[Tensor, ...]
    offsets: Tensor
    rows: tuple[int, ...]


def flatten(problems: Sequence[LocalProblem]) -> Flat:
    """The rows of problems of one kind, end to end."""
    rows = tuple(problem.batch.num_rows for problem in problems)
    columns = zip(*[tensors_of(problem.batch) for problem in problems], strict=True)
    tensors = tuple((torch.cat(column) if column[0].ndim else torch.stack(column)).contiguous() for column in columns)
    starts = torch.tensor([0, *rows[:-1]], device=tensors[0].device).cumsum(0)
    return Flat(problems[0], tensors, starts, rows)


def check_stack(stacked: Stack, problems: Sequence[LocalProblem], naturals: Tensor) -> None:
    """Raises :class:`NotVectorisable` where the stack's likelihoods at draws from q are not those of the clients.

    ``naturals [M, num_natural]`` are proper members of the family.
    """
    family, generator = stacked.problem.family, torch.Generator(device=naturals.device).manual_seed(0)
    chosen = _checked(stacked.rows)
    for power in POWERS if is_gaussian(family) else POWERS[:1]:
        x = family.sample(power * naturals, (), generator)
        found = _together(stacked, x)
        with torch.no_grad():
            own = {k: log_likelihood(problems[k].program, x[k], problems[k].batch) for k in chosen}
        if all(bool(torch.isfinite(value)) for value in own.values()):
            break
    for index, alone in own.items():
        tolerance = 1e4 * torch.finfo(alone.dtype).eps * max(1.0, alone.abs().item())
        if not bool((alone - found[index]).abs() <= tolerance) and bool(torch.isfinite(alone)):
            raise NotVectorisable(
                f"the likelihood of client {problems[index].client!r} is {alone.item():.6g} nats alone and "
                f"{found[index].item():.6g} beside others: the model counts its rows or looks across them"
            )


def _checked(rows: Sequence[int]) -> list[int]:
    """One client of every size, since what a model does with its size is its own affair, and ``CHECKED`` at least."""
    order = sorted(range(len(rows)), key=rows.__getitem__)
    spread = [order[round(k * (len(order) - 1) / (CHECKED - 1))] for k in range(CHECKED)]
    return sorted({*spread, *{rows[index]: index for index in order}.values()})


def _together(stacked: Stack, x: Tensor) -> Tensor:
    """The clients' log likelihoods ``[M]`` at ``x [M, size]``."""

    def at(x: Tensor, tensors: tuple[Tensor, ...], weights: Tensor | None) -> Tensor:
        return likelihood(stacked.problem, tensors, weights)(x)

    dims = (0, 0, None if stacked.weights is None else 0)
    try:
        with torch.no_grad():
            return torch.func.vmap(at, in_dims=dims)(x, stacked.tensors, stacked.weights)
    except ProgramError as error:
        raise NotVectorisable(str(error)) from error
    except Exception as error:
        # Programs may raise whatever they like under a transform.
        raise NotVectorisable(f"its model cannot run for several clients at once: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """An error's kind and the first line of what it says."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
