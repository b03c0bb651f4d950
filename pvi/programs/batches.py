"""The clients' data by name, checked; and the rows of all of them in one place."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pvi.programs.batch import Batch, as_batch, check_finite, is_rows
from pvi.programs.errors import ProgramError
from pvi.programs.sites import Sites

POOLED = "all clients"
"""The name of the one client that holds everybody's rows."""


def client_batches(clients: Any, arguments: tuple[str, ...] = ()) -> dict[str, Batch]:
    """The clients' data by name, checked for rows and finite values; unnamed clients are "client 0", ..."""
    if isinstance(clients, Mapping):
        named = {str(name): data for name, data in clients.items()}
    elif isinstance(clients, Sequence) and not isinstance(clients, str):
        named = {f"client {index}": data for index, data in enumerate(clients)}
    else:
        raise TypeError(f"clients must be a list or a dict of each client's data, got {type(clients).__name__}")
    if not named:
        raise ValueError("there are no clients: pass a list or a dict with each client's data")
    batches = {name: as_batch(data, name) for name, data in named.items()}
    for name, batch in batches.items():
        check_finite(batch, name, arguments)
    return batches


def pool(batches: Mapping[str, Batch], sites: Mapping[str, Sites]) -> dict[str, Batch]:
    """One client with everybody's rows: what the data of a federation never do, and what global VI needs.

    Raises :class:`~pvi.programs.errors.ProgramError` where clients have latents of their own, which pooling would
    make one, and ``ValueError`` where arguments without rows differ.
    """
    own = [site.name for found in sites.values() for site in (*found.private, *found.enumerated) if not site.by_row]
    if own and len(batches) > 1:
        raise ProgramError(
            f"sites {sorted(set(own))} are each client's own; pooled rows would share them. Write a pooled model with "
            "an index of the client in each row and a plate over the clients"
        )
    first = next(iter(batches.values()))
    for name, batch in batches.items():
        if len(batch.args) != len(first.args) or list(batch.kwargs) != list(first.kwargs):
            raise ValueError(f"client {name!r} has other arguments than the first; rows cannot be pooled")
    everyone = batches.values()
    args = tuple(_join([batch.args[place] for batch in everyone], str(place)) for place in range(len(first.args)))
    kwargs = {key: _join([batch.kwargs[key] for batch in everyone], key) for key in first.kwargs}
    return {POOLED: Batch(args, kwargs)}


def _join(values: list[Any], label: str) -> Any:
    first = values[0]
    if is_rows(first):
        return torch.cat(values)
    same = all(torch.equal(first, value) if isinstance(first, Tensor) else first == value for value in values)
    if not same:
        raise ValueError(f"argument {label}: it has no rows and differs between clients, so that rows cannot be pooled")
    return first
