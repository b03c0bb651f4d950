"""What is wrong with options can be said before a table is read."""

import inspect

from pvi.algorithms import resolve_algorithm
from pvi.cli.options import FitOptions
from pvi.data import Schema
from pvi.data.aggregation import Choices
from pvi.programs.names import resolve_model
from pvi.schedules import resolve_schedule

GUIDES = ("mean-field", "full")


def check(options: FitOptions) -> None:
    """Raise ``ValueError`` for names that there are not and numbers out of range; no file is read but the model's."""
    if not isinstance(options.damping, int | float) or not 0 < options.damping <= 1:
        raise ValueError(f"damping must lie in (0, 1], got {options.damping!r}; 1 is undamped")
    if not isinstance(options.rounds, int) or options.rounds < 1:
        raise ValueError(f"rounds must be a whole number, at least 1, got {options.rounds!r}")
    if not isinstance(options.holdout, int | float) or not 0 <= options.holdout < 1:
        raise ValueError(f"holdout must be at least 0 and below 1, not {options.holdout!r}")
    if not isinstance(options.seed, int) or options.seed < 0:
        raise ValueError(f"seed must not be negative, not {options.seed!r}")
    if options.guide not in GUIDES:
        raise ValueError(f"unknown guide {options.guide!r}; there are {', '.join(GUIDES)}")
    if options.task not in (None, "binary", "numeric"):
        raise ValueError(f"task is binary or numeric, not {options.task!r}")
    resolve_algorithm(options.algorithm)
    resolve_schedule(options.schedule)
    Choices(
        missing=options.missing,  # type: ignore[arg-type]
        standardise=options.standardise,  # type: ignore[arg-type]
        coding=options.coding,  # type: ignore[arg-type]
    )
    options.local_solver()
    options.model_arguments()


def check_columns(options: FitOptions, schema: Schema) -> None:
    """Raise ``ValueError`` for a feature that bears the name of an argument of the model (but features and target)."""
    arguments = list(inspect.signature(resolve_model(options.model)).parameters)[2:]
    for column in schema.columns:
        if column.features and column.name in arguments:
            raise ValueError(
                f"column {column.name!r} has the name of an argument of the model; pvi fit passes columns as features "
                "only: rename it, or --drop it, and use Python for exposures"
            )
