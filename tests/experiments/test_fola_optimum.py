"""AE and LF against scikit-learn's optimum and autodiff's Hessian; their correlations against SciPy; the folder."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from experiments.test_fola_study import PIXELS, TINY, made_up, stored  # noqa: F401
from rich.console import Console

from pvi.cli.experiment_run import Request, run
from pvi.experiments import FOLAStudy
from pvi.experiments.claims import answered
from pvi.experiments.fola_optimum import optimum
from pvi.experiments.fola_tables import coefficients, correlation, correlation_table, ridge_table
from pvi.experiments.play import frame, play


def test_the_optimum_is_scikit_learn_s():
    from sklearn.linear_model import LogisticRegression

    x, y = made_up(120, 3)
    best = optimum((x, y), classes=10, prior_scale=0.5)
    design = np.hstack([x.double().numpy(), np.ones((120, 1))])  # whose prior the intercept has too
    found = LogisticRegression(C=0.25, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(design, y)
    np.testing.assert_allclose(best.theta.numpy(), found.coef_, atol=1e-5)
    assert best.gradient < 1e-3


def test_distances_are_negative_log_densities():
    """Of N(θ*, Λ*⁻¹), Λ* by automatic differentiation of the log joint."""
    x, y = made_up(60, 3)
    best = optimum((x, y), classes=10, prior_scale=0.7)

    def loss(flat):
        theta = flat.reshape(10, PIXELS + 1)
        logits = torch.nn.functional.linear(x.double(), theta[:, :-1], theta[:, -1])
        return torch.nn.functional.cross_entropy(logits, y, reduction="sum") + 0.5 * flat.square().sum() / 0.7**2

    flat = best.theta.flatten()
    law = torch.distributions.MultivariateNormal(flat, precision_matrix=torch.autograd.functional.hessian(loss, flat))
    for seed in range(3):
        moved = best.theta + 0.3 * torch.randn(10, PIXELS + 1, generator=torch.Generator().manual_seed(seed)).double()
        found = best.distance({"weights_1": moved[:, :-1], "bias_1": moved[:, -1]})
        assert found == pytest.approx(-law.log_prob(moved.flatten()).item(), rel=1e-9)
        assert found > best.least
    assert best.least == pytest.approx(-law.log_prob(flat).item(), rel=1e-9)


def test_clients_of_every_concentration_have_the_same_rows(stored):  # noqa: F811
    experiment = FOLAStudy(**{**TINY, "study": "correlation", "alphas": "0.1,100"})
    setting = experiment.setting(0, None)
    methods = experiment.methods(setting)
    assert len(methods) == 2 * 7
    assert methods[0].name.endswith("α = 0.1")
    assert methods[-1].name == "FOLA, E = 10, α = 100"
    pooled = []
    for method in (methods[0], methods[-1]):
        x, y = (torch.cat(parts) for parts in zip(*method.options["clients"].values(), strict=True))
        pooled.append(sorted([*row.tolist(), label] for row, label in zip(x, y.tolist(), strict=True)))
    assert pooled[0] == pooled[1]
    labels = [method.options["clients"]["client 1"][1].bincount(minlength=10) for method in (methods[0], methods[-1])]
    assert labels[0].double().std() > 2 * labels[1].double().std()


def test_measured_beside_the_optimum(stored):  # noqa: F811
    experiment = FOLAStudy(**{**TINY, "study": "correlation", "alphas": "1", "epochs": 20})
    parts = {part.method: part for part in play(experiment, only=["FOLA full, α = 1", "FedAvg, α = 1"])}
    for part in parts.values():
        last, best = part.records[-1], part.setting.optimum
        assert last["ae"] == pytest.approx(best.distance(part.result.posterior.mean), rel=1e-6)
        local = [best.distance(part.result.personal[name].mean) for name in part.setting.clients]
        assert last["lf"] == pytest.approx(np.mean(local), rel=1e-6)
        assert last["least"] == best.least < min(last["ae"], last["lf"])
        assert part.records[0]["ae"] > last["ae"]  # it converges
    assert experiment.metrics == ("ga", "la", "ae", "lf")


def curves_of(seed=0):
    """Accuracies that fall with the densities, at two concentrations, and columns that others have."""
    rng = np.random.default_rng(seed)
    rows = []
    for alpha in (0.1, 10.0):
        for method in ("FedAvg", "FOLA, E = 2"):
            for number in range(1, 6):
                ae, lf = rng.normal(size=2)
                rows.append({
                    "seed": 0, "method": f"{method}, α = {alpha:g}", "round": number, "messages": 4 * number,
                    "seconds": 1.0, "ae": ae, "lf": lf, "ga": 50 - 5 * ae + rng.normal(), "la": 40 + lf, "least": -5.0,
                })  # fmt: skip
    return pd.DataFrame(rows)


def test_correlations_are_scipy_s():
    found = correlation_table(curves_of())
    assert found["alpha"].tolist() == [0.1] * 10 + [10.0] * 10
    assert found["method"].unique().tolist() == ["FedAvg", "FOLA, E = 2"]
    table = coefficients(found).set_index(["alpha", "distance"])
    for (alpha, distance), row in table.iterrows():
        pair = found.loc[found["alpha"] == alpha, [distance, row["accuracy"]]].to_numpy().T
        assert row["spearman"] == pytest.approx(scipy.stats.spearmanr(*pair).statistic)
        assert row["pearson"] == pytest.approx(scipy.stats.pearsonr(*pair).statistic)
    assert np.isnan(correlation(pd.DataFrame({"a": [1.0, 1.0, 1.0], "b": [1.0, 2.0, 3.0]})).pearson)


def test_claims_of_correlations():
    claims = FOLAStudy(study="correlation", alphas="0.1,10,100").claims()
    found = answered(claims, curves_of())  # α = 100 was not run
    assert {text: [verdict.holds for verdict in said] for text, said in found.items()} == {
        "GA falls as AE rises": [True, True], "LA falls as LF rises": [False, False]
    }  # fmt: skip
    assert answered(claims, curves_of().drop(columns="ae")) == {}
    assert ridge_table(curves_of()).empty


@pytest.mark.parametrize(
    ("study", "options", "only", "pictures"),
    [
        ("covariance", {"points": 3}, ["diagonal, online", "FedAvg"], ["ridge.csv", "ridge.png"]),
        ("correlation", {"alphas": "0.1,1"}, ["FOLA, α = 0.1", "FOLA, E = 2, α = 1"],
         ["coefficients.csv", "correlation.csv", "correlation.png"]),
        ("table", {}, ["FOLA", "FedAvg"], []),
    ],
)  # fmt: skip
def test_the_folder_of_a_study(stored, tmp_path, study, options, only, pictures):  # noqa: F811
    request = Request(command=f"pvi experiment fola --study {study}", out=tmp_path / "run", only=only)
    given = {**TINY, "rounds": 3, "study": study, **options}
    for _ in range(2):  # a second run replaces the first one's files and takes none for a user's
        assert run(FOLAStudy, given, request, Console(quiet=True))
    names = sorted(path.name for path in request.out.iterdir())
    assert [name for name in names if name.startswith("picture-")] == [f"picture-{name}" for name in pictures]
    page = (request.out / "README.md").read_text(encoding="utf-8")
    assert all(f"({name})" in page for name in names if name.startswith("picture-") and name.endswith(".png"))
    assert all(f"| {name} |" in page for name in only)
    curves = pd.read_csv(request.out / "curves.csv")
    again = run(FOLAStudy, given, request._replace(resume=True), Console(quiet=True))
    assert again
    pd.testing.assert_frame_equal(pd.read_csv(request.out / "curves.csv"), curves)
    if study == "covariance":
        ridge = pd.read_csv(request.out / "picture-ridge.csv")
        assert ridge.groupby(["method", "round"]).size().to_dict() == {(name, n): 3 for name in only for n in (1, 3)}
        last = ridge.query("round == 3 and method == 'FedAvg'").set_index("pi_1")["ga"]
        assert last[0.5] == pytest.approx(curves.query("round == 3 and method == 'FedAvg'")["ga_at_0.50"].item())


def test_the_frame_keeps_what_was_measured(stored):  # noqa: F811
    part = next(iter(play(FOLAStudy(**{**TINY, "rounds": 1}), only=["FedAvg"])))
    assert {"ga", "la", "elbo", "messages"} <= set(frame(part.records))
