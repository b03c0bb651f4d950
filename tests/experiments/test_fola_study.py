"""FOLA's experiment: who gets which images, the studies' methods, and what is measured, against plain torch."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import pvi_data

from pvi.data.images import OBJECTS, Images
from pvi.experiments import FOLAStudy, fola_accuracy, skewed_images
from pvi.experiments.claims import answered
from pvi.experiments.fola_data import dirichlet_parts, half_parts
from pvi.experiments.fola_methods import (
    EXPERTS_ONLY,
    FEDAVG,
    FEDCURV,
    FEDPA,
    FEDPROX,
    FOLA,
    OFFLINE,
    PRIOR_ONLY,
    SCAFFOLD,
    covariance,
    samples,
)
from pvi.experiments.play import frame, play
from pvi.experiments.published_fola import CIFAR10, after, table_claims
from pvi.experiments.summary import last_rounds, table

PIXELS = 6
TINY = {"clients": 4, "rounds": 2, "epochs": 2, "batch": 10, "rate": 0.1, "seeds": 1, "compile": False, "alpha": 0.1}


def made_up(number, seed):
    """Ten clouds of points, the same for every part."""
    centres = torch.randn(10, PIXELS, generator=torch.Generator().manual_seed(0))
    y = torch.arange(number) % 10
    return centres[y] + 0.5 * torch.randn(number, PIXELS, generator=torch.Generator().manual_seed(seed)), y


@pytest.fixture
def stored(monkeypatch):
    """200 made-up images to learn from and 70 to test on."""

    def read(data_dir, part):
        return Images("mnist", *made_up(*((200, 1) if part == "train" else (70, 2))), OBJECTS)

    monkeypatch.setitem(skewed_images.SETS, "mnist", read)


def played(experiment, only=()):
    return {part.method: part for part in play(experiment, only=only)}


def by_hand(weights, x):
    """Class probabilities of the network in torch alone, up to a constant of the row, ``[n, 10]``."""
    layers = len(weights) // 2
    for layer in range(1, layers + 1):
        x = torch.nn.functional.linear(x, weights[f"weights_{layer}"], weights[f"bias_{layer}"])
        x = torch.relu(x) if layer < layers else x
    return x


def accuracy(weights, rows):
    return 100 * (by_hand(weights, rows[0]).argmax(1) == rows[1]).double().mean().item()


@pytest.mark.parametrize("alpha", [0.01, 1.0, 1000.0])
def test_clients_of_equal_size_have_every_image_once(alpha):
    y = np.arange(1000) % 10
    parts = dirichlet_parts(y, 8, alpha, seed=3)
    assert {len(part) for part in parts.values()} == {125}
    assert sorted(np.concatenate(list(parts.values()))) == list(range(1000))
    away = np.mean([0.5 * np.abs(np.bincount(y[part], minlength=10) / 125 - 0.1).sum() for part in parts.values()])
    assert (away > 0.5) if alpha < 1 else (away < 0.15) if alpha > 1 else (0.2 < away < 0.6)
    other = dirichlet_parts(y, 8, alpha, seed=4)
    assert any(len(parts[name]) != len(other[name]) or (parts[name] != other[name]).any() for name in parts)


def test_two_clients_of_five_digits_each():
    y = np.array([3, 9, 0, 5, 4, 5])
    parts = half_parts(y)
    assert [part.tolist() for part in parts.values()] == [[0, 2, 4], [1, 3, 5]]


def test_a_client_without_images_is_named(stored):
    with pytest.raises(ValueError, match="client 2 would have none of the 1 images: use more images"):
        FOLAStudy(study="covariance", train=1).setting(0, None)


def test_squares_of_pixels_are_averaged(monkeypatch):
    x = torch.rand(20, 784, generator=torch.Generator().manual_seed(0))
    monkeypatch.setitem(skewed_images.SETS, "fmnist", lambda data_dir, part: Images(
        "fmnist", x, torch.arange(20) % 10, OBJECTS))  # fmt: skip
    setting = FOLAStudy(dataset="fmnist", pixels=14, clients=2).setting(0, None)
    image = x[0].reshape(14, 2, 14, 2).mean((1, 3)).flatten()
    torch.testing.assert_close(setting.test[0][0], image)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"study": "tables"}, "study is table or covariance or correlation, not 'tables'"),
        ({"dataset": "adult"}, "dataset is mnist or fmnist or cifar10"),
        ({"pixels": 7}, "pixels is 28 or 14, not 7"),
        ({"study": "covariance", "dataset": "cifar10"}, "the study covariance is of softmax regression on mnist or"),
        ({"alpha": 0.0}, "alpha and alphas must be above 0"),
        ({"alphas": "1,x"}, "alphas are numbers with commas between them, not '1,x'"),
        ({"alphas": "1,-1"}, "alpha and alphas must be above 0"),
        ({"points": 1}, "points must be at least 2"),
        *[({name: 0}, f"{name} must be at least 1, not 0")
          for name in ("clients", "epochs", "batch", "rounds", "train", "test", "every")],
    ],
)  # fmt: skip
def test_bad_options(given, said):
    with pytest.raises(ValueError, match=said):
        FOLAStudy(**given)


def test_the_methods_of_the_table(stored):
    experiment = FOLAStudy(**TINY, prior_weight=0.5, prior_precision=3.0, proximal=0.2, penalty=0.7)
    setting = experiment.setting(0, None)
    methods = {method.name: method for method in experiment.methods(setting)}
    assert list(methods) == [
        FOLA, OFFLINE, FEDAVG, FEDPROX, FEDCURV, PRIOR_ONLY, EXPERTS_ONLY, FEDPA, SCAFFOLD
    ]  # fmt: skip
    rules = {name: method.options["algorithm"].solver.rule for name, method in methods.items()}
    for name, rule in rules.items():
        if name == FEDPA:
            continue
        assert (rule.epochs, rule.batch_size, rule.learning_rate) == (2, 10, 0.1), name
    assert {rules[name].prior_weight for name in (FOLA, OFFLINE, PRIOR_ONLY)} == {0.5}
    assert rules[EXPERTS_ONLY].prior_weight == 0.0
    assert {rules[name].prior_precision for name in (FOLA, OFFLINE, PRIOR_ONLY, EXPERTS_ONLY)} == {3.0}
    assert (rules[FOLA].online, rules[OFFLINE].online, rules[FEDPROX].proximal) == (True, False, 0.2)
    for study, rounds, epochs, batch in (("table", 20, 10, 32), ("covariance", 10, 1, 200)):
        found = FOLAStudy(study=study).methods(setting)
        assert {method.rounds for method in found} == {rounds}
        rules = [method.options["algorithm"].solver.rule for method in found if method.name != FEDPA]
        assert {(rule.epochs, rule.batch_size) for rule in rules} == {(epochs, batch)}


def test_accuracies_are_those_of_plain_torch(stored, monkeypatch):
    experiment = FOLAStudy(**TINY)
    only = [FOLA, FEDAVG, FEDCURV]
    parts = played(experiment, only)
    for part in parts.values():
        last, test = part.records[-1], part.setting.test
        assert last["ga"] == pytest.approx(accuracy(part.result.posterior.mean, test))
        rows = {name: len(y) for name, (_, y) in part.setting.clients.items()}
        local = {name: accuracy(part.result.personal[name].mean, test) for name in rows}
        assert last["la"] == pytest.approx(sum(rows[name] * local[name] for name in rows) / sum(rows.values()))
        assert len(set(local.values())) > 1
        monkeypatch.setattr(fola_accuracy, "AT_ONCE", 29)
        assert experiment.measure(part.result, part.setting) == pytest.approx({"ga": last["ga"], "la": last["la"]})
        monkeypatch.undo()
    curves = pd.concat([frame(part.records) for part in parts.values()], ignore_index=True)
    assert last_rounds(curves)["ga_peak"].tolist() == curves.groupby("method", sort=False)["ga"].max().tolist()
    assert list(table(curves, experiment.metrics)[["GA", "LA", "GA peak", "LA peak"]].index) == only


def test_the_average_of_local_models_is_the_server_s(stored):
    """What clients keep is what they came to before the server's answer."""
    part = played(FOLAStudy(**TINY), [FEDAVG])[FEDAVG]
    kept = [part.result.personal[name].mean["weights_1"] for name in part.setting.clients]
    torch.testing.assert_close(torch.stack(kept).mean(0), part.result.posterior.mean["weights_1"], rtol=1e-4, atol=1e-5)


def test_unequal_clients_count_by_their_rows():
    rows = {"a": made_up(30, 0), "b": made_up(10, 0)}
    assert fola_accuracy.shares(rows) == [0.75, 0.25]


@pytest.mark.parametrize("name", [SCAFFOLD, FEDPA])
def test_methods_without_local_models(stored, name):
    last = played(FOLAStudy(**TINY), [name])[name].records[-1]
    assert last["ga"] > 15  # 10 by chance
    assert "la" not in last


@pytest.mark.parametrize(
    ("rows", "epochs", "found"), [(500, 10, (5, 15, 75)), (32, 1, (1, 1, 0)), (100, 2, (3, 1, 3)), (110, 4, (5, 1, 7))]
)
def test_fedpa_makes_as_many_steps_as_the_others(rows, epochs, found):
    options = samples({"epochs": epochs, "batch_size": 32, "learning_rate": 0.1}, rows)
    number, each, burn_in = (options[name] for name in ("num_samples", "steps_per_sample", "burn_in"))
    assert (number, each, burn_in) == found
    assert number * each + burn_in == epochs * (rows // 32)


def precision_by_hand(q, name):
    """Of one client's posterior, from its covariance or its standard deviations."""
    if name.startswith("full"):
        covariance = q.family.standard(q.natural)[f"{q.family.names[0]}.covariance_matrix"]
        return np.linalg.inv(covariance.double().numpy())
    return np.diag(torch.cat([value.flatten() for value in q.sd.values()]).double().numpy() ** -2)


def test_covariances_between_two_clients(stored):
    """FedAvg's line, and the diagonal's and the full matrix's precision-weighted means, in numpy alone."""
    experiment = FOLAStudy(**{**TINY, "study": "covariance", "points": 5, "batch": 50, "rounds": 3})
    parts = played(experiment)
    assert list(parts) == [
        *[covariance(one, online=online) for one in ("full", "e-full", "diagonal") for online in (True, False)], FEDAVG
    ]  # fmt: skip
    for name, part in parts.items():
        test, columns = part.setting.test, [f"ga_at_{pi:.2f}" for pi in (0, 0.25, 0.5, 0.75, 1)]
        assert [columns[0] in record for record in part.records] == [True, False, True]
        one, two = (part.result.personal[client] for client in part.setting.clients)
        last = part.records[-1]
        ends = (accuracy(two.mean, test), accuracy(one.mean, test))
        assert (last[columns[0]], last[columns[-1]]) == pytest.approx(ends)
        means = [torch.cat([value.flatten() for value in q.mean.values()]).double().numpy() for q in (one, two)]
        inner = [precision_by_hand(q, name) for q in (one, two)]
        middle = np.linalg.solve(
            0.25 * inner[0] + 0.75 * inner[1], 0.25 * inner[0] @ means[0] + 0.75 * inner[1] @ means[1]
        )
        values = torch.from_numpy(middle).float()
        weights = {"weights_1": values[: 10 * PIXELS].reshape(10, PIXELS), "bias_1": values[10 * PIXELS :]}
        assert last[columns[1]] == pytest.approx(accuracy(weights, test), abs=1.5)  # a row of 70: a tie by rounding
    one, two = (parts[FEDAVG].result.personal[client].mean for client in part.setting.clients)
    line = {key: 0.25 * one[key] + 0.75 * two[key] for key in one}
    assert parts[FEDAVG].records[-1]["ga_at_0.25"] == pytest.approx(accuracy(line, parts[FEDAVG].setting.test), abs=1.5)


def rounds_of(seeds=1, **methods):
    """Curves of so many rounds as values are given."""
    rows = [
        {"seed": seed, "method": method, "round": number, "messages": number, "seconds": 0.1}
        | {metric: given[number - 1] + seed for metric, given in found.items()}
        for seed in range(seeds) for method, found in methods.items()
        for number in range(1, 1 + max(map(len, found.values())))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_claims_of_the_table():
    curves = rounds_of(2, FOLA={"ga": [50.0, 47.0]}, FedAvg={"ga": [44.0, 46.0]}, FedCurv={"ga": [30.0, 35.0]})
    found = answered(table_claims("mnist", 0.01), curves)
    assert {text: said[0].holds for text, said in found.items()} == {
        "FOLA's global accuracy is higher than FedAvg's": True,
        "FOLA's best global accuracy is higher than FedAvg's": True,
    }
    found = answered(table_claims("cifar10", 0.01), curves)
    assert [found[f"{name}: GA {value:.2f} at its peak"][0].holds for name, value in CIFAR10.items()] == [
        True, False, False
    ]  # fmt: skip
    assert not any("48.57" in claim.published for claim in table_claims("cifar10", 0.1))


def test_claims_after_so_many_rounds():
    curves = rounds_of(2, A={"ga": [80.0, 90.0, 70.0]})
    assert after("A", "ga", 2, least=90.5)(curves).holds is True  # 90 and 91
    assert after("A", "ga", 2, least=90.6)(curves).holds is False
    assert after("A", "ga", 3, most=70.5)(curves).holds is True
    assert after("A", "ga", 3, most=70.4)(curves).holds is False
    assert "70.50 ± " in after("A", "ga", 3, most=70)(curves).measured
    for missing in (after("A", "ga", 4, least=1), after("B", "ga", 1, least=1), after("A", "la", 1, least=1)):
        assert missing(curves).holds is None


def test_real_digits(data):
    """Half of the digits each: the diagonal's product of experts is better than the average after a round."""
    experiment = FOLAStudy(study="covariance", train=200, test=200, pixels=14, rounds=2, batch=20, epochs=2, points=3,
                           seeds=1, compile=False)  # fmt: skip
    assert pvi_data() == data
    parts = {part.method: part for part in play(experiment, only=[covariance("diagonal", online=True), FEDAVG])}
    setting = parts[FEDAVG].setting
    assert [sorted(y.unique().tolist()) for _, y in setting.clients.values()] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert setting.test[0].shape == (200, 196)
    assert all(part.records[-1]["ga"] > 20 for part in parts.values())  # 10 by chance
    assert all(part.records[-1]["la"] < 50.5 for part in parts.values())


def test_options_change_one_thing(stored):
    experiment = FOLAStudy(**TINY, study="covariance")
    other = replace(experiment, prior_weight=0.0)
    name = covariance("diagonal", online=True)
    one, two = (played(each, [name])[name].result.posterior.mean["weights_1"] for each in (experiment, other))
    assert (one - two).abs().max() > 1e-4


@pytest.mark.slow
def test_real_photos(data):
    """The convolutional network makes steps, and squared gradients of its rows."""
    experiment = FOLAStudy(dataset="cifar10", clients=2, train=40, test=20, rounds=1, epochs=1, batch=20, compile=False)
    parts = {part.method: part for part in play(experiment, only=[FOLA, FEDAVG], seeds=[0])}
    for part in parts.values():
        assert 0 <= part.records[-1]["ga"] <= 100
        assert part.result.posterior.mean["kernel_2"].shape == (64, 32, 5, 5)
    first, second = (part.result.posterior.mean["kernel_1"] for part in parts.values())
    assert 0 < (first - second).abs().max() < 0.1
    assert any("of the 50,000 training images" in note for note in parts[FOLA].setting.notes)
