"""pFedBayes' experiment: who gets which images, the studies' methods, and what is measured, against plain torch."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import softplus

from pvi.data.images import OBJECTS, Images
from pvi.experiments import PFedBayes, skewed_images
from pvi.experiments.claims import answered, at_least, within
from pvi.experiments.pfedbayes import LOCAL
from pvi.experiments.play import frame, play
from pvi.experiments.published import CLIENTS, COUNTS, FEDAVG, FEDPROX, PFEDBAYES, TABLE
from pvi.experiments.summary import last_rounds, table, values

PIXELS = 6
TINY = {
    "clients": 4, "train_per_class": 6, "test_per_class": 4, "hidden": 8, "rounds": 3, "local_rounds": 2, "every": 2,
    "iterations": 3, "particles": 2, "batch": 10, "samples": 4, "rate": 0.05, "baseline_rate": 0.1, "compile": False,
}  # fmt: skip


@pytest.fixture
def stored(monkeypatch):
    """So many made-up images of each class in the training and the test part; the first pixel is unlike all others."""

    def install(train, test, dataset="mnist"):
        generator = torch.Generator().manual_seed(0)
        centres = torch.randn(10, PIXELS, generator=generator)

        def read(data_dir, part):
            number, first = (train, 0) if part == "train" else (test, 10 * train)
            y = torch.arange(10 * number) % 10
            x = centres[y] + 0.5 * torch.randn(len(y), PIXELS, generator=torch.Generator().manual_seed(1 + first))
            x[:, 0] = torch.arange(first, first + len(y)) / 1e5
            return Images(dataset, x, y, OBJECTS)

        monkeypatch.setitem(skewed_images.SETS, dataset, read)

    return install


def played(experiment, only=()):
    return {part.method: part for part in play(experiment, only=only)}


def rows_of(pairs):
    return [round(1e5 * value) for x, _ in pairs.values() for value in x[:, 0].tolist()]


def check_counts(setting, counts, clients, labels=5):
    assert len(setting.clients) == len(setting.test_by_client) == clients
    for pairs, number in ((setting.clients, counts[0]), (setting.test_by_client, counts[1])):
        for name, (_, y) in pairs.items():
            found = y.bincount(minlength=10)
            assert sorted(found.unique().tolist()) == sorted({0, number} if labels < 10 else {number})
            assert (found > 0).sum() == labels
            assert found.bool().tolist() == setting.clients[name][1].bincount(minlength=10).bool().tolist()
    dealt = [*rows_of(setting.clients), *rows_of(setting.test_by_client)]
    assert len(set(dealt)) == len(dealt)
    for name, part in setting.parts.items():
        assert sorted(rows_of({name: setting.clients[name]})) == sorted(part.tolist())
    for side in (0, 1):
        whole = torch.cat([pair[side] for pair in setting.test_by_client.values()])
        torch.testing.assert_close(setting.test[side], whole, rtol=0, atol=0)


@pytest.mark.parametrize("size", COUNTS["mnist"])
@pytest.mark.parametrize("dataset", COUNTS)
def test_the_published_numbers_of_images(stored, dataset, size):
    stored(*((5000, 1000) if dataset == "cifar10" else (5400, 900)), dataset)  # MNIST's rarest class has 6,313
    setting = PFedBayes(dataset=dataset, size=size).setting(0, None)
    check_counts(setting, COUNTS[dataset][size], CLIENTS[dataset])
    assert not any("in place of" in note for note in setting.notes)
    assert any("training and" in note and "test images together" in note for note in setting.notes)
    assert any(note.startswith("Not stated in the paper") for note in setting.notes)


@pytest.mark.parametrize(("size", "counts"), [("small", (25, 175)), ("medium", (100, 100)), ("large", (150, 50))])
def test_fewer_images_of_a_part_of_the_set(stored, size, counts):
    stored(1000, 1000, "cifar10")
    experiment = PFedBayes(dataset="cifar10", size=size)
    setting = experiment.setting(0, None)
    check_counts(setting, counts, 20)
    said = "There are images for 200 of a class at a client: {} for training and {} for testing in place of {} and {}."
    assert said.format(*counts, *COUNTS["cifar10"][size]) in setting.notes
    given = replace(experiment, train_per_class=30).setting(0, None)
    check_counts(given, (30, min(170, COUNTS["cifar10"][size].test)), 20)
    given = replace(experiment, test_per_class=20).setting(0, None)
    check_counts(given, (min(180, COUNTS["cifar10"][size].train), 20), 20)


@pytest.mark.parametrize(
    "given", [{"train_per_class": 150, "test_per_class": 100}, {"train_per_class": 200}, {"test_per_class": 200},
              {"clients": 5000}]
)  # fmt: skip
def test_given_numbers_are_never_changed(stored, given):
    stored(1000, 1000, "cifar10")
    with pytest.raises(ValueError, match=r"cifar10 has images for \d+ of a class at each of \d+ clients"):
        PFedBayes(dataset="cifar10", **given).setting(0, None)


def test_seeds_and_assignments(stored):
    stored(40, 10)
    experiment = PFedBayes(**TINY)
    one, same, other = (experiment.setting(seed, None) for seed in (0, 0, 1))
    assert rows_of(one.clients) == rows_of(same.clients) != rows_of(other.clients)
    two = replace(experiment, assignment="two-types").setting(0, None)
    check_counts(two, (6, 4), 4)
    kinds = [tuple(y.unique().tolist()) for _, y in two.clients.values()]
    assert kinds == [tuple(range(5))] * 2 + [tuple(range(5, 10))] * 2
    check_counts(replace(experiment, labels=10, clients=3).setting(0, None), (6, 4), 3, labels=10)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"labels": 11}, "labels is from 1 to 10, the number of classes, not 11"),
        ({"labels": 0}, "labels is from 1 to 10"),
        ({"study": "eta"}, "study is table or zeta or rho or uncertainty, not 'eta'"),
        *[({name: 0}, f"{name} must be at least 1, not 0")
          for name in ("clients", "train_per_class", "test_per_class", "hidden", "samples", "every", "mean_every")],
    ],
)  # fmt: skip
def test_bad_options(given, said):
    with pytest.raises(ValueError, match=said):
        PFedBayes(**given)


def test_the_methods_of_the_table(stored):
    stored(40, 10)
    experiment = PFedBayes(**TINY)
    methods = {method.name: method for method in experiment.methods(experiment.setting(0, None))}
    assert list(methods) == [PFEDBAYES, FEDAVG, FEDPROX, LOCAL]
    assert [method.rounds for method in methods.values()] == [3, 3, 3, 2]
    own = methods[PFEDBAYES].options["algorithm"]
    assert (own.solver.rule.zeta, own.start.rho) == (10.0, -2.5)
    assert (own.solver.rule.local_iterations, own.solver.rule.num_particles, own.solver.rule.batch_size) == (3, 2, 10)
    assert own.solver.rule.learning_rate == own.solver.rule.global_learning_rate == 0.05
    for name in (FEDAVG, FEDPROX):
        assert methods[name].options["algorithm"].name == name.lower()
    alone = methods[LOCAL].options["algorithm"].solver.rule
    assert (alone.zeta, alone.global_learning_rate, methods[LOCAL].options["guide"]) == (1.0, 0.0, None)


@pytest.mark.parametrize(
    ("study", "numbers", "of"),
    [
        ("zeta", [0.5, 1, 5, 10, 20], lambda algorithm: algorithm.solver.rule.zeta),
        ("rho", [-1, -1.5, -2, -2.5, -3], lambda algorithm: algorithm.start.rho),
        ("uncertainty", [0.0, 0.05, 0.05], lambda algorithm: algorithm.solver.rule.learning_rate),
    ],
)
def test_the_methods_of_the_studies(stored, study, numbers, of):
    stored(40, 10)
    experiment = PFedBayes(**TINY, study=study)
    methods = experiment.methods(experiment.setting(0, None))
    assert [of(method.options["algorithm"]) for method in methods] == numbers
    if study == "uncertainty":
        assert [method.name for method in methods] == ["after 0 rounds", "after 1 rounds", "after 10 rounds"]
        assert [method.rounds for method in methods] == [1, 1, 10]
    else:
        assert {method.rounds for method in methods} == {3}
        assert [float(method.name.split(" = ")[1]) for method in methods] == numbers


def by_hand(weights, x):
    """Class probabilities of the network in torch alone, ``[n, 10]``."""
    hidden = torch.relu(x @ weights["weights_1"].T + weights["bias_1"])
    return torch.softmax(hidden @ weights["weights_2"].T + weights["bias_2"], -1)


def accuracy(pairs):
    right = torch.cat([p.argmax(-1) == y for p, y in pairs])
    return 100 * right.double().mean().item()


def averaged(posterior, x, number, seed):
    draws = posterior.sample(number, torch.Generator().manual_seed(seed))
    return torch.stack([by_hand({name: value[k] for name, value in draws.items()}, x) for k in range(number)]).mean(0)


def calibration(p, y):
    """Expected calibration error over fifteen bins of the confidence."""
    confidence, guess = p.max(-1)
    bins, right = torch.clamp((confidence * 15).ceil() - 1, 0), (guess == y).double()
    parts = [((bins == k).double().mean(), bins == k) for k in range(15) if (bins == k).any()]
    return sum(share * (right[at].mean() - confidence[at].double().mean()).abs() for share, at in parts).item()


def test_personal_and_global_models_are_measured_as_plain_torch_predicts(stored):
    stored(40, 10)
    part = played(PFedBayes(**TINY), [PFEDBAYES])[PFEDBAYES]
    last, tests = part.records[-1], part.setting.test_by_client
    assert ["pm" in record for record in part.records] == [False, True, True]  # every second round, and the last
    assert all({"pm_at_mean", "gm_at_mean"} <= set(record) for record in part.records)
    for prefix, models in (
        ("pm", part.result.personal), ("gm", dict.fromkeys(tests, part.result.posterior))
    ):  # fmt: skip
        at_mean = [(by_hand(models[name].mean, x), y) for name, (x, y) in tests.items()]
        assert last[f"{prefix}_at_mean"] == pytest.approx(accuracy(at_mean))
        drawn = [(averaged(models[name], x, 4, 3), y) for name, (x, y) in tests.items()]
        p, y = torch.cat([p for p, _ in drawn]), part.setting.test[1]
        assert last[prefix] == pytest.approx(accuracy(drawn))
        assert last[f"{prefix}_log_likelihood"] == pytest.approx(p[range(len(y)), y].log().mean().item(), rel=1e-4)
        expected = torch.distributions.Categorical(probs=p).entropy().mean().item()
        assert last[f"{prefix}_entropy"] == pytest.approx(expected, rel=1e-4)
        assert last[f"{prefix}_ece"] == pytest.approx(calibration(p, y), abs=1e-5)
    assert last["pm"] != last["gm"]


def test_mean_weights_every_so_many_rounds(stored):
    """And in the last: what is measured is what it would have been."""
    stored(40, 10)
    always = played(PFedBayes(**TINY), [PFEDBAYES])[PFEDBAYES].records
    seldom = played(PFedBayes(**{**TINY, "mean_every": 2}), [PFEDBAYES])[PFEDBAYES].records
    assert ["pm_at_mean" in record for record in seldom] == [False, True, True]
    assert [record["gm_at_mean"] for record in seldom[1:]] == [record["gm_at_mean"] for record in always[1:]]


def test_images_in_chunks_are_predicted_alike(stored, monkeypatch):
    stored(40, 10)
    whole = played(PFedBayes(**TINY), [PFEDBAYES])[PFEDBAYES].records[-1]
    monkeypatch.setattr("pvi.experiments.personal.AT_ONCE", 13)
    chunked = played(PFedBayes(**TINY), [PFEDBAYES])[PFEDBAYES].records[-1]
    for name in ("pm", "gm", "pm_at_mean", "gm_at_mean", "pm_log_likelihood", "gm_entropy"):
        assert chunked[name] == pytest.approx(whole[name], rel=1e-5)


def test_every_method_has_the_models_that_it_has(stored):
    stored(40, 10)
    parts = played(PFedBayes(**TINY))
    curves = pd.concat([frame(part.records) for part in parts.values()], ignore_index=True)
    ends = last_rounds(curves).set_index("method")
    assert ends["round"].tolist() == [3, 3, 3, 2]
    for metric in ("pm", "pm_at_mean", "pm_peak", "pm_log_likelihood"):
        assert ends[metric].notna().tolist() == [True, False, False, True]
    for metric in ("gm", "gm_at_mean", "gm_peak", "gm_log_likelihood"):
        assert ends[metric].notna().tolist() == [True, True, True, False]
    for method in (FEDAVG, FEDPROX):  # points: their draws are their means
        assert ends.loc[method, "gm"] == ends.loc[method, "gm_at_mean"]
    assert curves.groupby("method")["pm_at_mean"].max()[PFEDBAYES] == ends.loc[PFEDBAYES, "pm_peak"]


def test_uncertainty_begins_at_the_start(stored):
    stored(40, 10)
    experiment = PFedBayes(**(TINY | {"zeta": 0.1, "iterations": 10}), study="uncertainty")
    parts = played(experiment)
    begun = parts["after 0 rounds"]
    sd = softplus(torch.tensor(-2.5))
    start = begun.result.posterior
    loc = torch.cat([value.flatten() for value in start.mean.values()])
    assert loc.abs().max() <= 0.1
    assert loc.double().std().item() == pytest.approx(0.2 / 12**0.5, rel=0.2)
    for own in (start, *begun.result.personal.values()):
        for name, value in own.sd.items():
            torch.testing.assert_close(value, sd.expand_as(value), rtol=1e-4, atol=0)
            torch.testing.assert_close(own.mean[name], start.mean[name], rtol=1e-3, atol=1e-5)
    assert {"pm", "gm", "pm_entropy", "gm_entropy"} <= set(begun.records[-1])
    assert begun.records[-1]["pm_entropy"] == pytest.approx(begun.records[-1]["gm_entropy"], rel=0.02)
    ends = {name: part.records[-1] for name, part in parts.items()}
    assert [end["round"] for end in ends.values()] == [1, 1, 10]
    entropies = [end["pm_entropy"] for end in ends.values()]
    assert np.log(10) > entropies[0] > entropies[2]
    assert ends["after 10 rounds"]["pm"] > ends["after 0 rounds"]["pm"] + 20
    assert experiment.claims() == []


def test_pictures_of_clients_with_few_labels(stored, tmp_path):
    stored(40, 10)
    experiment = PFedBayes(**(TINY | {"labels": 2, "clients": 5}), study="uncertainty")
    part = played(experiment, ["after 1 rounds"])["after 1 rounds"]
    experiment.illustrate(tmp_path / "new", part.result, part.setting, part.method)
    diagrams = [f"reliability-{model}-after-1-rounds.png" for model in ("gm", "pm")]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["picture-after-1-rounds.png", *diagrams]
    assert (tmp_path / "new/picture-after-1-rounds.png").stat().st_size > 10_000
    PFedBayes(**TINY).illustrate(tmp_path / "table", part.result, part.setting, part.method)
    assert not (tmp_path / "table").exists()


def accuracies(seeds=1, **methods):
    """Curves of so many rounds as values are given."""
    rows = [
        {"seed": seed, "method": method, "round": number, "messages": number, "seconds": 0.1} |
        {metric: given[number - 1] + seed for metric, given in found.items()}
        for seed in range(seeds) for method, found in methods.items()
        for number in range(1, 1 + max(map(len, found.values())))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_peaks_are_the_best_rounds():
    curves = accuracies(2, pFedBayes={"pm_at_mean": [90.0, 94.5, 93.0], "gm_at_mean": [80.0, 85.0, 90.0]},
                        FedAvg={"gm_at_mean": [88.0, 70.0]})  # fmt: skip
    assert values(curves, "pFedBayes", "pm_peak").to_dict() == {0: 94.5, 1: 95.5}
    assert values(curves, "pFedBayes", "pm_at_mean").to_dict() == {0: 93.0, 1: 94.0}
    shown = table(curves, ("pm_peak", "pm_at_mean", "gm_peak"), intervals=False)
    assert shown[["PM peak", "PM at mean", "GM peak"]].to_numpy().tolist() == [
        ["95.00", "93.50", "90.50"], ["", "", "88.50"],
    ]  # fmt: skip
    assert "pm_peak" not in last_rounds(accuracies(PVI={"accuracy": [0.5]}))


def test_claims_of_single_numbers():
    curves = accuracies(2, FedAvg={"gm_at_mean": [88.0, 70.0]})
    assert within(FEDAVG, "gm_peak", 87.38, 1.5)(curves).holds is True
    assert within(FEDAVG, "gm_peak", 91.0, 1.5)(curves).holds is False
    assert within(FEDAVG, "gm_peak", 86.0, 1.5)(curves).holds is False  # better is no nearer
    assert "88.50 ± 6.35, +1.12 (tolerance 1.5)" in within(FEDAVG, "gm_peak", 87.38, 1.5)(curves).measured
    assert within(FEDPROX, "gm_peak", 87.65, 1.5)(curves).holds is None
    assert within(FEDAVG, "pm", 87.65, 1.5)(curves).holds is None
    assert at_least(FEDAVG, "gm_peak", 88.5)(curves).holds is True
    assert at_least(FEDAVG, "gm_peak", 88.6)(curves).holds is False


@pytest.mark.parametrize("key", TABLE)
def test_the_published_table_is_claimed(key):
    dataset, size = key
    claims = PFedBayes(dataset=dataset, size=size).claims()
    own = TABLE[key][PFEDBAYES]
    assert [claim.published for claim in claims] == [
        f"{name} at its peak in 800 rounds"
        for name in (
            f"pFedBayes: PM {own.pm:.2f}", f"pFedBayes: GM {own.gm:.2f}", f"FedAvg: GM {TABLE[key][FEDAVG].gm:.2f}",
            f"FedProx: GM {TABLE[key][FEDPROX].gm:.2f}",
        )
    ]  # fmt: skip
    curves = accuracies(pFedBayes={"pm_at_mean": [own.pm - 0.9, 1.0], "gm_at_mean": [own.gm - 1.1, 1.0]},
                        FedAvg={"gm_at_mean": [TABLE[key][FEDAVG].gm + 1.4]})  # fmt: skip
    found = answered(claims, curves)  # FedProx was not run
    assert [verdict.holds for verdicts in found.values() for verdict in verdicts] == [True, False, True]


def test_the_study_of_zeta_has_numbers_at_one_size_only():
    claims = PFedBayes(study="zeta", size="medium").claims()
    assert [claim.published for claim in claims] == [
        f"ζ = {text} at its peak in 800 rounds"
        for text in ("0.5: PM 97.13", "0.5: GM 89.88", "1: PM 97.41", "10: PM 97.18", "10: GM 93.22", "20: PM 97.04")
    ]
    curves = accuracies(**{"ζ = 10": {"pm_at_mean": [96.5, 90.0], "gm_at_mean": [90.0, 91.0]}})
    assert [one[0].holds for one in answered(claims, curves).values()] == [True, False]
    for other in ({"study": "zeta"}, {"study": "zeta", "size": "medium", "dataset": "fmnist"}, {"study": "rho"}):
        assert PFedBayes(**other).claims() == []
