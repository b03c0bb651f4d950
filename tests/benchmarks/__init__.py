"""Speed of the vectorised executor against Pyro's own SVI, the loop, and hand-written batched torch."""
