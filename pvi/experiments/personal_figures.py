"""How sure personal and global models are of single images: class probabilities with their spread over draws."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pvi import Posterior, Result
from pvi.diagnostics import reliability
from pvi.diagnostics.style import BLUE, DARK, DPI, GREY, GRID, SMALL, hide, new_figure
from pvi.experiments.folder import OWN_PICTURE, RELIABILITY
from pvi.experiments.personal import entropy, predictions
from pvi.experiments.protocol import Setting
from pvi.programs.batch import Batch
from pvi.programs.predictive import expected_values

CLIENTS, IMAGES = 3, 3
WIDTH, HEIGHT = 3.2, 1.7


def plot_probabilities(result: Result, setting: Setting, num_samples: int, method: str, folder: Path) -> None:
    """The first clients' first test images of different classes: a row a client, a panel an image.

    Bars are the mean class probabilities by the client's personal posterior (and, grey, by the global one), lines
    their standard deviations over posterior draws; the panel's title has the label and the entropy of both, in nats.
    """
    chosen = [name for name in setting.test_by_client if name in result.personal][:CLIENTS]
    if not chosen:
        return
    figure = new_figure(WIDTH * IMAGES, HEIGHT * len(chosen) + 0.7)
    panels = figure.subplots(len(chosen), IMAGES, sharex=True, sharey=True, squeeze=False)
    for row, name in zip(panels, chosen, strict=True):
        x, y = setting.test_by_client[name]
        places = [int(torch.nonzero(y == label)[0]) for label in y.unique()[:IMAGES]]
        models = {"personal": (result.personal[name], -0.2, BLUE), "global": (result.posterior, 0.2, GREY)}
        drawn = {of: class_probabilities(result, q, x[places], num_samples) for of, (q, _, _) in models.items()}
        for panel in row[len(places) :]:
            panel.set_visible(False)
        for index, panel in enumerate(row[: len(places)]):
            ticks = np.arange(drawn["global"].shape[-1])
            for of, (_, shift, colour) in models.items():
                means, spreads = drawn[of][:, index].mean(0), drawn[of][:, index].std(0, correction=0)
                panel.bar(ticks + shift, means.numpy(), 0.4, yerr=spreads.numpy(), color=colour, label=of)
            sure = ", ".join(f"{entropy(one[:, index].mean(0)).item():.2f}" for one in drawn.values())
            panel.set_title(
                f"{name}, label {int(y[places[index]])}: H = {sure}", fontsize=SMALL, loc="left", color=DARK
            )
            panel.set(ylim=(0, 1.05), xticks=ticks)
            panel.grid(color=GRID, lw=0.8, axis="y")
            panel.set_axisbelow(True)
            panel.tick_params(labelsize=SMALL, length=0)
            hide(panel, ("top", "right"))
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.suptitle(f"Class probabilities {method}", fontsize=11, x=0.01, ha="left", color=DARK)
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8.5, frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{OWN_PICTURE}{'-'.join(method.split())}.png", dpi=DPI)


def plot_calibration(result: Result, setting: Setting, num_samples: int, method: str, folder: Path) -> None:
    """A reliability diagram of all test images by the personal models, and one by the global model."""
    for prefix, predicted in predictions(result, setting.test_by_client, num_samples, 0, unmoved=True).items():
        path = folder / f"{RELIABILITY}{prefix}-{'-'.join(method.split())}.png"
        reliability(predicted.probabilities.numpy(), predicted.labels.numpy(), path, title=f"{prefix.upper()} {method}")


def class_probabilities(result: Result, posterior: Posterior, x: Tensor, num_samples: int) -> Tensor:
    """p(y | x, θ_s) at posterior draws, ``[draws, rows, classes]``."""
    assert result.model is not None
    where = posterior.natural
    draws = posterior.sample(num_samples, torch.Generator(device=where.device).manual_seed(0))
    return expected_values(result.model, result.observed, draws, Batch((x,), {}).to(where.device, where.dtype))[
        result.observed[0]
    ].cpu()
