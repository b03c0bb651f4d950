import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.image import imread

from pvi.data import SPLIT_B, by_column, homogeneous, label_shards, small_large
from pvi.diagnostics import class_counts, plot_partition

LABELS = np.array(["b", "a", "b", "c", "b", "a"])
PARTS = [np.array([0, 1, 2]), np.array([3]), np.array([], dtype=np.int64)]


def test_class_counts():
    assert class_counts(PARTS, LABELS).tolist() == [[1, 2, 0], [0, 0, 1], [0, 0, 0]]
    named = {"x": PARTS[0], "y": PARTS[1]}
    assert class_counts(named, torch.tensor([1, 0, 1, 2, 1, 0])).tolist() == [[1, 2, 0], [0, 0, 1]]


def test_bubbles_have_the_counts_as_their_areas(tmp_path):
    figure = plot_partition(PARTS, LABELS, tmp_path / "p.png")
    assert (imread(tmp_path / "p.png")[..., :3] < 0.99).any(-1).mean() > 0.02
    bars, bubbles = figure.axes
    assert [bar.get_height() for bar in bars.patches] == [3, 1, 0]
    assert bars.get_title(loc="left") == "4 rows, 3 clients, at most 2 of a class\n2 rows are with nobody"
    (discs,) = bubbles.collections
    assert discs.get_offsets().tolist() == [[0, 0], [0, 1], [1, 2]]
    assert (discs.get_sizes() / discs.get_sizes()[0]).tolist() == pytest.approx([1, 2, 1])
    assert [label.get_text() for label in bubbles.get_yticklabels()] == ["a", "b", "c"]
    assert [label.get_text() for label in bubbles.get_xticklabels()] == ["0", "1", "2"]


def test_clients_have_their_names():
    table = pd.DataFrame({"ward": ["north", "south", "north"], "died": [True, False, False]})
    figure = plot_partition(by_column(table, "ward"), table["died"].to_numpy())
    assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == ["north", "south"]
    assert "nobody" not in figure.axes[0].get_title(loc="left")


@pytest.mark.parametrize("clients", [1, 100, 500])
def test_any_number_of_clients(tmp_path, clients):
    y = np.arange(1000) % 10
    for parts in (homogeneous(1000, clients), label_shards(y, clients)):
        figure = plot_partition(parts, y, tmp_path / "p.png")
        assert len(figure.axes[1].get_xticks()) <= 30
        assert max(figure.get_size_inches()) < 16


def test_small_and_large_clients():
    y = np.arange(4000) % 4 == 0
    figure = plot_partition(small_large(y, **SPLIT_B), y)
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert heights == [40] * 5 + [760] * 5


@pytest.mark.parametrize(
    ("parts", "labels", "message"),
    [
        ([], [0, 1], "there are no clients to draw"),
        ([[0, 1], [1]], [0, 1], "row 1 is held 2 times"),
        ([[0, 2]], [0, 1], "row 2 is none of the 2 rows"),
        ([[0]], np.arange(200), "200 different labels are no classes: cut them into at most 100"),
    ],
)
def test_what_cannot_be_drawn(parts, labels, message):
    with pytest.raises(ValueError, match=message):
        plot_partition(parts, labels)
