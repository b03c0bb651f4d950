"""What is wrong with options can be said before a table is read."""

import inspect

from pvi.cli import parts
from pvi.cli.options import FitOptions
from pvi.data import Schema
from pvi.data.aggregation import Choices
from pvi.executors import resolve_executor
from pvi.problem import GUIDES
from pvi.programs.names import resolve_model
from pvi.start import resolve_parts


def check(options: FitOptions) -> None:
    """Raise ``ValueError`` for names that there are not and numbers out of range; no file is read but the model's."""
    if options.rounds is not None and (not isinstance(options.rounds, int) or options.rounds < 1):
        raise ValueError(f"rounds must be a whole number, at least 1, got {options.rounds!r}")
    if not isinstance(options.holdout, int | float) or not 0 <= options.holdout < 1:
        raise ValueError(f"holdout must be at least 0 and below 1, not {options.holdout!r}")
    if not isinstance(options.seed, int) or options.seed < 0:
        raise ValueError(f"seed must not be negative, not {options.seed!r}")
    if options.guide is not None and options.guide not in GUIDES:
        raise ValueError(f"unknown guide {options.guide!r}; there are {', '.join(GUIDES)}")
    if options.task not in (None, "binary", "numeric"):
        raise ValueError(f"task is binary or numeric, not {options.task!r}")
    resolve_parts(parts.algorithm(options), parts.schedule(options), parts.damping(options), parts.rounds(options))
    parts.acceleration(options)
    parts.learn(options)
    Choices(
        missing=options.missing,  # type: ignore[arg-type]
        standardise=options.standardise,  # type: ignore[arg-type]
        coding=options.coding,  # type: ignore[arg-type]
    )
    options.local_solver()
    resolve_executor(options.executor)
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
