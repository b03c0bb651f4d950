"""What is told of rounds of convolutional networks on photos."""

from typing import NamedTuple

HEAD = ("photos", "images", "clients", "rounds", "first round s", "s a round", "PM or LA %", "GM or GA %")


class PhotoRun(NamedTuple):
    """Seconds of the first round and of the others, and accuracies in per cent at the mean weights after the last.

    ``local`` is that of the clients' own models (PM on their own test rows, LA on all), ``shared`` the server's.
    """

    method: str
    images: str
    clients: int
    rounds: int
    first: float
    seconds: float
    local: float
    shared: float

    def cells(self) -> list[str]:
        """In the order of ``HEAD``."""
        found = (f"{self.first:.1f}", f"{self.seconds:.2f}", f"{self.local:.1f}", f"{self.shared:.1f}")
        return [self.method, self.images, str(self.clients), str(self.rounds), *found]

    def __str__(self) -> str:
        return (
            f"{self.method}, {self.images}, {self.clients} clients: {self.rounds} rounds, {self.seconds:.2f} s each "
            f"after {self.first:.1f} s, clients' {self.local:.1f} %, server's {self.shared:.1f} %"
        )
