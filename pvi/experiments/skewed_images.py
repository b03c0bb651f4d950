"""Images dealt to clients that hold some labels only, each with test images of its own."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from pvi.data import images, label_skew
from pvi.data.images import Images
from pvi.data.partition.label_skew import Assignment
from pvi.experiments.protocol import Pair
from pvi.experiments.published import Counts

SETS = {"mnist": images.mnist, "fmnist": images.fashion_mnist, "cifar10": images.cifar10}
CLASSES = 10


class Dealt(NamedTuple):
    """Training and test images by client, and the numbers of the training images in ``images``, which holds all."""

    images: Images
    clients: dict[str, Pair]
    test: dict[str, Pair]
    parts: dict[str, Any]

    @property
    def test_rows(self) -> Pair:
        """Everybody's, end to end."""
        return torch.cat([x for x, _ in self.test.values()]), torch.cat([y for _, y in self.test.values()])


def both_parts(dataset: str, data_dir: str | None) -> Images:
    """The training and the test images of a set together: clients split them anew."""
    read = SETS[dataset]
    return images.joined(read(data_dir, "train"), read(data_dir, "test"))


def deal(found: Images, clients: int, labels: int, counts: Counts, seed: int, assignment: Assignment) -> Dealt:
    """See :func:`pvi.data.label_skew`, which says what it raises."""
    split = label_skew(found.y.numpy(), clients, labels, *counts, seed, assignment)
    names = [f"client {index + 1}" for index in range(clients)]

    def rows(parts: Sequence[Any]) -> dict[str, Pair]:
        chosen = [torch.as_tensor(part) for part in parts]
        return {name: (found.x[one], found.y[one]) for name, one in zip(names, chosen, strict=True)}

    return Dealt(found, rows(split.train), rows(split.test), dict(zip(names, split.train, strict=True)))


def counts_of(
    found: Images, clients: int, labels: int, published: Counts, train: int | None, test: int | None
) -> tuple[Counts, str]:
    """Images of a class at a client, and a note where the published numbers need more than there are.

    Numbers that the user gives are kept. Of what is left, three quarters at most are to learn from. Raises
    ``ValueError`` where the images do not suffice for given numbers, or for an image of each class for both.
    """
    most = int(np.bincount(found.y.numpy(), minlength=CLASSES).min()) * CLASSES // (clients * labels)
    wanted = Counts(published.train if train is None else train, published.test if test is None else test)
    if sum(wanted) <= most:
        return wanted, ""
    fewer = min(wanted.train, 3 * most // 4 if test is None else most - test) if train is None else train
    rest = min(wanted.test, most - fewer) if test is None else test
    if min(fewer, rest) < 1 or fewer + rest > most:
        raise ValueError(
            f"{found.name} has images for {most} of a class at each of {clients} clients with {labels} labels, not for "
            f"{wanted.train} to learn from and {wanted.test} to test; ask for fewer (train_per_class, test_per_class) "
            "or for fewer clients"
        )
    return Counts(fewer, rest), (
        f"There are images for {most} of a class at a client: {fewer} for training and {rest} for testing "
        f"in place of {wanted.train} and {wanted.test}."
    )
