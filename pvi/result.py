"""What a run returns."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pvi.exact_prediction import Method, exact_log_density, exact_mean, exactly
from pvi.factors import Factor
from pvi.history import Round
from pvi.posterior import Posterior
from pvi.programs.batch import Batch, as_batch, check_finite
from pvi.programs.predictive import expected_values, pointwise, predicted_values
from pvi.programs.sites import argument_names


@dataclass(frozen=True, repr=False)
class Result:
    """The posterior over the shared latents, and how it came about.

    ``factors`` and ``data`` are what the clients hold: here only because one process played them all. ``history`` has
    one :class:`~pvi.history.Round` a round. ``hyperparameters`` are the model's ``pyro.param``s at their last values;
    ``local`` q(θ, z_m) of each client that has latents z_m of its own, jointly with the shared ones; ``by_row`` names
    those with one value a row. Where the model's prior lies outside the family, ``prior`` is the member closest to it
    and ``correction`` the server's factor t_0: p(θ) ≈ prior · t_0.

    ``personal`` has every client's own posterior where the algorithm is one that makes them (:func:`pvi.PFedBayes`) or
    was told to keep them, q itself for a client whose visits were all rejected; ``posterior`` then is the global one,
    and factors are 1.
    """

    posterior: Posterior
    prior: Posterior
    factors: dict[str, Factor]
    history: list[Round]
    model: Callable[..., Any] | None
    model_name: str
    observed: tuple[str, ...]
    columns: tuple[str, ...]
    settings: Mapping[str, Any]
    data: Mapping[str, Batch] = field(default_factory=dict, repr=False)
    hyperparameters: Mapping[str, Tensor] = field(default_factory=dict)
    correction: Factor | None = None
    local: Mapping[str, Posterior] = field(default_factory=dict)
    by_row: tuple[str, ...] = ()
    personal: Mapping[str, Posterior] = field(default_factory=dict)

    def __repr__(self) -> str:
        settings = ", ".join(
            f"{key}={value}" for key, value in self.settings.items() if key not in ("seed", "objective", "options")
        )
        sites = ", ".join(f"{site.name}{list(site.shape)}" for site in self.posterior.coordinates.sites)
        energy = f"{self.elbo_name} {self.elbo:.3f} nats"
        return f"Result({self.model_name}, {len(self.factors)} clients, {settings}, {energy}, {sites})"

    @property
    def elbo(self) -> float:
        """The global free energy after the last round, nats; see :attr:`elbo_name`."""
        return self.history[-1].elbo

    @property
    def elbo_name(self) -> str:
        """What the rounds' ``elbo`` is: "ELBO", or "objective" of an algorithm whose free energy is another one.

        ``settings["objective"]`` then says which one it is.
        """
        return "objective" if "objective" in self.settings else "ELBO"

    @property
    def private(self) -> dict[str, Posterior]:
        """Each client's q over its own latents, the shared ones integrated out; empty where there are none."""
        shared = set(self.posterior.site_names)
        return {
            name: local.restrict([site for site in local.site_names if site not in shared])
            for name, local in self.local.items()
        }

    def of_client(self, client: str) -> "Result":
        """The client's view, for exports and plots: its personal posterior in the place of the global one, its rows.

        The prior stays the model's, the history that of the whole run. Raises ``ValueError`` for a client without one.
        """
        if client not in self.personal:
            raise ValueError(
                f"client {client!r} has no personal posterior; "
                + (
                    f"there are {list(self.personal)}"
                    if self.personal
                    else "algorithm='pfedbayes' makes them, keep_local=True keeps them"
                )
            )
        own = {name: rows for name, rows in self.data.items() if name == client}
        factors = {name: factor for name, factor in self.factors.items() if name == client}
        return replace(self, posterior=self.personal[client], factors=factors, data=own, personal={})

    def predict(
        self, *args: Any, num_samples: int = 1000, seed: int = 0, client: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor]:
        """Posterior predictive draws {observed site: ``[num_samples, rows, ...]``}.

        The arguments are the model's; those left out (the observations) are ``None``. Latents that belong to one
        client come from their prior, as for a client never seen; ``client`` names one whose own are used (those with
        one value a client: new rows have new values), or whose personal posterior is.
        """
        model, batch = self._model(), self._batch(args, kwargs)
        return predicted_values(model, self.observed, self._draws(num_samples, seed, client), batch, seed)

    def predict_mean(
        self,
        *args: Any,
        num_samples: int = 1000,
        seed: int = 0,
        client: str | None = None,
        method: Method = "auto",
        **kwargs: Any,
    ) -> dict[str, Tensor]:
        """E[y | data] by observed site, ``[rows, ...]``; ``client`` as in :meth:`predict`, ``method`` as below.

        For a Bernoulli site that is the predictive probability; for a Categorical one those of all classes,
        ``[rows, classes]``. From draws it is the distributions' means averaged, with far less noise than draws of y.
        """
        where = self._model(), self.observed, self._posterior(client)
        exact = exactly(method, exact_mean, *where, self._batch(args, kwargs))
        if exact is not None:
            return exact
        draws = self.mean_draws(*args, num_samples=num_samples, seed=seed, client=client, **kwargs)
        return {name: value.mean(0) for name, value in draws.items()}

    def mean_draws(
        self, *args: Any, num_samples: int = 1000, seed: int = 0, client: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor]:
        """E[y | data, θ_s] at posterior draws θ_s by observed site, ``[num_samples, rows, ...]``.

        Their spread says how well the mean is known; it holds no noise of y. A Categorical site has the probabilities
        of its classes, ``[num_samples, rows, classes]``.
        """
        model, batch = self._model(), self._batch(args, kwargs)
        return expected_values(model, self.observed, self._draws(num_samples, seed, client), batch)

    def log_likelihood(
        self, *args: Any, num_samples: int = 1000, seed: int = 0, client: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor]:
        """log p(y_i | θ_s) in nats at posterior draws, {observed site: ``[num_samples, rows]``}; needs the targets."""
        model, batch = self._model(), self._batch(args, kwargs)
        return pointwise(model, self.observed, self._draws(num_samples, seed, client), batch)

    def log_predictive_density(
        self,
        *args: Any,
        num_samples: int = 1000,
        seed: int = 0,
        client: str | None = None,
        method: Method = "auto",
        **kwargs: Any,
    ) -> dict[str, Tensor]:
        """log ∫ p(y_i | θ) q(θ) dθ in nats a row, {observed site: ``[rows]``}; needs the targets.

        For a generalised linear model with a Gaussian q it is one integral a row, good to 1e-9: ``method`` "auto" takes
        it where it applies, "quadrature" insists on it (raises :class:`~pvi.exact_prediction.NotExact` with the reason
        where it does not), "draws" does without. ``num_samples`` and ``seed`` are those of posterior draws.
        """
        where = self._model(), self.observed, self._posterior(client)
        exact = exactly(method, exact_log_density, *where, self._batch(args, kwargs))
        if exact is not None:
            return exact
        values = self.log_likelihood(*args, num_samples=num_samples, seed=seed, client=client, **kwargs)
        return {name: torch.logsumexp(value, 0) - math.log(num_samples) for name, value in values.items()}

    def to_arviz(self, num_samples: int = 1000, seed: int = 0) -> Any:
        """An xarray ``DataTree`` (``InferenceData`` on ArviZ 0.x); see :func:`pvi.diagnostics.to_arviz`."""
        from pvi.diagnostics.arviz_export import to_arviz  # importing ArviZ takes seconds

        return to_arviz(self, num_samples=num_samples, seed=seed)

    def save(self, path: str | Path) -> None:
        """Write posterior, prior, factors and history into a folder; no client's rows. See :func:`pvi.load`."""
        from pvi.checkpoint import save

        save(self, Path(path))

    def _draws(self, num_samples: int, seed: int, client: str | None = None) -> dict[str, Tensor]:
        if num_samples < 1:
            raise ValueError(f"num_samples must be at least 1, got {num_samples}")
        generator = torch.Generator(device=self.posterior.natural.device).manual_seed(seed)
        drawn = self._posterior(client).sample(num_samples, generator)
        return {name: value for name, value in drawn.items() if name not in self.by_row}

    def _posterior(self, client: str | None) -> Posterior:
        """q over the shared latents, with the client's own where one is named."""
        if client is None:
            return self.posterior
        own = self.personal or self.local
        if client not in own:
            if not own:
                raise ValueError(
                    f"client {client!r} has no posterior of its own here: the model has no private latents, and no "
                    "personal posteriors were kept; leave client out, or fit again with keep_local=True (--set "
                    "keep_local=true), an option of some algorithms, or with algorithm='pfedbayes'"
                )
            what = "personal posterior" if self.personal else "latents of its own here"
            raise ValueError(f"client {client!r} has no {what}; there are {list(own)}")
        return own[client]

    def _model(self) -> Callable[..., Any]:
        if self.model is None:
            raise ValueError(
                f"this result was loaded without its model ({self.model_name}); pass it: pvi.load(path, model=...)"
            )
        return self.model

    def _batch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Batch:
        """The arguments as a batch on the posterior's device, left-out ones None."""
        if not args and not kwargs:
            raise ValueError("pass the model's inputs, for example result.predict(x)")
        # All together: a keyword alone, such as a scale, need not have rows.
        positions = [str(index) for index in range(len(args))]
        values = as_batch(dict(zip(positions, args, strict=True)) | kwargs, "predict").kwargs
        batch = Batch(tuple(values.pop(position) for position in positions), values)
        names = argument_names(self._model())
        check_finite(batch, "predict", names)
        given = set(names[: len(args)]) | set(kwargs)
        parameters = inspect.signature(self._model()).parameters
        left_out = [name for name in names if name not in given and parameters[name].default is inspect.Parameter.empty]
        natural = self.posterior.natural
        return Batch(batch.args, batch.kwargs | dict.fromkeys(left_out)).to(natural.device, natural.dtype)
