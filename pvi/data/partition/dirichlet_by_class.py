"""Label skew, class by class: each class is dealt to the clients in Dirichlet proportions."""

import numpy as np

from pvi.data.partition.dealing import Labels, Rows, check_clients, check_concentration, classes, deal

TRIES = 1000
"""Draws until every client has enough rows."""


def dirichlet_by_class(
    labels: Labels, num_clients: int = 10, concentration: float = 0.5, seed: int = 0, min_rows: int = 1
) -> list[Rows]:
    """Row numbers of M clients: those of class k go to them in proportions p_k ~ Dir_M(α, ..., α), α = `concentration`.

    Yurochkin et al. 2019 (section 4), Li et al. 2022. `labels` [n] may be numbers or words; which rows of a class a
    client gets is random, and every row is dealt. Clients' sizes are random too: all proportions are drawn again until
    each has `min_rows` rows (published codes ask for 10), which makes the clients more alike than Dir(α) at small α.
    With `min_rows` 0 a client's part may be empty.

    Raises ``ValueError`` for α that is not positive, for too few rows, and where 1,000 draws leave a client short.

    >>> labels = [0] * 60 + [1] * 40
    >>> clients = dirichlet_by_class(labels, num_clients=4, concentration=1.0)
    >>> sum(len(rows) for rows in clients)
    100
    """
    found = classes(labels)
    check_clients(num_clients, len(found.codes), least=min_rows)
    check_concentration(concentration)
    generator = np.random.default_rng(seed)
    for _ in range(TRIES):
        shares = generator.dirichlet(np.full(num_clients, float(concentration)), size=len(found.counts))
        # Cuts between the rows of a class; rounding them deals each row once.
        cuts = np.rint(shares.cumsum(1).clip(max=1) * found.counts[:, None]).astype(np.int64)
        cuts[:, -1] = found.counts
        counts = np.diff(cuts, axis=1, prepend=0).T
        if counts.sum(1).min() >= min_rows:
            return deal(found, counts, generator)
    raise ValueError(
        f"{TRIES} draws of {num_clients} clients at concentration {concentration} left one with fewer than {min_rows} "
        f"rows each time: with {len(found.counts)} classes so many unequal clients cannot all have rows. Ask for fewer "
        "clients, a larger concentration, min_rows=0, or use dirichlet_by_client, whose clients have equal sizes"
    )
