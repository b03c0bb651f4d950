"""The local solver of FedCurv: FedAvg's steps, held where the other clients' losses are curved (Shoham et al. 2019).

    -(1/b) Σ_j log p(y_j | θ) + (λ/n) ½ Σ_{m ≠ k} (θ - θ_m)ᵀ F_m (θ - θ_m)

θ_m is where client m's last visit ended, and F_m the diagonal of the empirical Fisher information of its rows there,
summed over them; n are the rows of all clients. The server holds Σ F_m and Σ F_m θ_m beside q; a client takes its own
part away from both. They are sums of changes, of parts that may shrink by orders of magnitude from round to round, and
so have double precision. q's precision is Λ_p + Σ F_m, up to rounding, which the next answers take back.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pvi.families.precision import natural_from_precision, precision
from pvi.objectives import LocalProblem
from pvi.solvers.checks import check_number, check_shared_mean_field
from pvi.solvers.descent import Descent
from pvi.solvers.laplace_checks import check_laplace
from pvi.solvers.personal import Given, Personal
from pvi.solvers.points import check_epochs, rows_of
from pvi.solvers.rule import Begun, Ended, Likelihood
from pvi.solvers.step_curvature import remark, whole_curvature

METHOD = "FedCurv"


@dataclass(frozen=True)
class CurvaturePenalty(Descent):
    """Gradient steps under the others' curvature; ``penalty`` is λ, the rest :class:`~pvi.solvers.descent.Descent`'s.

    With ``keep_local`` the client keeps where it ended as its personal posterior. Raises ``ValueError`` for values
    out of range.
    """

    penalty: float = 1.0
    keep_local: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(METHOD, penalty=self.penalty)

    @property
    def name(self) -> str:
        """``curved-steps``."""
        return "curved-steps"

    @property
    def method(self) -> str:
        """What messages call the method."""
        return METHOD

    @property
    def by_layer(self) -> Literal["squares"]:
        """Layers make squared gradients of rows as cheap as one gradient."""
        return "squares"

    def check(self, problem: LocalProblem) -> None:
        """The latents are shared, q is mean field, and the likelihood is a sum over rows."""
        check_shared_mean_field(problem, METHOD, "averages every latent")
        check_laplace(problem, METHOD, "diagonal", "empirical-fisher")
        check_epochs(problem, METHOD, self.epochs)

    def begin(self, problem: LocalProblem, given: Given, rows_a_step: int) -> Begun:
        """The state (θ, the optimiser's memory), and (Σ F_m, Σ F_m θ_m) over the others, 1/n_k and λ/n."""
        rows, setting = rows_of(problem), given.setting
        theta = problem.family.location(given.natural)
        others, towards = (_whole(given, theta) - _own(given, theta)).to(theta)
        share, weight = theta.new_tensor(1 / rows), theta.new_tensor(self.penalty * setting.row_share / rows)
        return Begun((theta, *self.stepper.init(theta)), (others, towards, share, weight))

    def step(
        self, problem: LocalProblem, begun: Begun, numbers: Tensor, at: Likelihood
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """One step of θ; the value is the log likelihood of the client's rows as the step's have it, in nats."""
        theta, *memory = begun.state
        others, towards, share, weight = begun.fixed
        gradient, value = torch.func.grad_and_value(at(theta, theta))(theta)
        move, kept = self.stepper.step(tuple(memory), weight * (others * theta - towards) - share * gradient)
        return (theta + move, *kept), value

    def end(self, problem: LocalProblem, begun: Begun, given: Given) -> Ended:
        """q with its mean at θ and F_k in the place of its old one; beside q the changes of F_k and F_k θ_k."""
        family, theta, setting = problem.family, begun.state[0], given.setting
        mean = whole_curvature(problem, theta, None, "empirical-fisher", "diagonal", begun.layers)
        fisher = rows_of(problem) * mean.double()
        new, own = torch.stack([fisher, fisher * theta]), _own(given, theta)
        sent = precision(family, given.natural).double()
        rounding = sent - precision(family, setting.prior.natural) - _whole(given, theta)[0]
        after = (sent - rounding / setting.num_clients - own[0] + fisher).to(theta)
        natural = natural_from_precision(family, theta, after)
        kept = Personal(natural if self.keep_local else None, (new,))
        others, _, _, weight = begun.fixed
        rate = self.learning_rate if self.optimiser == "sgd" else 0.0
        return Ended(natural, kept, new - own, remark(natural, after, "empirical-fisher", rate, weight * others))


def _whole(given: Given, like: Tensor) -> Tensor:
    """(Σ F_m, Σ F_m θ_m) over all clients' last visits, ``[2, size]``, 0 before the first."""
    beside = given.setting.beside
    return (
        torch.zeros(2, len(like), dtype=torch.float64, device=like.device) if beside is None else beside.to(like.device)
    )


def _own(given: Given, like: Tensor) -> Tensor:
    """(F_k, F_k θ_k) of the client's last visit, 0 before the first."""
    if given.personal is None:
        return torch.zeros(2, len(like), dtype=torch.float64, device=like.device)
    return given.personal.memory[0].to(like.device)
