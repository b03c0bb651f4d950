"""The law suite of exponential families."""

import torch

from pvi.families import Family
from pvi.testing import exact_laws, gaussian_laws, sampled_laws
from pvi.testing.case import build_case, is_gaussian

DTYPES = (torch.float64, torch.float32)
SCALES = (1.0, 1e-3, 1e3)


def check_family(family: Family, *, seed: int = 0) -> None:
    """Check every law that a :class:`~pvi.families.Family` must obey; Gaussian ones have some more.

    In double and single precision, a Gaussian family for x of size 1, 1e-3 and 1e3. No law can be left out.

    >>> from pvi.families import DiagonalGaussian
    >>> check_family(DiagonalGaussian(1))

    Raises:
        AssertionError: naming the family, the law, the precision and the scale.
    """
    if not isinstance(family, Family):
        missing = [name for name in dir(Family) if not name.startswith("_") and not hasattr(family, name)]
        raise AssertionError(f"{family!r} is no Family: it lacks {', '.join(missing)}")
    gaussian = is_gaussian(family)
    exact = (*exact_laws.LAWS, *(gaussian_laws.LAWS if gaussian else ()))
    for dtype in DTYPES:
        for scale in SCALES if gaussian else SCALES[:1]:
            case = build_case(family, dtype, scale, seed)
            # Sampling noise hides what single precision adds at other scales.
            sampled = sampled_laws.LAWS if dtype == torch.float64 or scale == 1 else ()
            for law in (*exact, *sampled):
                try:
                    law(case)
                except Exception as error:
                    place = f"{dtype}, scale {scale:g}"
                    raise AssertionError(f"{family!r} breaks the law {law.__name__} ({place}): {error}") from error
