"""Hyperparameters ε: the ``pyro.param``s of a model, as one flat unconstrained vector."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pvi.families import Coordinates, site_coordinates
from pvi.programs.errors import ProgramError
from pvi.programs.handlers import Parameters
from pvi.programs.sites import Parameter, Sites


class Hyperparameters(NamedTuple):
    """Coordinates of the learned parameters, their first values u ``[k]``, and the values of those that stay."""

    coordinates: Coordinates
    initial: Tensor
    fixed: dict[str, Tensor]

    @property
    def names(self) -> tuple[str, ...]:
        """The learned parameters."""
        return self.coordinates.names

    def values(self, u: Tensor) -> dict[str, Tensor]:
        """All parameters by name at unconstrained u ``[k]``, in their own (constrained) spaces."""
        learned = self.coordinates.constrain(u) if self.names else {}
        return self.fixed | learned


def bind(model: Callable[..., Any], values: Mapping[str, Tensor]) -> Callable[..., Any]:
    """The model with its parameters at these values; what it is called with stays the same."""
    if not values:
        return model

    def bound(*args: Any, **kwargs: Any) -> Any:
        with Parameters(values):
            return model(*args, **kwargs)

    return functools.update_wrapper(bound, model, updated=())


def find_hyperparameters(
    sites: Mapping[str, Sites], learn: Sequence[str] | str | None, like: Tensor
) -> Hyperparameters:
    """Which parameters are learned, from what every client's model shows.

    Raises :class:`~pvi.programs.errors.ProgramError` where ``learn`` names none of them, where it is left out although
    there are some, and where clients disagree.
    """
    (first_client, first), *others = sites.items()
    found = {parameter.name: parameter for parameter in first.parameters}
    for client, theirs in others:
        _check_same(found, {parameter.name: parameter for parameter in theirs.parameters}, first_client, client)
    if learn is None and found:
        raise ProgramError(
            f"the model has hyperparameters {sorted(found)} (pyro.param): pass learn='all' or their names to learn "
            "them, or learn=[] to keep them at their initial values"
        )
    if isinstance(learn, str) and learn != "all":
        raise TypeError(f"learn is a list of names or 'all', got {learn!r}; one name is learn=[{learn!r}]")
    chosen = tuple(found) if learn == "all" else tuple(learn or ())
    unknown = [name for name in chosen if name not in found]
    if not found and learn:
        raise ProgramError(f"learn={learn!r}: the model has no hyperparameters (pyro.param) to learn; leave learn out")
    if unknown or len(set(chosen)) < len(chosen):
        raise ProgramError(
            f"learn={learn!r}: the model's hyperparameters (pyro.param) are {sorted(found)}; name each once"
        )
    coordinates = Coordinates(
        tuple(site_coordinates(name, tuple(found[name].value.shape), found[name].constraint) for name in chosen)
    )
    values = {name: parameter.value.to(like) for name, parameter in found.items()}
    initial = coordinates.unconstrain(values) if chosen else like.new_zeros(0)
    if not bool(torch.isfinite(initial).all()):
        raise ProgramError(f"the initial values of {list(chosen)} lie on the edge of their constraints")
    return Hyperparameters(coordinates, initial, {name: values[name] for name in found if name not in chosen})


def _check_same(first: Mapping[str, Parameter], other: Mapping[str, Parameter], one: str, two: str) -> None:
    if list(first) != list(other):
        raise ProgramError(f"client {two!r} has the hyperparameters {list(other)}, client {one!r} has {list(first)}")
    for name, parameter in first.items():
        value, theirs = parameter.value, other[name].value
        if value.shape != theirs.shape or not torch.equal(value.to(torch.float64), theirs.to(torch.float64)):
            raise ProgramError(
                f"hyperparameter {name!r} starts at another value or shape at client {two!r} than at client {one!r}; "
                "its initial value must not depend on the data"
            )
