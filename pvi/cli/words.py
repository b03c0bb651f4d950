"""What ``pvi fit`` says besides its tables: how to read them, and what to doubt."""

import inspect
import math
from collections.abc import Iterator, Sequence

from pvi.algorithms import Algorithm
from pvi.cli import noisy, parts
from pvi.cli.options import FitOptions
from pvi.conclusion import elbo_name
from pvi.data import Tables
from pvi.history import Round, falling, sunken
from pvi.programs.names import resolve_model
from pvi.schedules import rounds_limit
from pvi.solvers import LocalSteps, TwoLevel

SETTLED = 0.05
"""A rise of the ELBO in the last round, nats, below which a run counts as settled."""
STILL = 0.01
"""A move of a posterior mean in the last round, posterior standard deviations, below which it counts as still."""
FAR = 3.0
"""A target whose standard deviation and the model's noise differ by more than this factor is not in the same units."""


def explanations(options: FitOptions) -> list[str]:
    """How to read the coefficient table."""
    algorithm = parts.algorithm(options)
    said = [
        "P(dir.), the probability of direction, is the posterior probability that the coefficient has the sign of its "
        "mean: 0.5 says nothing is known, 1 is certainty."
    ]
    if algorithm.point:
        said = [f"{point_estimate(options)}; intervals and P(dir.) say nothing."]
    scaled = {"numeric": "numeric columns", "all": "all features"}.get(options.standardise)
    if scaled:
        said.append(f"Standardised ({scaled}): their coefficients are per standard deviation.")
    own = "mean-field" if algorithm.guide is None else "its own"
    if (options.guide or own) == "mean-field" and not algorithm.point:
        instead = "; --guide full keeps them" if algorithm.solver is None else ""
        said.append(f"Mean-field intervals ignore correlations between coefficients and are often too narrow{instead}.")
    if algorithm.energy.personal:
        said += personal_explanations(algorithm)
    return said


def point_estimate(options: FitOptions) -> str:
    """That the posterior's spread means nothing, or "" of an algorithm that learns it."""
    if not parts.algorithm(options).point:
        return ""
    return f"{options.algorithm} makes a point estimate: its sd is set, not learned"


def personal_explanations(algorithm: Algorithm) -> list[str]:
    """What a global posterior is that clients have personal ones beside."""
    own = "The clients' own are in personal_summary.csv and forest.png."
    if algorithm.point:
        return [f"These are the coefficients of the common estimate. {own}"]
    said = [
        "These are the coefficients of the global posterior, the clients' common prior; it is not what all rows "
        f"together say. {own}"
    ]
    zeta = algorithm.energy.weight
    rule = algorithm.solver.rule if isinstance(algorithm.solver, LocalSteps) else None
    if zeta != 1 and isinstance(rule, TwoLevel) and rule.kl_scale == "paper":
        counts = f"rows count {1 / zeta:.3g} times" if zeta else "posterior has no prior, as if rows counted infinitely"
        said.append(
            f"With zeta {zeta:g} a client's {counts} in its own posterior; --set zeta=1 is Bayes' rule with that prior."
        )
    return said


def doubts(options: FitOptions, rounds: Sequence[Round], interrupted: bool) -> Iterator[str]:
    """What the rounds say against the result."""
    if interrupted:
        asked = parts.rounds(options)
        yield f"Stopped by you: {len(rounds)} of {asked} rounds were played, and are what is written."
    algorithm = parts.algorithm(options)
    diverging = falling(rounds) if algorithm.factors else ""
    sunk = "" if algorithm.factors or algorithm.energy.personal else sunken(rounds)
    if sunk:
        yield f"The {elbo_name(algorithm)} {sunk}; use smaller steps{noisy.step_options(options.algorithm)}."
    elif algorithm.solver is not None:
        yield from noisy.doubts(options.algorithm, elbo_name(algorithm), rounds)
    elif diverging:
        yield f"{diverging[0].upper()}{diverging[1:]}."
    elif not _ends_by_itself(options, rounds):
        yield from _unsettled(options, rounds, interrupted)
    rejected = sum(len(record.rejected) for record in rounds)
    shortened = sum(record.step_fraction < 1 for record in rounds)
    if rejected or shortened:
        yield f"{rejected} updates were rejected and {shortened} rounds' steps shortened."


def _ends_by_itself(options: FitOptions, rounds: Sequence[Round]) -> bool:
    """Whether there is nothing to converge to: the rounds are limited, or one solve on all rows has converged."""
    algorithm = parts.algorithm(options)
    order = parts.schedule(options) or algorithm.schedule
    solved = algorithm.pooled and len(rounds) == 1 and not rounds[-1].unconverged
    return solved or algorithm.max_rounds is not None or rounds_limit(order) is not None


def _unsettled(options: FitOptions, rounds: Sequence[Round], interrupted: bool) -> Iterator[str]:
    last = rounds[-1]
    rise = last.elbo - rounds[-2].elbo if len(rounds) > 1 else 0.0
    changed = abs(rise) > SETTLED + 3 * last.elbo_standard_error
    fell = changed and rise < 0
    fixed = parts.algorithm(options).fixed
    if last.max_shift > STILL:
        noise = " (in part Monte Carlo noise)" if last.elbo_standard_error else ""
        most = fixed or (options.schedule == "sequential" and options.damping == 1)
        advice = "use more rounds" if most else "use more rounds, or --schedule sequential --damping 1"
        if fell and not fixed:
            advice = "use a smaller --damping"
        yield (
            f"Not converged yet: in the last round a coefficient still moved by {last.max_shift:.2g} posterior "
            f"standard deviations{noise}; {advice}."
        )
    if changed and not interrupted:
        more = "more rounds (--rounds) would bring it closer"
        if fell:
            more = "its damping is part of the algorithm" if fixed else "try a smaller --damping, or --damping auto"
        yield f"The ELBO still changed by {rise:+.2g} nats in the last round: {more}."


def noise_note(options: FitOptions, tables: Tables) -> str:
    """A sentence where the model's ``noise_scale`` cannot be that of the target, else ""."""
    parameters = inspect.signature(resolve_model(options.model)).parameters
    if "noise_scale" not in parameters:
        return ""
    noise = options.model_arguments().get("noise_scale", parameters["noise_scale"].default)
    deviation = target_deviation(tables)
    if not isinstance(noise, int | float) or not noise > 0 or not deviation > 0:
        return ""
    if noise / FAR <= deviation <= FAR * noise:
        return ""
    said = "noise_scale=... and prior_scale=..." if "prior_scale" in parameters else "noise_scale=..."
    said = said.replace("and ", "and --argument ")
    shown = f"{deviation:.2g}" if deviation < 100 else f"{deviation:.0f}"
    return (
        f"The target's standard deviation is {shown} but noise_scale is {noise:g}: intervals will be wrong; "
        f"give --argument {said} in the target's units."
    )


def target_deviation(tables: Tables) -> float:
    """The target's standard deviation over all training rows, from each client's count, sum and centred squares."""
    said = [(len(y), float(y.sum()), float((y - y.mean()).square().sum())) for _, y in tables.values() if len(y)]
    rows = sum(count for count, _, _ in said)
    mean = math.fsum(total for _, total, _ in said) / max(rows, 1)
    between = math.fsum(count * (total / count - mean) ** 2 for count, total, _ in said)
    return math.sqrt((math.fsum(squares for _, _, squares in said) + between) / max(rows, 1))
