"""Label skew, client by client: each client draws its class proportions, all have equally many rows."""

import numpy as np
from numpy.typing import ArrayLike

from pvi.data.partition.dealing import Classes, Labels, Rows, check_clients, check_concentration, classes, deal


def dirichlet_by_client(
    labels: Labels,
    num_clients: int = 10,
    concentration: float = 0.5,
    seed: int = 0,
    prior: ArrayLike | None = None,
) -> list[Rows]:
    """Row numbers of M clients of equal size whose class proportions are q_m ~ Dir(α p), α = `concentration`.

    Hsu et al. 2019 (section 3). `labels` [n] may be numbers or words; `prior` is p [K], one positive number a class in
    the order of the sorted labels: left out, the classes' shares of all rows, so that the parameters α p_k sum to α and
    E[q_m] = p. ``prior=np.ones(K)`` is the symmetric Dir(α, ..., α) of many codes, K times as concentrated.

    Clients are served in turn, a row at a time, of a class drawn from q_m; a class that has run out is left out of
    q_m, so that the last rows go to clients that would rather have had others (most visible at small α, or where
    `prior` is far from the classes' shares). Every row is dealt; sizes differ by one row at most.

    Raises ``ValueError`` for α or p that are not positive, and for more clients than rows.

    >>> labels = [0] * 60 + [1] * 40
    >>> [len(rows) for rows in dirichlet_by_client(labels, num_clients=4, concentration=0.1)]
    [25, 25, 25, 25]
    """
    found = classes(labels)
    check_clients(num_clients, len(found.codes))
    check_concentration(concentration)
    base = found.counts / len(found.codes) if prior is None else np.asarray(prior, dtype=float)
    if base.shape != found.counts.shape or not (base > 0).all() or not np.isfinite(base).all():
        raise ValueError(
            f"prior must have a positive number for each of the {len(found.counts)} classes, got {base.tolist()}"
        )
    generator = np.random.default_rng(seed)
    proportions = generator.dirichlet(concentration * base, size=num_clients)
    return deal(found, _serve(found, proportions, generator), generator)


def _serve(found: Classes, proportions: np.ndarray, generator: np.random.Generator) -> Rows:
    """Rows of each class by client ``[M, K]``, served in turn until all are gone."""
    left, counts = found.counts.copy(), np.zeros(proportions.shape, np.int64)
    wanted = proportions.copy()
    for row, chance in enumerate(generator.random(len(found.codes))):
        client = row % len(proportions)
        steps = wanted[client].cumsum()
        if not steps[-1] > 0:
            # All that it wanted is gone (proportions may be zero to machine precision): what is left, as it is.
            steps = left.cumsum()
        place = int(steps.searchsorted(chance * steps[-1], side="right"))
        counts[client, place] += 1
        left[place] -= 1
        if not left[place]:
            wanted[:, place] = 0
    return counts
