"""Seconds of one round of pFedBayes on the published small MNIST clients, beside a lean loop written by hand.

Run from the repository root: ``python benchmarks/personal_round.py`` (options: ``--help``). Ten clients of 250 made-up
images, a network 784-100-10, batches of 100, K = 5 draws, R = 20 iterations, one thread, single precision. Rounds of
both alternate, so that what slows the machine slows both; compiling comes before. The hand-written loop does the same:
one client after the other, R times K draws of all weights from N(0, I), cross entropy and the closed-form KL divergence
by autograd, ``torch.optim.Adam`` for q and for w. First of all, both objectives must agree at the same parameters,
images and noise. Seconds of ``pvi`` include its report of every round.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

import pvi
from pvi.executors import Vectorised
from pvi.models import bayesian_mlp
from pvi.programs.program import log_likelihood
from pvi.solvers import Given
from pvi.solvers.two_level import parameters
from pvi.start import start

PIXELS, CLASSES, LABELS = 784, 10, 5
RATE, RHO, ZETA = 0.001, -2.5, 10.0
KNOWN = {"a public code": 10.0, "a lean hand-written one": 4.8}
"""Seconds a round at the full size, of one thread of a machine like the one that this was written on."""
TOLERANCE = 1e-10
"""Between the objectives in double precision, as a part."""


class Sizes(NamedTuple):
    """How large a round is."""

    clients: int
    rows: int
    hidden: int
    batch: int
    draws: int
    iterations: int

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Weights and biases of both layers."""
        return [(self.hidden, PIXELS), (self.hidden,), (CLASSES, self.hidden), (CLASSES,)]

    @property
    def parameters(self) -> int:
        """Weights of the network."""
        return sum(map(math.prod, self.shapes))


def made_up(sizes: Sizes) -> dict[str, tuple[Tensor, Tensor]]:
    """Images that are noise about a centre of their class; five classes a client."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(CLASSES, PIXELS, generator=generator)
    found = {}
    for index in range(sizes.clients):
        y = (index + torch.arange(sizes.rows) % LABELS) % CLASSES
        x = 0.5 * (centres[y] + torch.rand(sizes.rows, PIXELS, generator=generator))
        found[f"client {index + 1}"] = x, y
    return found


def network(sizes: Sizes) -> Callable[..., Tensor]:
    """The model."""
    return partial(bayesian_mlp.model, hidden=sizes.hidden, classes=CLASSES)


def method(sizes: Sizes) -> pvi.algorithms.Algorithm:
    """pFedBayes as published."""
    return pvi.PFedBayes(
        zeta=ZETA, local_iterations=sizes.iterations, num_particles=sizes.draws, batch_size=sizes.batch,
        learning_rate=RATE, global_learning_rate=RATE, initial_rho=RHO, subset=sizes.clients,
    )  # fmt: skip


def rounds_of_pvi(sizes: Sizes, rounds: int, compiled: bool) -> Iterator[object]:
    """A round a step."""
    program = network(sizes)
    return pvi.fit_rounds(
        program, made_up(sizes), bayesian_mlp.mean_field_guide(program), method(sizes), rounds=rounds,
        executor=Vectorised(compile=compiled), elbo_samples=2,
    )  # fmt: skip


def divergence(q: Tensor, w: Tensor) -> Tensor:
    """KL(q, w) in nats of v = (μ, ρ) ``[2, P]``."""
    sd, other = softplus(q[1]), softplus(w[1])
    return ((other / sd).log() + (sd**2 + (q[0] - w[0]) ** 2) / (2 * other**2) - 0.5).sum()


def omega(q: Tensor, w: Tensor, noise: Tensor, x: Tensor, y: Tensor, rows: int, sizes: Sizes) -> Tensor:
    """-(n/b) (1/K) Σ_k Σ_j log p(y_j | θ_k) + ζ KL(q, w) in nats; ``noise [K, P]``."""
    theta = torch.addcmul(q[0], softplus(q[1]), noise)
    parts = theta.split([math.prod(shape) for shape in sizes.shapes], -1)
    weights_1, bias_1, weights_2, bias_2 = (
        part.unflatten(-1, shape) for part, shape in zip(parts, sizes.shapes, strict=True)
    )
    # All draws' first layers in one product: they see the same images.
    hidden = torch.addmm(bias_1.flatten(), x, weights_1.flatten(0, 1).T).unflatten(-1, (len(noise), -1)).relu()
    logits = torch.baddbmm(bias_2[:, None], hidden.transpose(0, 1), weights_2.mT)
    loss = cross_entropy(logits.flatten(0, 1), y.repeat(len(noise)), reduction="sum")
    return rows / len(y) / len(noise) * loss + ZETA * divergence(q, w)


class Client:
    """What a client keeps from round to round."""

    def __init__(self, x: Tensor, y: Tensor, first: Tensor, sizes: Sizes) -> None:
        self.x, self.y, self._sizes = x, y, sizes
        self.q, self.w = first.clone().requires_grad_(), first.clone().requires_grad_()
        self._of_q, self._of_w = (torch.optim.Adam([one], lr=RATE) for one in (self.q, self.w))

    def visit(self, sent: Tensor) -> Tensor:
        """R iterations from the server's w."""
        self.w.data.copy_(sent)
        batches: list[Tensor] = []
        for _ in range(self._sizes.iterations):
            if not batches:
                size = min(self._sizes.batch, len(self.y))
                batches = [part for part in torch.randperm(len(self.y)).split(size) if len(part) == size]
            rows, noise = batches.pop(), torch.randn(self._sizes.draws, self._sizes.parameters)
            self._of_q.zero_grad()
            x, y = self.x[rows], self.y[rows]
            omega(self.q, self.w.detach(), noise, x, y, len(self.y), self._sizes).backward()
            self._of_q.step()
            self._of_w.zero_grad()
            divergence(self.q.detach(), self.w).backward()
            self._of_w.step()
        return self.w.detach()


def rounds_by_hand(sizes: Sizes, rounds: int) -> Iterator[object]:
    """A round a step."""
    w = torch.stack([0.2 * torch.rand(sizes.parameters) - 0.1, torch.full((sizes.parameters,), RHO)])
    clients = [Client(x, y, w, sizes) for x, y in made_up(sizes).values()]
    for _ in range(rounds):
        yield (w := torch.stack([client.visit(w) for client in clients]).mean(0))


def difference(sizes: Sizes) -> float:
    """Between both objectives at the same q, w, images and noise, in double precision, as a part of theirs."""
    program = network(sizes)
    x, y = made_up(sizes)["client 1"]
    x, guide = x.double(), bayesian_mlp.mean_field_guide(program)
    _, state = start(program, {"one": (x, y)}, guide, method(sizes), None, None, 1, None, "loop", 0, "cpu", None)
    problem, w = state.problem.clients["one"], state.server.posterior.natural
    rule = method(sizes).solver.rule  # type: ignore[union-attr]
    generator = torch.Generator().manual_seed(1)
    begun = rule.begin(problem, Given(w, None, None, 0), sizes.batch)  # type: ignore[arg-type]
    # Near w, so that ζ KL does not bury the likelihood.
    q = begun.state[0] + 0.003 * torch.randn(begun.state[0].shape, generator=generator, dtype=w.dtype)
    noise = torch.randn(sizes.draws, sizes.parameters, generator=generator, dtype=w.dtype)
    rows = torch.randperm(len(y), generator=generator)[: sizes.batch]
    at = lambda loc, sd: lambda theta: log_likelihood(problem.program, theta, problem.batch, rows)  # noqa: E731
    _, value = rule.step(problem, begun._replace(state=(q, *begun.state[1:])), noise, at)
    by_hand = omega(q, parameters(problem, w), noise, x[rows], y[rows], len(y), sizes).item()
    return abs(by_hand + value.item()) / abs(by_hand)


def seconds(rounds: Iterator[object]) -> float:
    """Of one round, on this process's processor: what else runs on the machine adds little."""
    began = time.process_time()
    next(rounds)
    return time.process_time() - began


def main() -> None:
    """Compare, time, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, size in zip(Sizes._fields, (10, 250, 100, 100, 5, 20), strict=True):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--rounds", type=int, default=7, help="timed")
    parser.add_argument("--warm", type=int, default=3, help="rounds before, not timed")
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = Sizes(**{name: getattr(options, name) for name in Sizes._fields})
    apart = difference(sizes)
    print(f"objectives apart by a part of {apart:.1e}")
    if apart > TOLERANCE:
        raise SystemExit(f"the objectives differ by more than a part of {TOLERANCE}: nothing is compared")
    number = options.warm + options.rounds
    ours, by_hand = rounds_of_pvi(sizes, number, not options.no_compile), rounds_by_hand(sizes, number)
    pairs = [(seconds(ours), seconds(by_hand)) for _ in range(number)][options.warm :]
    own, other = (statistics.median(found) for found in zip(*pairs, strict=True))
    ratios = [one / two for one, two in pairs]
    print(f"pvi          {own:.3f} s a round\nhand-written {other:.3f} s a round")
    print(f"pvi / hand-written: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    for name, mark in KNOWN.items():
        print(f"{name} takes about {mark:g} s at the full size; pvi / that: {own / mark:.2f}")


if __name__ == "__main__":
    main()
