"""Names for the elements of sites: a dimension as long as the features carries their names."""

from collections.abc import Sequence
from itertools import product

from pvi.families import Coordinates


def is_feature_vector(shape: Sequence[int], columns: Sequence[str]) -> bool:
    """Whether a site has one element a feature and no other dimension."""
    return len(columns) > 0 and tuple(shape) == (len(columns),)


def element_labels(coordinates: Coordinates, columns: Sequence[str]) -> dict[str, list[str]]:
    """A label for each element of each site, row-major.

    Scalars are called as their site. The one site with an element a feature uses the features' names alone; where
    several sites have one, and for arrays, the label is ``site[index]``.

    >>> import torch
    >>> from pvi.families import site_coordinates
    >>> real = torch.distributions.constraints.real
    >>> sites = (site_coordinates("w", (2,), real), site_coordinates("b", (), real))
    >>> element_labels(Coordinates(sites), ("age", "dose"))
    {'w': ['age', 'dose'], 'b': ['b']}
    """
    vectors = [site.name for site in coordinates.sites if is_feature_vector(site.shape, columns)]
    names = {site.name for site in coordinates.sites}
    # A feature that is called like a site must not be mistaken for it.
    bare = len(vectors) == 1 and not names.intersection(columns)
    labels = {}
    for site in coordinates.sites:
        axes = [
            list(columns) if columns and length == len(columns) else [str(index) for index in range(length)]
            for length in site.shape
        ]
        if not site.shape:
            labels[site.name] = [site.name]
        elif bare and site.name in vectors:
            labels[site.name] = list(columns)
        else:
            labels[site.name] = [f"{site.name}[{','.join(index)}]" for index in product(*axes)]
    return labels


def dimensions(site: str, shape: Sequence[int], columns: Sequence[str]) -> list[str]:
    """xarray names for a site's dimensions: ``feature`` for one that is as long as the features, once a site."""
    dims: list[str] = []
    for axis, length in enumerate(shape):
        is_feature = len(columns) > 0 and length == len(columns) and "feature" not in dims
        dims.append("feature" if is_feature else f"{site}_dim_{axis}")
    return dims
