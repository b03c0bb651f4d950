"""Clients that differ in their inputs: clusters of similar rows."""

import warnings

import numpy as np

from pvi.data.partition.dealing import Labels, Rows, as_array, check_clients


def k_means(inputs: Labels, num_clients: int = 5, seed: int = 0, min_rows: int = 1) -> list[Rows]:
    """Row numbers of M clients, the clusters of k-means on `inputs` [n, ...] (scikit-learn, best of ten starts).

    The recipe of the PVI paper for MIMIC-III, with M = 5. Distances are those of the inputs as they are: standardise
    columns of different units first. Every row is dealt; sizes are what the data make them, largest first.

    Raises ``ValueError`` for inputs that are not finite, for more clients than rows, and where a cluster has fewer than
    `min_rows` rows (fewer distinct rows than clients leave clusters empty).
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    x = as_array(inputs)
    if x.ndim < 2:
        raise ValueError(f"inputs must have rows and features, got the shape {list(x.shape)}")
    x = x.reshape(len(x), -1)
    check_clients(num_clients, len(x), least=max(1, min_rows))
    finite = np.isfinite(x).all(1)
    if not finite.all():
        raise ValueError(f"row {int((~finite).argmax())} of the inputs is not finite; impute or leave it out")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clients: an error below
        found = KMeans(num_clients, n_init=10, random_state=seed).fit_predict(x)
    sizes = np.bincount(found, minlength=num_clients)
    if sizes.min() < min_rows:
        raise ValueError(
            f"k-means found clusters of {sorted(sizes.tolist(), reverse=True)} rows, one of them below "
            f"min_rows={min_rows}; ask for fewer clients"
        )
    return [np.flatnonzero(found == cluster) for cluster in np.argsort(-sizes, kind="stable")]
