"""Why a prior is no Gaussian of q's form, for people: the sites concerned, and what to do."""

import torch
from torch import Tensor

from pvi.families import DiagonalGaussian, FullGaussian, Product
from pvi.families.kinds import is_gaussian
from pvi.programs.batch import Batch
from pvi.programs.program import Program, log_likelihood
from pvi.programs.recover import recover, support_points

ADVICE = (
    "give the latents Normal priors (LogNormal for positive ones), independent of each other{correlated}. A scale that "
    "is itself a latent cannot be had here: make it a number. algorithm='pvi' takes any prior"
)
CORRELATED = ", or use pvi.FOLA(structure='full') (--set structure=full), where they may be correlated"


def why_not_gaussian(program: Program, family: Product, batch: Batch, like: Tensor) -> str:
    """Names the shared sites whose own density is no Gaussian given the sites before them, else those that depend.

    For a prior that lies outside ``family``, which is that of the shared sites; ``like`` gives dtype and device.
    """
    if not all(is_gaussian(member) for member in family.members):
        return "the guide's family is not Gaussian: leave the guide out, or use algorithm='pvi'"
    full = any(isinstance(member, FullGaussian) for member in family.members)
    advice = ADVICE.format(correlated=" or jointly Gaussian" if full else CORRELATED)
    kinds = {site.name: site.distribution for site in program.sites.shared}
    names = [site.name for site in program.coordinates.sites if site.name in kinds]
    wrong = [name for name in names if not _is_gaussian(program, name, full, batch, like)]
    single = full or all(_place(program, name)[1] == 1 for name in wrong or names)
    form = "a Gaussian" if single else "a Gaussian with independent elements"
    if wrong:
        return f"the prior of {_listed(wrong, kinds)} is not {form}: {advice}"
    depend = [name for name in names if _depends(program, name, family, batch, like)]
    if not depend:
        return f"the joint prior of {_listed(names, kinds)} is not a Gaussian of q's form: {advice}"
    how = ", and not through a mean that is linear in them" if full else ""
    return f"the prior of {_listed(depend, kinds)} depends on other latents{how}: {advice}"


def _listed(names: list[str], kinds: dict[str, str]) -> str:
    return ", ".join(f"{name!r} ({kinds[name]})" for name in names)


def _is_gaussian(program: Program, name: str, full: bool, batch: Batch, like: Tensor) -> bool:
    """Whether a site's own density, in its unconstrained coordinates and with the other sites at 0, is a Gaussian."""
    start, size = _place(program, name)
    alone = program._replace(counted=frozenset({name}))
    before, after = like.new_zeros(start), like.new_zeros(program.coordinates.size - start - size)
    own = FullGaussian(size) if full else DiagonalGaussian(size)
    return recover(own, lambda x: log_likelihood(alone, torch.cat([before, x, after]), batch), like).exact


def _depends(program: Program, name: str, family: Product, batch: Batch, like: Tensor) -> bool:
    """Whether a site's own density changes where the others move."""
    start, size = _place(program, name)
    alone = program._replace(counted=frozenset({name}))
    here = like.new_zeros(program.coordinates.size)
    there = support_points(family, like)[-1].clone()
    there[start : start + size] = 0
    values = [log_likelihood(alone, x, batch) for x in (here, there)]
    return not bool(torch.isclose(values[0], values[1], rtol=1e-5))


def _place(program: Program, name: str) -> tuple[int, int]:
    """Where a site's coordinates begin, and how many it has."""
    start = 0
    for key, piece in program.coordinates.pieces(torch.zeros(program.coordinates.size)).items():
        if key == name:
            return start, piece.numel()
        start += piece.numel()
    raise KeyError(name)
