"""The law suite of exponential families."""

import torch

from pvi.families import Family, is_discrete, is_gaussian
from pvi.testing import discrete_laws, exact_laws, gaussian_laws, propriety_laws, sampled_laws, shape_laws
from pvi.testing.case import build_case

DTYPES = (torch.float64, torch.float32)
SCALES = (1.0, 1e-3, 1e3)


def check_family(family: Family, *, seed: int = 0) -> None:
    """Check every law that a :class:`~pvi.families.Family` must obey; Gaussian and discrete ones have some more.

    In double and single precision, a Gaussian family for x of size 1, 1e-3 and 1e3. No law can be left out; discrete
    families are summed over all their values where others must have differentiable draws.

    >>> from pvi.families import DiagonalGaussian
    >>> check_family(DiagonalGaussian(1))

    Raises:
        AssertionError: naming the family, the law, the precision and the scale.
    """
    if not isinstance(family, Family):
        missing = [name for name in dir(Family) if not name.startswith("_") and not hasattr(family, name)]
        raise AssertionError(f"{family!r} is no Family: it lacks {', '.join(missing)}")
    gaussian, discrete = is_gaussian(family), is_discrete(family)
    general = (*shape_laws.LAWS, *exact_laws.LAWS, *propriety_laws.LAWS)
    exact = (*general, *(gaussian_laws.LAWS if gaussian else ()), *(discrete_laws.LAWS if discrete else ()))
    for dtype in DTYPES:
        for scale in SCALES if gaussian else SCALES[:1]:
            case = build_case(family, dtype, scale, seed)
            # Sampling noise hides what single precision adds at other scales.
            sampled = (*sampled_laws.LAWS, *(() if discrete else sampled_laws.CONTINUOUS_LAWS))
            for law in (*exact, *(sampled if dtype == torch.float64 or scale == 1 else ())):
                try:
                    law(case)
                except Exception as error:
                    place = f"{dtype}, scale {scale:g}"
                    raise AssertionError(f"{family!r} breaks the law {law.__name__} ({place}): {error}") from error
