"""What is told of rounds of pFedBayes."""

from typing import NamedTuple

HEAD = ("pFedBayes, VGG", "clients", "rounds", "first round s", "s a round", "PM %", "GM %")


class PersonalRun(NamedTuple):
    """Seconds of the first round and of the others, accuracies in per cent at the mean weights after the last."""

    images: str
    clients: int
    rounds: int
    first: float
    seconds: float
    pm: float
    gm: float

    def cells(self) -> list[str]:
        """In the order of ``HEAD``."""
        found = (f"{self.first:.1f}", f"{self.seconds:.2f}", f"{self.pm:.1f}", f"{self.gm:.1f}")
        return [self.images, str(self.clients), str(self.rounds), *found]
