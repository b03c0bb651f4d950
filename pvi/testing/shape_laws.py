"""Laws of shapes, dtypes and leading axes."""

import torch

from pvi.testing.case import Case, close, size_of


def sizes_and_dtypes(case: Case) -> None:
    """Every function keeps the dtype and the leading axes, and has the length that the family declares."""
    family, naturals = case.family, case.naturals
    lead = naturals.shape[:-1]
    x = family.sample(naturals, (), case.generator())
    found = {
        "sample": (x, (*lead, family.size)),
        "statistics": (family.statistics(x), (*lead, family.num_natural)),
        "log_partition": (family.log_partition(naturals), lead),
        "mean_parameters": (family.mean_parameters(naturals), (*lead, family.num_natural)),
        "free": (family.free(naturals), (*lead, family.num_free)),
        "natural_from_free": (family.natural_from_free(family.free(naturals)), (*lead, family.num_natural)),
        "free_scale": (family.free_scale(naturals[1]), (family.num_free,)),
        "natural_gradient": (family.natural_gradient(naturals, case.unit * naturals), (*lead, family.num_natural)),
        "moments (mean)": (family.moments(naturals)[0], (*lead, family.size)),
        "moments (variance)": (family.moments(naturals)[1], (*lead, family.size)),
        "interior": (family.interior(naturals), (family.size,)),
        "statistics of interior": (family.statistics(family.interior(naturals)), (family.num_natural,)),
    }
    for name, (value, shape) in found.items():
        assert value.shape == shape, f"{name} has shape {tuple(value.shape)}, expected {tuple(shape)}"
        assert value.dtype == naturals.dtype, f"{name} has {value.dtype}, expected {naturals.dtype}"
        assert bool(torch.isfinite(value).all()), f"{name} is not finite"
    assert family.is_proper(naturals).dtype == torch.bool, "is_proper must be boolean"
    assert family.is_proper(naturals).shape == lead, "is_proper keeps the leading axes"


def batches_are_loops(case: Case) -> None:
    """Leading axes give what a loop over them gives."""
    family, naturals = case.family, case.naturals
    grid = naturals.reshape(2, 2, -1)
    delta = -2 * naturals.roll(1, 0)
    mean, free = family.mean_parameters(naturals), family.free(naturals)
    x = family.sample(naturals, (), case.generator(6))
    functions = {
        "log_partition": (family.log_partition, naturals),
        "mean_parameters": (family.mean_parameters, naturals),
        "natural_from_mean": (family.natural_from_mean, mean),
        "free": (family.free, naturals),
        "natural_from_free": (family.natural_from_free, free),
        "moments (mean)": (lambda natural: family.moments(natural)[0], naturals),
        "moments (variance)": (lambda natural: family.moments(natural)[1], naturals),
        "statistics": (family.statistics, x),
    }
    for name, (function, argument) in functions.items():
        loop = torch.stack([function(row) for row in argument])
        unit = size_of(loop.reshape(len(loop), -1)).reshape(loop.shape[1:])
        close(case, name, function(argument), loop, unit)
        shaped = argument.reshape(2, 2, -1)
        close(case, f"{name} with two axes", function(shaped).reshape(loop.shape), loop, unit)
    assert torch.equal(family.is_proper(grid), torch.ones(2, 2, dtype=torch.bool)), "is_proper with two axes"
    loop = torch.stack([family.boundary(*pair) for pair in zip(naturals, delta, strict=True)])
    close(case, "1/boundary", 1 / family.boundary(naturals, delta), 1 / loop, 1 + (1 / loop).max())
    for name, value in family.standard(naturals).items():
        loop = torch.stack([family.standard(row)[name] for row in naturals])
        close(case, f"standard {name!r}", value, loop, loop.abs().max())


def vectorises(case: Case) -> None:
    """``torch.func.vmap`` over a factor's functions gives what a loop gives."""
    family, naturals = case.family, case.naturals
    vmap = torch.func.vmap
    close(case, "vmap(log_partition)", vmap(family.log_partition)(naturals), family.log_partition(naturals))
    mean = family.mean_parameters(naturals)
    close(case, "vmap(mean_parameters)", vmap(family.mean_parameters)(naturals), mean, size_of(mean))
    close(
        case, "vmap(natural_from_mean)", vmap(family.natural_from_mean)(mean), family.natural_from_mean(mean), case.unit
    )
    found = vmap(family.natural_from_free)(family.free(naturals))
    close(case, "vmap(natural_from_free)", found, naturals, case.unit)
    scale = torch.stack([family.free_scale(row) for row in naturals])
    close(case, "vmap(free_scale)", vmap(family.free_scale)(naturals), scale, size_of(scale))


LAWS = (sizes_and_dtypes, batches_are_loops, vectorises)
