"""The product of independent families: one flat natural-parameter vector, the members' vectors end to end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pvi.families.concatenated import Concatenated
from pvi.families.discrete import joint_values
from pvi.families.protocol import Family, GaussianFamily


@dataclass(frozen=True)
class Product:
    """Independent members over consecutive pieces of x; itself a :class:`~pvi.families.Family`.

    ``names`` label the members (a member is one site, or a group of sites joined by ``+``).
    """

    names: tuple[str, ...]
    members: tuple[Family, ...]

    def __post_init__(self) -> None:
        if not self.members or len(self.names) != len(self.members):
            raise ValueError(f"a product needs one name a member, got {self.names} for {self.members}")

    @property
    def size(self) -> int:
        """Length of x."""
        return sum(member.size for member in self.members)

    @property
    def num_natural(self) -> int:
        """Length of η."""
        return sum(member.num_natural for member in self.members)

    @property
    def num_free(self) -> int:
        """Length of the unconstrained parameters."""
        return sum(member.num_free for member in self.members)

    def split(self, natural: Tensor) -> dict[str, Tensor]:
        """η by member name."""
        return dict(zip(self.names, self._naturals(natural), strict=True))

    def _parts(self, natural: Tensor) -> list[tuple[Family, Tensor]]:
        return list(zip(self.members, self._naturals(natural), strict=True))

    def _naturals(self, natural: Tensor) -> tuple[Tensor, ...]:
        return _split(natural, [member.num_natural for member in self.members])

    def _frees(self, free: Tensor) -> tuple[Tensor, ...]:
        return _split(free, [member.num_free for member in self.members])

    def _pieces(self, x: Tensor) -> tuple[Tensor, ...]:
        return _split(x, [member.size for member in self.members])

    def _squares(self, squares: Tensor | None) -> Sequence[Tensor | None]:
        return [None] * len(self.members) if squares is None else self._pieces(squares)

    @cached_property
    def _gaussians(self) -> list[GaussianFamily]:
        found = [member for member in self.members if isinstance(member, GaussianFamily)]
        if len(found) < len(self.members):
            raise TypeError(f"not all of {self.members} (sites {list(self.names)}) are Gaussian")
        return found

    def statistics(self, x: Tensor) -> Tensor:
        """The members' statistics end to end."""
        return _join([m.statistics(piece) for m, piece in zip(self.members, self._pieces(x), strict=True)])

    def log_partition(self, natural: Tensor) -> Tensor:
        """Σ A_k(η_k), nats."""
        return _add([member.log_partition(part) for member, part in self._parts(natural)])

    def mean_parameters(self, natural: Tensor) -> Tensor:
        """The members' mean parameters end to end."""
        return _join([member.mean_parameters(part) for member, part in self._parts(natural)])

    def natural_from_mean(self, mean: Tensor) -> Tensor:
        """η from the members' mean parameters."""
        return _join([member.natural_from_mean(part) for member, part in self._parts(mean)])

    def natural_gradient(self, natural: Tensor, gradient: Tensor) -> Tensor:
        """The members' natural gradients end to end: F is block diagonal."""
        parts = zip(self.members, self._naturals(natural), self._naturals(gradient), strict=True)
        return _join([member.natural_gradient(part, g) for member, part, g in parts])

    def moments(self, natural: Tensor) -> tuple[Tensor, Tensor]:
        """The members' moments end to end."""
        means, variances = zip(*[member.moments(part) for member, part in self._parts(natural)], strict=True)
        return _join(means), _join(variances)

    def standard(self, natural: Tensor) -> dict[str, Tensor]:
        """The members' standard parameters, keys ``member.parameter``."""
        return {
            f"{name}.{key}": value
            for name, member, part in zip(self.names, self.members, self._naturals(natural), strict=True)
            for key, value in member.standard(part).items()
        }

    def natural_from_standard(self, **standard: Tensor) -> Tensor:
        """η from :meth:`standard`'s dictionary."""
        by_member: dict[str, dict[str, Tensor]] = {name: {} for name in self.names}
        for key, value in standard.items():
            # Names may hold dots, and a product may hold a product: the longest name that fits is meant.
            name = max((name for name in self.names if key.startswith(f"{name}.")), key=len)
            by_member[name][key[len(name) + 1 :]] = value
        members = zip(self.names, self.members, strict=True)
        return _join([member.natural_from_standard(**by_member[name]) for name, member in members])

    def free(self, natural: Tensor) -> Tensor:
        """The members' unconstrained parameters end to end."""
        return _join([member.free(part) for member, part in self._parts(natural)])

    def natural_from_free(self, free: Tensor) -> Tensor:
        """η from the unconstrained parameters."""
        pieces = zip(self.members, self._frees(free), strict=True)
        return _join([member.natural_from_free(piece) for member, piece in pieces])

    def free_scale(self, natural: Tensor) -> Tensor:
        """The members' scales end to end."""
        return _join([member.free_scale(part) for member, part in self._parts(natural)])

    def is_proper(self, natural: Tensor) -> Tensor:
        """Every member is proper."""
        return torch.stack([member.is_proper(part) for member, part in self._parts(natural)]).all(0)

    def boundary(self, natural: Tensor, delta: Tensor) -> Tensor:
        """The nearest boundary over the members."""
        parts = zip(self.members, self._naturals(natural), self._naturals(delta), strict=True)
        return torch.stack([member.boundary(part, change) for member, part, change in parts]).amin(0)

    def sample(
        self, natural: Tensor, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Independent draws of the members end to end, ``[*sample_shape, ..., size]``."""
        return _join([member.sample(part, sample_shape, generator) for member, part in self._parts(natural)])

    def distribution(self, natural: Tensor, shape: tuple[int, ...] | None = None) -> torch.distributions.Distribution:
        """The members' laws as one distribution over vectors x; ``shape`` may only be ``(size,)``."""
        if shape not in (None, (self.size,)):
            raise ValueError(f"a product's events are vectors of length {self.size}, not {shape}")
        return Concatenated([member.distribution(part) for member, part in self._parts(natural)])

    def marginal(self, natural: Tensor, start: int, stop: int) -> tuple[Family, Tensor]:
        """The law of x[start:stop], which must lie within one member."""
        offset = 0
        for member, part in self._parts(natural):
            if offset <= start and stop <= offset + member.size:
                return member.marginal(part, start - offset, stop - offset)
            offset += member.size
        raise ValueError(f"x[{start}:{stop}] spans several members of {self.names}")

    def interior(self, like: Tensor) -> Tensor:
        """The members' interior points end to end."""
        return torch.cat([member.interior(like) for member in self.members])

    def recover(self, log_density: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        """Each member's η with the other members' pieces held at an interior point."""
        held = [member.interior(like) for member in self.members]

        def slice_of(k: int) -> Callable[[Tensor], Tensor]:
            return lambda x: log_density(torch.cat([*held[:k], x, *held[k + 1 :]]))

        return torch.cat([member.recover(slice_of(k), like) for k, member in enumerate(self.members)])

    def enumerate(self, like: Tensor | None = None) -> Tensor:
        """All joint values; all members must be discrete, with 2^16 joint values at most."""
        return joint_values(self.members, like)

    def location(self, natural: Tensor) -> Tensor:
        """The mean of x; all members must be Gaussian."""
        parts = zip(self._gaussians, self._naturals(natural), strict=True)
        return _join([member.location(part) for member, part in parts])

    def variance(self, natural: Tensor) -> Tensor:
        """The diagonal of the covariance; all members must be Gaussian."""
        parts = zip(self._gaussians, self._naturals(natural), strict=True)
        return _join([member.variance(part) for member, part in parts])

    def from_noise(self, natural: Tensor, noise: Tensor) -> Tensor:
        """The members' draws from their pieces of the noise, end to end."""
        parts = zip(self._gaussians, self._naturals(natural), self._pieces(noise), strict=True)
        return _join([member.from_noise(part, piece) for member, part, piece in parts])

    def draw(self, free: Tensor, noise: Tensor) -> Tensor:
        """The members' draws from their pieces of the noise, end to end."""
        parts = zip(self._gaussians, self._frees(free), self._pieces(noise), strict=True)
        return _join([member.draw(part, piece) for member, part, piece in parts])

    def free_regulariser(self, free: Tensor, cavity: Tensor) -> Tensor:
        """The members' sum, nats."""
        parts = zip(self._gaussians, self._frees(free), self._naturals(cavity), strict=True)
        return _add([member.free_regulariser(part, piece) for member, part, piece in parts])

    def predictor_variance(self, natural: Tensor, design: Tensor, squares: Tensor | None = None) -> Tensor:
        """Variances of the rows of A x, summed over the members."""
        parts = zip(self._gaussians, self._naturals(natural), self._pieces(design), self._squares(squares), strict=True)
        return _add([member.predictor_variance(part, piece, square) for member, part, piece, square in parts])

    def quadratic(
        self, gradient: Tensor, design: Tensor, weights: Tensor, at: Tensor, squares: Tensor | None = None
    ) -> Tensor:
        """Each member's own quadratic; curvature between members is dropped, as the family demands."""
        pieces = zip(self._gaussians, *map(self._pieces, (gradient, design, at)), self._squares(squares), strict=True)
        return _join([member.quadratic(g, piece, weights, a, square) for member, g, piece, a, square in pieces])

    def relocate(self, natural: Tensor, loc: Tensor) -> Tensor:
        """The members relocated, end to end."""
        parts = zip(self._gaussians, self._naturals(natural), self._pieces(loc), strict=True)
        return _join([member.relocate(part, piece) for member, part, piece in parts])

    def precision_matrix(self, natural: Tensor) -> Tensor:
        """Block-diagonal Λ, ``[..., size, size]``."""
        parts = zip(self._gaussians, self._naturals(natural), strict=True)
        blocks = [member.precision_matrix(part) for member, part in parts]
        if len(blocks) == 1:
            return blocks[0]
        found = natural.new_zeros((*natural.shape[:-1], self.size, self.size))
        start = 0
        for block in blocks:
            stop = start + block.shape[-1]
            found[..., start:stop, start:stop] = block
            start = stop
        return found


def _split(value: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
    return (value,) if len(sizes) == 1 else torch.split_with_sizes(value, sizes, -1)


def _join(parts: Sequence[Tensor]) -> Tensor:
    """Pieces end to end; a single one is not copied, which small steps would notice."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), -1)


def _add(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(list(parts)).sum(0)
