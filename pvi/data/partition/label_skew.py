"""Clients that hold some classes only, equally many rows of each, with training and test rows of their own."""

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from pvi.data.partition.dealing import Classes, Labels, Rows, check_clients, classes

Assignment = Literal["balanced", "two-types"]
TRADES = 50
"""Trades a client: each takes two clients, so that every client takes part in about a hundred."""


class LabelSkew(NamedTuple):
    """Row numbers of each client, ascending: those it learns from, and those that it is tested on."""

    train: list[Rows]
    test: list[Rows]


def label_skew(
    labels: Labels,
    num_clients: int = 10,
    labels_per_client: int = 5,
    train_per_class: int = 50,
    test_per_class: int = 950,
    seed: int = 0,
    assignment: Assignment = "balanced",
) -> LabelSkew:
    """Rows of M clients that hold L of the K classes each, every class by M L / K of them (Zhang et al. 2022).

    Each holder of a class gets `train_per_class` of its rows to learn from and `test_per_class` others to be tested
    on, at random; no row is in two places, and the rows that nobody needs are with nobody. The defaults are the small
    MNIST clients of pFedBayes. `assignment` says who holds what:

    - "balanced": drawn with the seed, uniformly from all assignments in which clients hold L classes and classes have
      M L / K holders. Numbers of rows do not change it.
    - "two-types": consecutive clients hold consecutive classes, as in a public code. With 10 classes, 5 a client, the
      first half of the clients holds classes 0 to 4, the second half 5 to 9. It takes L that divide K.

    Raises ``ValueError`` where M L is no multiple of K, L is not in 1, ..., K, or a class has too few rows.

    >>> labels = [0, 1, 2, 3] * 6
    >>> parts = label_skew(labels, num_clients=4, labels_per_client=2, train_per_class=2, test_per_class=1, seed=1)
    >>> [sorted({labels[row] for row in rows}) for rows in parts.train]
    [[1, 2], [1, 2], [0, 3], [0, 3]]
    >>> parts.train[0].tolist(), parts.test[0].tolist()
    ([2, 5, 6, 13], [9, 18])
    """
    found = classes(labels)
    if train_per_class < 1 or test_per_class < 0:
        raise ValueError(
            f"train_per_class must be at least 1 and test_per_class at least 0, got {train_per_class} and "
            f"{test_per_class}"
        )
    generator = np.random.default_rng(seed)
    held = _assigned(found, num_clients, labels_per_client, assignment, generator)
    holders, each = num_clients * labels_per_client // len(found.values), train_per_class + test_per_class
    for value, count in zip(found.values, found.counts, strict=True):
        if count < holders * each:
            raise ValueError(
                f"class {value} has {count} rows, its {holders} clients need {holders * each} "
                f"({train_per_class} + {test_per_class} each); ask for fewer rows a class or bring more"
            )
    hands: list[list[Rows]] = [[] for _ in range(num_clients)]
    for place in range(len(found.values)):
        rows = generator.permutation(np.flatnonzero(found.codes == place))[: holders * each].reshape(holders, each)
        for client, hand in zip(np.flatnonzero(held[:, place]), rows, strict=True):
            hands[client].append(hand)
    stacked = [np.stack(hand) for hand in hands]  # [L, train + test] each
    return LabelSkew(
        [np.sort(hand[:, :train_per_class], axis=None) for hand in stacked],
        [np.sort(hand[:, train_per_class:], axis=None) for hand in stacked],
    )


def _assigned(
    found: Classes, clients: int, each: int, assignment: Assignment, generator: np.random.Generator
) -> NDArray[np.bool_]:
    """Who holds what ``[M, K]``: L a row, M L / K a column."""
    number = len(found.values)
    check_clients(clients, len(found.codes))
    if not 1 <= each <= number:
        raise ValueError(f"labels_per_client must be from 1 to {number}, the number of classes, got {each}")
    if clients * each % number:
        raise ValueError(
            f"{clients} clients with {each} of {number} classes each: {clients * each} is no multiple of {number}, so "
            "that classes cannot have equally many clients"
        )
    if assignment not in get_args(Assignment):
        raise ValueError(f"assignment is 'balanced' or 'two-types', not {assignment!r}")
    held = np.zeros((clients, number), bool)
    if assignment == "two-types":
        if number % each:
            raise ValueError(f"'two-types' cuts the classes in groups of labels_per_client: {each} divides no {number}")
        groups = number // each
        held.reshape(groups, clients // groups, groups, each)[np.arange(groups), :, np.arange(groups)] = True
        return held
    # One assignment: places 0, ..., M L - 1 taken in turn. Then trades (Strona et al. 2014), whose stationary law is
    # uniform: two clients pool the classes that one of them alone holds, and deal them anew in the same numbers.
    held[np.repeat(np.arange(clients), each), np.arange(clients * each) % number] = True
    for _ in range(TRADES * clients if clients > 1 else 0):
        one, other = generator.choice(clients, 2, replace=False)
        pool = generator.permutation(np.flatnonzero(held[one] != held[other]))
        held[one, pool], held[other, pool] = np.arange(len(pool)) % 2 == 0, np.arange(len(pool)) % 2 == 1
    return held
