"""Images dealt to clients as in FOLA's experiments (Liu et al. 2021, section IV): labels from Dir(α), or five each."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pvi.data import dirichlet_by_client, images
from pvi.data.images import Images
from pvi.experiments.mnist import SIDE, pooled
from pvi.experiments.protocol import Pair
from pvi.experiments.skewed_images import CLASSES, SETS

GREY = ("mnist", "fmnist")
"""Sets whose images are rows of pixels, which can be averaged."""
FIRST_HALF = CLASSES // 2


class Shared(NamedTuple):
    """A set's images to learn from and to test on, with what is to be said of them."""

    train: Images
    test: Images

    @property
    def test_rows(self) -> Pair:
        """Everybody's: accuracies are those on all of them."""
        return self.test.x, self.test.y

    @property
    def notes(self) -> list[str]:
        """Of both parts."""
        return [f"{part.name}, {name}: {part.note}." for name, part in zip(("train", "test"), self, strict=True)
                if part.note]  # fmt: skip


def read(dataset: str, data_dir: str | None, train: int | None, test: int | None, pixels: int, seed: int) -> Shared:
    """Both parts of a set, or so many images of each; ``pixels`` are those of a side after averaging squares.

    Training images depend on the seed, test images do not. Raises ``ValueError`` for more images than there are.
    """

    def part(which: Any, number: int | None, seed: int) -> Images:
        found = SETS[dataset](data_dir, which)
        return found if number is None else images.subset(found, number, seed=seed)

    both = Shared(part("train", train, seed), part("test", test, 0))
    if dataset not in GREY or pixels == SIDE:
        return both
    return Shared(*[Images(one.name, pooled(one.x, SIDE // pixels), one.y, one.classes, one.note) for one in both])


def dirichlet_parts(y: NDArray[Any], clients: int, alpha: float, seed: int) -> dict[str, Any]:
    """Row numbers of clients of equal size whose label distributions are q_n ~ Dir(α, ..., α).

    See :func:`pvi.data.dirichlet_by_client`, which deals every image and says what it raises.
    """
    found = dirichlet_by_client(y, clients, alpha, seed=seed, prior=np.ones(len(np.unique(y))))
    return {f"client {number}": part for number, part in enumerate(found, 1)}


def half_parts(y: NDArray[Any]) -> dict[str, Any]:
    """Row numbers of two clients: digits 0 to 4, and 5 to 9. No label is at both."""
    return {"client 1": np.flatnonzero(y < FIRST_HALF), "client 2": np.flatnonzero(y >= FIRST_HALF)}


def clients_of(found: Images, parts: dict[str, Any]) -> dict[str, Pair]:
    """The rows by client; raises ``ValueError`` for a client without any."""
    for name, part in parts.items():
        if not len(part):
            raise ValueError(f"{name} would have none of the {len(found)} images: use more images (train)")
    chosen = {name: torch.as_tensor(part) for name, part in parts.items()}
    return {name: (found.x[part], found.y[part]) for name, part in chosen.items()}


def dealing_note(y: NDArray[Any], parts: dict[str, Any], alpha: float) -> str:
    """How one-sided the clients are, and why not as much as Dir(α) says."""
    whole = np.bincount(y) / len(y)
    away = [
        0.5 * np.abs(np.bincount(y[part], minlength=len(whole)) / len(part) - whole).sum() for part in parts.values()
    ]
    return (
        f"Clients of equal size draw their labels from q ~ Dir({alpha:g}, ..., {alpha:g}) until all images are dealt. "
        "A class that has run out is left out of q, and who wants nothing else takes what is left. At seed 0 the "
        f"clients' label distributions are {np.mean(away):.2f} from everybody's in total variation, in their mean (0: "
        "alike, 0.9: one of ten labels each)."
    )
