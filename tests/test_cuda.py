"""The same answers on a CUDA device as on the CPU."""

from functools import partial

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch.distributions import constraints

import pvi
from pvi.executors import Vectorised
from pvi.models import bayesian_mlp, bayesian_vgg, logistic_regression, mixed_logistic_regression
from pvi.replay import Replayed

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


def data() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    y = (torch.rand(60, generator=generator, dtype=torch.float64) < torch.sigmoid(x[:, 0])).double()
    return [(x[:30], y[:30]), (x[30:], y[30:])]


@pytest.mark.parametrize("guide", [None, "full"])
def test_newton_on_cuda_is_newton_on_the_cpu(guide):
    cpu = pvi.fit(logistic_regression.model, data(), guide, damping=0.5, rounds=5)
    cuda = pvi.fit(logistic_regression.model, data(), guide, damping=0.5, rounds=5, device="cuda")
    assert cuda.posterior.natural.is_cuda
    assert torch.allclose(cuda.posterior.natural.cpu(), cpu.posterior.natural, atol=1e-6)
    assert cuda.predict(data()[0][0].cuda(), num_samples=10)["y"].is_cuda


@pytest.mark.parametrize("solver", [pvi.solvers.SVI(steps=600), pvi.solvers.PyroSVI(steps=400)])
def test_stochastic_solvers_run_on_cuda(solver):
    exact = pvi.fit(logistic_regression.model, data(), damping=0.5, rounds=3)
    cuda = pvi.fit(logistic_regression.model, data(), damping=0.5, rounds=3, solver=solver, device="cuda")
    distance = (cuda.posterior.mean["weights"].cpu() - exact.posterior.mean["weights"]) / exact.posterior.sd["weights"]
    assert distance.abs().max() < 0.5


def test_a_saved_result_from_cuda_loads_on_the_cpu(tmp_path):
    cuda = pvi.fit(logistic_regression.model, data(), rounds=1, device="cuda")
    cuda.save(tmp_path / "run")
    assert torch.equal(pvi.load(tmp_path / "run").posterior.natural, cuda.posterior.natural.cpu())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_device_s_global_generator_is_left_alone(device):
    torch.cuda.manual_seed(7)
    before = torch.cuda.get_rng_state()
    result = pvi.fit(logistic_regression.model, data(), rounds=1, solver=pvi.solvers.PyroSVI(steps=5), device=device)
    result.predict(data()[0][0], num_samples=3)
    assert torch.equal(before, torch.cuda.get_rng_state())


def learned(x, y):
    scale = pyro.param("scale", x.new_tensor(1.0), constraint=constraints.positive)
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), scale).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def sparse(x, y):
    weights = pyro.sample("weights", dist.Laplace(x.new_zeros(3), 0.3).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (mixed_logistic_regression.model, {"guide": "full", "acceleration": "anderson"}),
        (learned, {"learn": "all"}),
        (sparse, {"guide": "full"}),
        (logistic_regression.model, {"algorithm": "power-ep", "guide": "full"}),
        (logistic_regression.model, {"damping": "auto", "schedule": "asynchronous"}),
    ],
    ids=["private and accelerated", "learned", "foreign prior", "power EP", "searched damping"],
)
def test_the_whole_method_is_the_same_on_cuda(model, options):
    options = {"damping": 0.5, "rounds": 4} | options
    cpu, cuda = pvi.fit(model, data(), **options), pvi.fit(model, data(), device="cuda", **options)
    assert cuda.posterior.natural.is_cuda
    for site in cpu.posterior.site_names:
        off = (cuda.posterior.mean[site].cpu() - cpu.posterior.mean[site]) / cpu.posterior.sd[site]
        # The draws of a foreign prior's problem come from another generator there.
        assert off.abs().max() < (0.05 if model is sparse else 1e-5)


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("batch_size", [None, 10])
def test_recorded_steps_are_those_of_the_loop(compile, batch_size):
    solver = pvi.solvers.SVI(steps=60, batch_size=batch_size)
    options = {"damping": 0.5, "rounds": 2, "solver": solver, "device": "cuda"}
    loop = pvi.fit(logistic_regression.model, data(), executor="loop", **options)
    recorded = pvi.fit(logistic_regression.model, data(), executor=Vectorised(compile=compile), **options)
    assert recorded.settings["executor"] == "vectorised"
    assert torch.allclose(loop.posterior.natural, recorded.posterior.natural, rtol=1e-6, atol=1e-6)


def test_a_recording_sees_new_and_changed_arguments():
    add = Replayed(lambda a, b: (a + b,), (torch.zeros(3, device="cuda"), torch.ones(3, device="cuda")))
    one, two = torch.ones(3, device="cuda"), torch.full((3,), 2.0, device="cuda")
    first = add(one, two)[0]
    two.add_(1)
    assert add(one, two)[0].tolist() == [4.0] * 3
    assert first.tolist() == [3.0] * 3


PHOTOS = partial(bayesian_vgg.model, layers=(4, "M", 6, "M"), classes=3)


def photos(rows=24):
    generator = torch.Generator().manual_seed(0)
    found = {}
    for name in ("north", "south", "west"):
        y = torch.arange(rows) % 3
        x = torch.rand(rows, 3, 8, 8, generator=generator, dtype=torch.float64)
        x[:, 0] += y[:, None, None]
        found[name] = x, y
    return found


def personal(executor, device, **options):
    settings = {"local_iterations": 6, "num_particles": 3, "batch_size": 8, "learning_rate": 0.01, "subset": 2}
    algorithm = pvi.PFedBayes(**settings | {"global_learning_rate": 0.01} | options)
    guide = bayesian_mlp.mean_field_guide(PHOTOS)
    return pvi.fit(PHOTOS, photos(), guide, algorithm, rounds=3, executor=executor, device=device, elbo_samples=500)


@pytest.mark.parametrize("average", ["parameters", "moments"])
@pytest.mark.parametrize("compile", [False, True])
def test_personal_posteriors_of_the_loop_and_of_all_clients_at_once_on_cuda(average, compile):
    loop = personal("loop", "cuda", average=average)
    together = personal(Vectorised(compile=compile), "cuda", average=average)
    assert "vectorised" in together.settings["executor"]
    assert together.posterior.natural.is_cuda
    # Convolutions add up in an order of their own for a client and for several.
    torch.testing.assert_close(together.posterior.natural, loop.posterior.natural, rtol=1e-6, atol=1e-6)
    for name, own in loop.personal.items():
        assert together.personal[name].natural.is_cuda
        torch.testing.assert_close(together.personal[name].natural, own.natural, rtol=1e-6, atol=1e-6)


def test_personal_posteriors_have_the_same_objective_on_cuda_at_a_start_without_noise():
    """σ near 0: what is drawn does not matter. First rounds that stay where they are, then some that do not."""
    known = {"initial_rho": -14.0, "batch_size": None, "optimiser": "sgd", "global_learning_rate": 0.0}
    still, moved = known | {"zeta": 1.0, "learning_rate": 0.0}, known | {"zeta": 0.0, "learning_rate": 2e-3}
    cpu, cuda = (personal("vectorised", device, **still) for device in ("cpu", "cuda"))
    assert cuda.elbo == pytest.approx(cpu.elbo, rel=1e-5)
    begun = cpu.elbo
    cpu, cuda = (personal("vectorised", device, **moved) for device in ("cpu", "cuda"))
    assert cuda.elbo == pytest.approx(cpu.elbo, rel=1e-4)
    assert cuda.elbo > begun + 0.3
    for name, own in cpu.personal.items():
        for site, mean in own.mean.items():
            torch.testing.assert_close(cuda.personal[name].mean[site].cpu(), mean, rtol=1e-3, atol=1e-5)


POINTS = {
    "fola": pvi.FOLA(local_iterations=6, batch_size=10, learning_rate=0.1),
    "fola, gauss-newton, full": pvi.FOLA(structure="full", curvature="ggn", local_iterations=6, batch_size=10),
    "fola-offline": pvi.FOLAOffline(local_iterations=6, batch_size=10),
    "fedcurv": pvi.FedCurv(local_iterations=6, batch_size=10),
    "fedpa": pvi.FedPA(),
    "scaffold": pvi.SCAFFOLD(local_iterations=6, batch_size=10),
    "per-fedavg": pvi.PerFedAvg(),
}


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("compile", [False, True])
def test_gradient_steps_of_the_loop_and_of_all_clients_at_once_on_cuda(name, compile):
    loop, together = (
        pvi.fit(logistic_regression.model, data(), algorithm=POINTS[name], rounds=3, executor=executor, device="cuda")
        for executor in ("loop", Vectorised(compile=compile))
    )
    assert together.posterior.natural.is_cuda
    assert together.settings["executor"] == "vectorised"
    torch.testing.assert_close(together.posterior.natural, loop.posterior.natural, rtol=1e-8, atol=1e-8)
