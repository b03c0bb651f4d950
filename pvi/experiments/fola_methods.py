"""The methods of FOLA's studies, as rows over the public API."""

from collections.abc import Mapping
from typing import Any

import pvi
from pvi.algorithms.fedpa import FedPA
from pvi.algorithms.scaffold import SCAFFOLD as Scaffold
from pvi.experiments.fola_tables import ALPHA
from pvi.experiments.protocol import Method, Pair

FOLA, OFFLINE, FEDAVG, FEDPROX, FEDCURV = "FOLA", "FOLA-offline", "FedAvg", "FedProx", "FedCurv"
PRIOR_ONLY, EXPERTS_ONLY, FEDPA, SCAFFOLD = "FOLA prior only", "FOLA experts only", "FedPA", "SCAFFOLD"
PARTS = (PRIOR_ONLY, EXPERTS_ONLY)
FULL = "FOLA full"
SAMPLES, BURN_IN = 5, 4
"""FedPA's samples a visit, and the part of the rounds, one of so many, in which it is FedAvg."""
EPOCHS = (2, 5, 10)
"""Of a visit, beside those of all methods: of the study of correlations."""


def table_methods(
    own: Mapping[str, Any], common: Mapping[str, Any], proximal: float, penalty: float, run: Mapping[str, Any],
    rounds: int, every: int, rows: int,
) -> list[Method]:  # fmt: skip
    """FOLA, its parts and its rivals; ``common`` are the options of everybody's steps, ``own`` those of FOLA alone.

    ``rows`` are a client's.
    """
    keep = {**common, "keep_local": True}
    algorithms = {
        FOLA: pvi.FOLA(**own, **keep),
        OFFLINE: pvi.FOLAOffline(**own, **keep),
        FEDAVG: pvi.FedAvg(**keep),
        FEDPROX: pvi.FedProx(proximal=proximal, **keep),
        FEDCURV: pvi.FedCurv(penalty=penalty, **keep),
        PRIOR_ONLY: pvi.FOLAPrior(**own, **keep),
        EXPERTS_ONLY: pvi.FOLAExperts(**{name: value for name, value in own.items() if name != "prior_weight"},
                                          **keep),
        FEDPA: FedPA(**samples(common, rows), burn_in_rounds=rounds // BURN_IN),
        SCAFFOLD: Scaffold(**common),
    }  # fmt: skip
    return [Method(name, {"algorithm": one, **run}, rounds, every=every) for name, one in algorithms.items()]


def samples(common: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """FedPA's options for as many steps as the others' epochs over ``rows`` have: half of them before the first sample.

    The samples are means over a tenth of the steps each; fewer than ten steps have fewer samples.
    """
    steps = common["epochs"] * max(1, rows // common["batch_size"])
    each = max(1, steps // (2 * SAMPLES))
    number = max(1, min(SAMPLES, steps // (2 * each)))
    return {
        "num_samples": number, "steps_per_sample": each, "burn_in": steps - number * each,
        "batch_size": common["batch_size"], "learning_rate": common["learning_rate"],
    }  # fmt: skip


def covariance(structure: str, *, online: bool) -> str:
    """What a method of the study of covariances is called."""
    return f"{structure}, {'online' if online else 'offline'}"


def covariance_methods(
    own: Mapping[str, Any], common: Mapping[str, Any], run: Mapping[str, Any], rounds: int, every: int
) -> list[Method]:  # fmt: skip
    """Three structures of the precision, each along the steps and at their end, and FedAvg."""
    found = [
        Method(covariance(structure, online=online),
               {"algorithm": laplace(structure, online=online, **own, **common), **run}, rounds, every=every)
        for structure in ("full", "e-full", "diagonal") for online in (True, False)
    ]  # fmt: skip
    return [*found, Method(FEDAVG, {"algorithm": pvi.FedAvg(**common, keep_local=True), **run}, rounds, every=every)]


def laplace(structure: str, *, online: bool, **options: Any) -> pvi.Algorithm:
    """FOLA with the Hessian where it is a matrix (that of softmax regression is never indefinite), else Fisher's."""
    curvature = "empirical-fisher" if structure == "diagonal" else "hessian"
    return pvi.FOLA(structure=structure, curvature=curvature, online=online, keep_local=True, **options)  # type: ignore[arg-type]


def at_alpha(name: str, alpha: float) -> str:
    """What a method of the study of correlations is called."""
    return f"{name}{ALPHA}{alpha:g}"


def correlation_methods(
    own: Mapping[str, Any], common: Mapping[str, Any], run: Mapping[str, Any], rounds: int,
    every: int, clients: Mapping[float, Mapping[str, Pair]],
) -> list[Method]:  # fmt: skip
    """At every α, with clients of its own: ways to aggregate, and FOLA with more epochs a visit."""
    algorithms = {
        FEDAVG: pvi.FedAvg(**common, keep_local=True),
        FOLA: laplace("diagonal", online=True, **own, **common),
        OFFLINE: laplace("diagonal", online=False, **own, **common),
        FULL: laplace("full", online=True, **own, **common),
        **{
            f"{FOLA}, E = {epochs}": laplace("diagonal", online=True, **own, **{**common, "epochs": epochs})
            for epochs in EPOCHS
        },
    }
    return [
        Method(at_alpha(name, alpha), {"algorithm": one, "clients": dealt, **run}, rounds, every=every)
        for alpha, dealt in clients.items()
        for name, one in algorithms.items()
    ]
