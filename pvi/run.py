"""``fit``: from a Pyro program and the clients' data to the posterior that pooling all rows would have given."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from pvi.acceleration import Anderson
from pvi.algorithms import Algorithm, resolve_algorithm
from pvi.conclusion import elbo_name, finish, warn_at_the_end, warn_of_divergence
from pvi.damping import Damping
from pvi.data.tables import ClientRows
from pvi.executors import Executor
from pvi.objectives import NUM_SAMPLES
from pvi.play import play_round
from pvi.progress import Report, reporter
from pvi.result import Result
from pvi.rounds import Plan, RunState
from pvi.schedules import Schedule
from pvi.solvers import Solver
from pvi.start import check_columns, start

LEARNING_ROUNDS = 20
"""Rounds at least where hyperparameters are learned and the user names no number."""


def fit(
    model: Callable[..., Any] | str,
    clients: Sequence[Any] | Mapping[str, Any],
    guide: Any = None,
    algorithm: Algorithm | str = "pvi",
    schedule: Schedule | str | None = None,
    damping: Damping | float | str | None = None,
    rounds: int | None = None,
    solver: Solver | str | None = None,
    executor: Executor | str = "auto",
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    progress: bool | Report = False,
    columns: Sequence[str] | None = None,
    threads: int = 1,
    acceleration: Anderson | str | None = None,
    learn: Sequence[str] | str | None = None,
    elbo_samples: int = NUM_SAMPLES,
) -> Result:
    """Fit a Pyro program to data that stays with its clients.

    Args:
        model: a Pyro program, called with a client's data; or ``"logistic_regression"`` (bundled),
            ``"pkg.mod:attr"``, ``"file.py:attr"``.
        clients: each client's data, a list or a dict by name: a tuple or a dict of tensors, rows first.
        guide: ``None`` for a mean-field Gaussian, ``"full"`` for one with full covariance,
            ``pvi.FullCovariance(("site", "site"), ...)`` for named groups, ``"conjugate"`` for the families of the
            priors, or a hand-written Pyro guide of independent sites whose families and initial values are read
            from it.
        algorithm: a name (``"pvi"``, ``"global-vi"``, ``"bcm-same"``, ``"bcm-split"``, ``"vcl"``,
            ``"streaming-vb"``, ``"power-ep"``, ``"stochastic-ep"``, ``"pfedbayes"``, ``"fedavg"``, ``"fedprox"``) or an
            object with options such as ``pvi.PFedBayes(zeta=1)``.
        schedule: ``"synchronous"``, ``"sequential"``, ... or an object of :mod:`pvi.schedules`; ``None``: the
            algorithm's own.
        damping: ρ in (0, 1], 1 is undamped; ``"auto"`` searches for a stable one; ``pvi.Decay(...)`` shrinks it over
            the rounds; ``None``: the algorithm's own (PVI: 0.2).
        rounds: rounds of the schedule (sequential: passes over all clients); ``None``: the algorithm's own (PVI: 20).
        solver: a local solver or its name ("newton", "svi", ...); ``None``: exact Newton for generalised linear
            models, closed forms for conjugate ones, else functional SVI.
        executor: ``"loop"`` (one client after the other), ``"vectorised"`` (all in one batched computation), ``"auto"``
            (what is likely to be faster; all give the same answers), or an object such as
            ``pvi.executors.Vectorised(max_clients_at_once=100)``.
        seed: fixes every random draw.
        device, dtype: where and in what precision; ``dtype=None`` is that of the first client's data.
        progress: show a progress bar, or call a function with each round's record and posterior.
        columns: names of the features, for labels in exports; :class:`pvi.data.Tables` and the like bring their own.
        threads: torch's threads during the run, set back afterwards. Small local steps only lose by sharing cores;
            raise it for large networks on the CPU.
        acceleration: ``"anderson"`` or ``pvi.Anderson(memory=5)``: mixes the last synchronous rounds.
        learn: the model's ``pyro.param``s to learn by maximising the free energy: their names, or ``"all"``; ``[]``
            keeps them at their initial values.
        elbo_samples: draws of θ for each round's ELBO where it is not exact: fewer are faster, its standard error says
            what they cost. Solves do not use it.

    Returns:
        A :class:`~pvi.result.Result`.

    Raises:
        ValueError, TypeError: for bad input, naming the client, the site or the option; before any fitting.
    """
    number = rounds_of(algorithm, rounds, learn)
    found = fit_rounds(
        model, clients, guide, algorithm, schedule, damping, number, solver, executor, seed, device, dtype, columns,
        threads, acceleration, learn, elbo_samples,
    )  # fmt: skip
    name = elbo_name(resolve_algorithm(algorithm))
    with _threads(threads), reporter(progress, number, name) as report:  # the user's function may predict
        for result in found:
            report(result.history[-1], result.posterior)
    return result


def fit_rounds(
    model: Callable[..., Any] | str,
    clients: Sequence[Any] | Mapping[str, Any],
    guide: Any = None,
    algorithm: Algorithm | str = "pvi",
    schedule: Schedule | str | None = None,
    damping: Damping | float | str | None = None,
    rounds: int | None = None,
    solver: Solver | str | None = None,
    executor: Executor | str = "auto",
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    columns: Sequence[str] | None = None,
    threads: int = 1,
    acceleration: Anderson | str | None = None,
    learn: Sequence[str] | str | None = None,
    elbo_samples: int = NUM_SAMPLES,
) -> Iterator[Result]:
    """:func:`fit` round by round: the result so far after each round, to look at, save, or stop at.

    The last one is what :func:`fit` returns; arguments and errors are the same, and errors of input are raised by the
    call itself. Nothing is computed ahead: who stops asking ends the run.

    >>> for result in pvi.fit_rounds(model, clients, rounds=50):  # doctest: +SKIP
    ...     if result.history[-1].max_shift < 0.01:
    ...         break
    """
    number = rounds_of(algorithm, rounds, learn)
    plan, state = start(
        model, clients, guide, algorithm, schedule, damping, number, solver, executor, seed, device, dtype,
        acceleration=acceleration, learn=learn, elbo_samples=elbo_samples,
    )  # fmt: skip
    if columns is not None:
        check_columns(columns, state.problem.prior)
    elif isinstance(clients, ClientRows):
        columns = clients.columns
    return _rounds(plan, state, number, columns, threads)


def _rounds(plan: Plan, state: RunState, number: int, columns: Sequence[str] | None, threads: int) -> Iterator[Result]:
    for _ in range(number):
        with _threads(threads):
            state = play_round(plan, state)
        warn_of_divergence(plan, state)
        if len(state.history) == number:
            warn_at_the_end(plan, state)
        yield finish(plan, state, columns)


def rounds_of(algorithm: Algorithm | str, rounds: int | None, learn: Sequence[str] | str | None = None) -> int:
    """How many rounds a run has where the user may have named no number."""
    chosen = resolve_algorithm(algorithm)
    if rounds is None and learn and chosen.max_rounds is None:
        return max(chosen.rounds, LEARNING_ROUNDS)
    return chosen.rounds if rounds is None else rounds


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
