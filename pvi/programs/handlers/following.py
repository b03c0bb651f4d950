"""Follow the values of latent sites into the torch functions that use them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Followed(NamedTuple):
    """The value of a site, or a view of it, and the site's parts under the same view."""

    site: str
    value: Tensor
    parts: tuple[Tensor, ...]


Use = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], list[Followed]], Any]
"""What takes the place of a call ``function(*args, **kwargs)`` of followed values."""


class Following(Messenger):
    """Calls ``use`` in place of every torch function that is given the value of a site in ``parts``.

    Values are known by the identity of their tensors, also under ``vmap`` and ``grad``. Where a function gives views of
    one, these are followed too, and the site's parts, tensors of the value's shape, are viewed alike. Shapes and types
    may be read freely. What torch does not tell (functions written in C that take no overrides, tensors that were
    wrapped anew) goes unseen.

    >>> import pyro
    >>> import pyro.distributions as dist
    >>> def use(function, args, kwargs, found):
    ...     print(function.__name__, [(one.site, one.parts) for one in found])
    ...     return function(*args, **kwargs)
    >>> with Following({"w": (torch.arange(2),)}, use):
    ...     w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0))
    ...     y = torch.ones(3, 1) @ w[None, :1].mT
    matmul [('w', (tensor([[0]]),))]
    """

    def __init__(self, parts: Mapping[str, tuple[Tensor, ...]], use: Use) -> None:
        super().__init__()
        self.parts = parts
        self.use = use
        self._followed: dict[int, Followed] = {}
        self._mode: _Mode | None = None

    def __enter__(self) -> "Following":
        super().__enter__()
        self._mode = _Mode(self._call)
        self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        # What is followed may hold a whole graph of derivatives: it goes now, not when cycles are collected.
        mode, self._mode, self._followed = self._mode, None, {}
        assert mode is not None
        mode.__exit__(*error)
        super().__exit__(*error)

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``function(*args, **kwargs)``, or what takes its place."""
        found = [one for leaf in _leaves((args, kwargs)) if (one := self._followed.get(id(leaf)))]
        if not found or function in READING:
            return function(*args, **kwargs)
        if function in VIEWS and len(found) == 1 and args and found[0].value is args[0] and _is_basic(function, args):
            views = function(*args, **kwargs)
            parts = [function(part, *args[1:], **kwargs) for part in found[0].parts]
            if isinstance(views, Tensor):
                self._follow(found[0].site, views, tuple(parts))
            else:
                for view, *pieces in zip(views, *parts, strict=True):
                    self._follow(found[0].site, view, tuple(pieces))
            return views
        return self.use(function, args, kwargs, found)

    def _follow(self, site: str, value: Tensor, parts: tuple[Tensor, ...]) -> None:
        # The record holds the value: its identity is not given to another tensor.
        self._followed[id(value)] = Followed(site, value, parts)

    def _pyro_post_sample(self, msg: Any) -> None:
        name, found = msg["name"], self._followed.get(id(msg["value"]))
        if name in self.parts:
            self._follow(name, msg["value"], self.parts[name])
        elif found is not None:
            msg["value"] = self.use(lambda value: value, (msg["value"],), {}, [found])


class _Mode(TorchFunctionMode):
    def __init__(self, call: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]) -> None:
        super().__init__()
        self.call = call

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.call(func, args, kwargs or {})


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    else:
        yield value


def _is_basic(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether elements come out once at most: indices that are tensors may repeat them."""
    return function is not Tensor.__getitem__ or all(
        part is None or part is Ellipsis or isinstance(part, int | slice) for part in _leaves(args[1])
    )


READING = frozenset(
    [getattr(Tensor, name).__get__ for name in ("shape", "ndim", "dtype", "device", "layout", "requires_grad")]
    + [getattr(Tensor, name) for name in ("size", "dim", "numel", "nelement", "stride", "element_size", "__len__")]
    + [torch.numel, torch.is_floating_point, Tensor.is_floating_point, Tensor.is_complex, Tensor.__hash__]
)
"""Functions that tell nothing about the numbers."""
_BOTH = (
    *("t", "transpose", "swapaxes", "movedim", "permute", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze"),
    *("narrow", "select", "split", "chunk", "unbind", "clone"),
)
VIEWS = frozenset(
    [getattr(Tensor, name).__get__ for name in ("T", "mT")]
    + [getattr(Tensor, name) for name in (*_BOTH, "view", "contiguous", "__getitem__")]
    + [getattr(torch, name) for name in _BOTH]
)
"""Functions whose results hold elements of their first argument, each at most once."""
