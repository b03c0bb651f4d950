"""Newton for many clients at once: what each client gets alone, step by step."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from toy_programs import F64, normal

from pvi.engine import Engine
from pvi.problem import build_problem
from pvi.row_likelihoods import RowLikelihood
from pvi.solvers import ManySolver, Newton, NotExactError

TRUTH = torch.tensor([0.8, -0.5, 0.3], dtype=F64)
SIZES = [40, 7, 25, 1, 40, 12]


def likelihood(kind, f):
    if kind == "bernoulli":
        return dist.Bernoulli(logits=f)
    if kind == "poisson":
        return dist.Poisson(f.exp())
    if kind == "normal":
        return dist.Normal(f, 0.7)
    return dist.StudentT(4.0, f, 0.5)


def model_of(kind):
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
        bias = pyro.sample("bias", dist.Normal(x.new_zeros(()), 2.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", likelihood(kind, x @ weights + bias), obs=y)

    return model


def clients_of(kind, sizes=SIZES):
    """Unlike clients: columns on other scales, coefficients of their own."""
    found = []
    for index, size in enumerate(sizes):
        x = normal(size, 3, seed=index) * (0.3 + 0.5 * index) ** torch.tensor([0.0, 1.0, 0.5], dtype=F64)
        f = (x @ (TRUTH + 0.4 * normal(3, seed=100 + index))).clamp(-3, 3)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(index)
            y = {"bernoulli": torch.bernoulli(f.sigmoid()), "poisson": torch.poisson(f.exp())}.get(kind)
        found.append((x, f + normal(size, seed=200 + index) if y is None else y))
    return found


def federation(model, clients, guide=None, dtype=F64):
    built = build_problem(model, clients, guide, torch.device("cpu"), dtype)
    return list(built.clients.values()), built.prior.natural


def compare(problems, cavities, starts, solver=None, engine=None, tolerance=1e-10):
    """Both ways, compared in posterior standard deviations; the infos of the batch."""
    solver = solver or Newton()
    engine = engine or Engine(compile=False)
    alone = [solver.solve(*given, 0) for given in zip(problems, cavities, starts, strict=True)]
    many = solver.solve_many(problems, cavities, starts, [0] * len(problems), engine)
    for problem, (one, own), (other, info) in zip(problems, alone, many, strict=True):
        family = problem.family
        distance = (family.free(other) - family.free(one)) / family.free_scale(one)
        assert distance.abs().max() <= tolerance, (problem.client, own, info)
        assert info.steps == own.steps, (problem.client, own, info)
        assert info.converged == own.converged
        assert info.message.split("(")[0] == own.message.split("(")[0]
        assert info.free_energy == pytest.approx(own.free_energy, rel=tolerance, abs=tolerance)
    return [info for _, info in many]


GUIDES = [None, "full"]
KINDS = ["bernoulli", "poisson", "normal", "student"]


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_client_takes_its_own_steps(kind, guide):
    problems, prior = federation(model_of(kind), clients_of(kind), guide)
    starts = [problems[0].family.relocate(prior / (1 + k), 0.3 * normal(4, seed=k)) for k in range(len(problems))]
    infos = compare(problems, [(0.5 + 0.2 * k) * prior for k in range(len(problems))], starts)
    assert all(info.converged for info in infos), infos
    assert len({info.steps for info in infos}) > 1


@pytest.mark.parametrize("captured", [True, False])
@pytest.mark.parametrize("guide", GUIDES)
def test_what_an_engine_keeps_changes_nothing(guide, captured, monkeypatch):
    monkeypatch.setattr("pvi.row_likelihoods.WORTH", 0 if captured else 10**12)
    problems, prior = federation(model_of("bernoulli"), clients_of("bernoulli"), guide)
    engine, given = Engine(compile=False), ([prior] * len(problems), [prior] * len(problems))
    for _ in range(2):
        compare(problems, *given, engine=engine)
    assert bool(engine._graphs) == captured
    # Any part of the clients, in any order.
    compare([problems[index] for index in (4, 1, 2)], [prior] * 3, [prior] * 3, engine=engine)


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", ["bernoulli", "poisson"])
def test_improper_cavities_beside_proper_ones(kind, guide):
    problems, prior = federation(model_of(kind), clients_of(kind, [40, 30, 35]), guide)
    family = problems[0].family
    taken = family.quadratic(
        torch.tensor([0.3, 0.0, -0.2, 0.1], dtype=F64),
        torch.eye(4, dtype=F64),
        torch.tensor([1.2, 0.5, 0.0, 0.1], dtype=F64),
        torch.zeros(4, dtype=F64),
    )
    cavities = [prior, prior - taken, prior + taken]
    assert family.is_proper(torch.stack(cavities)).tolist() == [True, False, True]
    infos = compare(problems, cavities, [prior] * 3)
    assert all(info.converged for info in infos), infos


def test_one_that_does_not_converge_beside_others_that_do():
    problems, prior = federation(model_of("bernoulli"), clients_of("bernoulli", [40, 30, 35]))
    family = problems[0].family
    # No q is best: the cavity takes away more than the rows give.
    unbounded = prior - family.quadratic(
        torch.zeros(4, dtype=F64), torch.eye(4, dtype=F64), 40 * torch.ones(4, dtype=F64), torch.zeros(4, dtype=F64)
    )
    infos = compare(problems, [prior, unbounded, prior], [prior] * 3, Newton(max_steps=20))
    assert [info.converged for info in infos] == [True, False, True]
    exact, _ = Newton().solve(problems[0], prior, prior, 0)
    infos = compare(problems, [prior] * 3, [exact, prior, prior], Newton(max_steps=4))
    assert [info.converged for info in infos] == [True, False, False]
    assert infos[1].message == "not converged after 4 steps"


@pytest.mark.parametrize("guide", GUIDES)
def test_barely_identified_clients(guide):
    """Two outcomes of forty are 1, the prior is wide: many steps, most of them Anderson's."""
    clients = [
        (x, torch.zeros_like(y).index_fill(0, torch.tensor([0, 1]), 1.0))
        for x, y in clients_of("bernoulli", [40, 25, 40])
    ]
    problems, prior = federation(model_of("bernoulli"), clients, guide)
    infos = compare(problems, [0.01 * prior] * 3, [prior] * 3)
    assert max(info.steps for info in infos) > 8
    assert all(info.converged for info in infos), infos


@pytest.mark.parametrize("guide", GUIDES)
def test_clients_with_latents_of_their_own(guide):
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        own = pyro.sample("own", dist.Normal(weights[0] if guide else 0.0, 0.5), infer={"pvi": "private"})
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Bernoulli(logits=x @ weights + own), obs=y)

    problems, prior = federation(model, clients_of("bernoulli"), guide)
    cavities = [problem.local_cavity(prior) for problem in problems]
    starts = [problem.local(prior, problem.conditional) for problem in problems]
    assert problems[0].family.size == 4
    infos = compare(problems, cavities, starts)
    assert all(info.converged for info in infos), infos


def test_one_latent_a_row():
    """The number of latents is that of the rows: clients of equal size share a family, others do not."""

    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            own = pyro.sample("own", dist.Normal(x.new_zeros(()), 0.5))
            pyro.sample("y", dist.Poisson((x @ weights + own).exp()), obs=y)

    problems, prior = federation(model, clients_of("poisson", [6, 4, 6, 5]))
    cavities = [problem.local_cavity(prior) for problem in problems]
    starts = [problem.local(prior, problem.conditional) for problem in problems]
    infos = compare(problems, cavities, starts)
    assert all(info.converged for info in infos), infos


def test_single_precision():
    problems, prior = federation(model_of("bernoulli"), clients_of("bernoulli"), dtype=torch.float32)
    solver, engine = Newton(), Engine(compile=False)
    many = solver.solve_many(problems, [prior] * 6, [prior] * 6, [0] * 6, engine)
    for problem, (natural, info) in zip(problems, many, strict=True):
        family = problem.family
        alone, own = solver.solve(problem, prior, prior, 0)
        assert natural.dtype == torch.float32
        assert info.converged
        assert abs(info.steps - own.steps) <= 1
        # The solver's tolerance is eps^0.6, 7e-5 standard deviations.
        distance = (family.free(natural) - family.free(alone)) / family.free_scale(alone)
        assert distance.abs().max() < 5e-4


def has_graph(problems, monkeypatch):
    """Whether one graph serves these clients."""
    monkeypatch.setattr("pvi.row_likelihoods.WORTH", 0)
    return RowLikelihood(problems, Engine(compile=False)).ready()


def test_one_graph_serves_all_clients_where_that_is_right(monkeypatch):
    problems, _ = federation(model_of("bernoulli"), clients_of("bernoulli"))
    assert has_graph(problems, monkeypatch)

    def counting(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        with pyro.plate("rows", len(y)), pyro.poutine.scale(scale=10 / len(y)):
            pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    def centred(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(x @ weights, 1.0), obs=y - y.mean())

    def own_noise(x, y, noise):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(x @ weights, noise), obs=y)

    def looking(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        scale = 1.0 if float(y.sum()) > 5 else 0.5
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(scale * (x @ weights), scale), obs=y)

    normals = clients_of("normal")
    noisy = [(*client, torch.tensor(0.5 + k, dtype=F64)) for k, client in enumerate(normals)]
    for model, clients in (
        (counting, clients_of("bernoulli")),
        (centred, normals),
        (own_noise, noisy),
        (looking, normals),
    ):
        problems, prior = federation(model, clients)
        assert not has_graph(problems, monkeypatch), model
        infos = compare(problems, [prior] * 6, [prior] * 6)
        assert all(info.converged for info in infos), infos


def test_rows_with_data_of_their_own_in_the_likelihood(monkeypatch):
    """The graph takes what it needs of the data: noise and exposure here, of some clients in any order."""

    def model(x, noise, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.StudentT(4.0, x @ weights, noise), obs=y)

    clients = [(x, 0.3 + normal(len(y), seed=k).square(), y) for k, (x, y) in enumerate(clients_of("student"))]
    problems, prior = federation(model, clients)
    assert has_graph(problems, monkeypatch)
    compare(problems, [prior] * 6, [prior] * 6)


def test_large_clients_are_blocks_of_their_own(monkeypatch):
    monkeypatch.setattr("pvi.blocks.ROWS", 60)
    monkeypatch.setattr("pvi.row_likelihoods.WORTH", 0)
    monkeypatch.setattr("pvi.row_graph.CAPACITY", 2100)
    problems, prior = federation(model_of("bernoulli"), clients_of("bernoulli", [40, 7, 25, 300, 41, 12, 9, 30]))
    compare(problems, [prior] * 8, [prior] * 8)


def test_other_models_are_refused_with_the_client():
    def model(y):
        loc = pyro.sample("loc", dist.Normal(1.0, 2.0))
        scale = pyro.sample("scale", dist.LogNormal(0.3, 0.5))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(loc, scale), obs=y)

    problems, prior = federation(model, [(normal(5),), (normal(6),)])
    with pytest.raises(NotExactError, match="client 'client 0'"):
        Newton().solve_many(problems, [prior] * 2, [prior] * 2, [0, 0], Engine(compile=False))


def test_newton_is_a_solver_for_many():
    assert isinstance(Newton(), ManySolver)
    problems, prior = federation(model_of("bernoulli"), clients_of("bernoulli"))
    assert Newton().pays_together(problems)
    assert not Newton().pays_together(problems[:1])
    assert Newton().bytes_a_client(problems[0]) > problems[0].predictor.design.nbytes
    assert prior.dtype == F64


@pytest.mark.parametrize("guide", GUIDES)
def test_rows_products_of_families_broadcast(guide):
    problems, prior = federation(model_of("bernoulli"), clients_of("bernoulli", [9, 9, 9]), guide)
    family = problems[0].family
    naturals = torch.stack([(1 + k) * prior for k in range(3)])
    designs, weights, at = normal(3, 9, 4), normal(3, 9, seed=1), normal(3, 4, seed=2)
    for squares in (None, designs.square()):
        variances = family.predictor_variance(naturals, designs, squares)
        quadratics = family.quadratic(at, designs, weights, 2 * at, squares)
        for k in range(3):
            torch.testing.assert_close(variances[k], family.predictor_variance(naturals[k], designs[k]))
            torch.testing.assert_close(quadratics[k], family.quadratic(at[k], designs[k], weights[k], 2 * at[k]))
    moved, precisions = family.relocate(naturals, at), family.precision_matrix(naturals)
    for k in range(3):
        torch.testing.assert_close(moved[k], family.relocate(naturals[k], at[k]))
        torch.testing.assert_close(precisions[k], family.precision_matrix(naturals[k]))
