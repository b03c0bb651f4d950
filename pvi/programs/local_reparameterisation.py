"""Draw the pre-activations of Bayesian layers row by row instead of their weights once: far less noise in gradients.

Any Pyro program serves as it is. A weight's value is followed through the program by the identity of its tensor, and
through reshapes of it; where it enters one linear layer and nothing else, each row gets pre-activations of its own
(see :mod:`~pvi.programs.layers`). E_q[Σ_i log p(y_i | θ)] stays what it is as long as row i's density depends on row i
of the layers alone: :mod:`~pvi.programs.find_layers` tries that out.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor

from pvi.programs.batch import Batch
from pvi.programs.errors import ProgramError
from pvi.programs.handlers import Followed, Following
from pvi.programs.layers import Draw, Gaussians, read_layer
from pvi.programs.program import Program
from pvi.programs.weighted import weighted_log_likelihood


class Call(NamedTuple):
    """A use of some sites' values; with ``draw`` a layer whose inputs have the ``shape`` a row, else left alone."""

    sites: tuple[str, ...]
    draw: Draw | None = None
    shape: tuple[int, ...] = ()
    num_noise: int = 0
    has_local_bias: bool = False


class Layers(NamedTuple):
    """What is drawn row by row: ``sites`` are drawn so, in part at least; ``num_noise`` normal numbers a row do it.

    ``followed`` are the sites that might have been, ``calls`` all uses of these in order.
    """

    sites: tuple[str, ...]
    num_noise: int
    followed: tuple[str, ...]
    calls: tuple[Call, ...]


class NotLocal(NamedTuple):
    """Why nothing is drawn row by row, in words for the user."""

    reason: str


def log_likelihood_local(
    program: Program,
    layers: Layers,
    x: Tensor,
    loc: Tensor,
    sd: Tensor,
    row_noise: Tensor,
    batch: Batch,
    weights: Tensor | None = None,
    scale: Tensor | float = 1.0,
) -> Tensor:
    """An unbiased estimate of E_q[Σ_i w_i log p(y_i | θ)] in nats, ``[]``, differentiable in ``x``, ``loc`` and ``sd``.

    ``x [size]`` is one draw from q, ``loc`` and ``sd`` ``[size]`` are the moments of q (only those of the layers'
    sites are read), ``row_noise [n, num_noise]`` standard normal numbers for the n rows of ``batch``. ``weights [n]``
    and ``scale`` are those of :func:`~pvi.programs.weighted.weighted_log_likelihood`. Nothing is drawn inside.

    Raises :class:`~pvi.programs.errors.ProgramError` where the model uses the weights in another way than in
    :func:`find_layers`.
    """
    with drawing(program, layers, (loc, sd, x - loc), row_noise):
        return weighted_log_likelihood(program, x, batch, weights, scale)


@contextmanager
def drawing(
    program: Program, layers: Layers, moments: tuple[Tensor, Tensor, Tensor], row_noise: Tensor
) -> Iterator[None]:
    """The program's layers are drawn by row; ``moments`` are location, standard deviation and spread ``[size]``."""
    noise = row_noise.split([call.num_noise for call in layers.calls], -1)
    upcoming = zip(layers.calls, noise, strict=True)
    changed = ProgramError(
        f"the model uses the values of {list(layers.sites)} otherwise than when it was examined: what it does with "
        "its weights must not depend on the data; do without local reparameterisation"
    )

    def use(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], found: list[Followed]) -> Any:
        call, numbers = next(upcoming, (None, row_noise))
        if call is None or sorted(call.sites) != sorted(one.site for one in found):
            raise changed
        if call.draw is None:
            return function(*args, **kwargs)
        layer = read_layer(function, args, kwargs, lambda value: any(value is one.value for one in found))
        if layer is None or layer.inputs.shape != (len(row_noise), *call.shape):
            raise changed
        laws = {id(one.value): Gaussians(*one.parts) for one in found}
        bias = laws[id(layer.bias)] if call.has_local_bias else None
        return call.draw(layer, laws[id(layer.weight)], bias, numbers)

    with Following(by_site(program, layers.followed, *moments), use):
        yield
    if next(upcoming, None) is not None:
        raise changed


def by_site(program: Program, names: tuple[str, ...], *vectors: Tensor) -> dict[str, tuple[Tensor, ...]]:
    """Vectors ``[size]`` as tuples of tensors in the sites' shapes."""
    pieces = [program.coordinates.pieces(vector) for vector in vectors]
    shapes = {site.name: site.shape for site in program.coordinates.sites if site.name in names}
    return {name: tuple(piece[name].reshape(shape) for piece in pieces) for name, shape in shapes.items()}
