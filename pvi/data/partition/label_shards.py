"""Clients that hold few labels: rows sorted by label, cut in shards, a few shards a client."""

import numpy as np

from pvi.data.partition.dealing import Labels, Rows, check_clients, classes


def label_shards(labels: Labels, num_clients: int = 100, shards_per_client: int = 2, seed: int = 0) -> list[Rows]:
    """Row numbers of M clients with s shards each: the two-digit clients (McMahan et al. 2017, section 3).

    `labels` [n] are sorted (rows of one label stay in their order), cut in M s shards of consecutive rows, and the
    shards are dealt with the seed. On the 60,000 rows of MNIST the defaults make 200 shards of 300. Every row is
    dealt: shards differ by one row at most. Where the count of a label is no multiple of the shard's size, a shard
    straddles two labels, so that a client may hold a few rows of a third; and it may get two shards of one label.

    Raises ``ValueError`` where there are fewer rows than shards.

    >>> labels = [2, 1, 0, 2, 1, 0, 2, 1, 0, 2, 1, 0]
    >>> [rows.tolist() for rows in label_shards(labels, num_clients=3, seed=5)]
    [[0, 3, 8, 11], [1, 4, 7, 10], [2, 5, 6, 9]]
    """
    found = classes(labels)
    if shards_per_client < 1:
        raise ValueError(f"shards_per_client must be at least 1, got {shards_per_client}")
    check_clients(num_clients, len(found.codes), least=shards_per_client)
    shards = np.array_split(np.argsort(found.codes, kind="stable"), num_clients * shards_per_client)
    hands = np.random.default_rng(seed).permutation(len(shards)).reshape(num_clients, shards_per_client)
    return [np.sort(np.concatenate([shards[place] for place in hand])) for hand in hands]
