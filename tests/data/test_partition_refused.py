"""Partitions that cannot be had: each request says what is wrong with it."""

import pytest

from pvi.data import dirichlet_by_class, dirichlet_by_client, homogeneous, k_means, label_shards


@pytest.mark.parametrize(
    ("recipe", "arguments", "message"),
    [
        (homogeneous, {"rows": 5, "num_clients": 0}, "num_clients must be at least 1, got 0"),
        (label_shards, {"labels": [0, 1], "num_clients": 1, "shards_per_client": 0}, "shards_per_client must be"),
        (label_shards, {"labels": [[0, 1]]}, r"labels must be a vector with an element a row, got the shape \[1, 2\]"),
        (label_shards, {"labels": []}, "labels must be a vector"),
        (label_shards, {"labels": [0.0, float("nan")]}, "the label of row 1 is not finite"),
        (dirichlet_by_client, {"labels": [0, 1], "num_clients": 3}, "need 3 rows, there are 2"),
        (dirichlet_by_client, {"labels": [0, 1], "num_clients": 2, "concentration": 0.0}, "must be positive and fin"),
        (dirichlet_by_client, {"labels": [0, 1], "num_clients": 2, "concentration": float("nan")}, "must be positive"),
        (dirichlet_by_client, {"labels": [0, 1], "num_clients": 2, "prior": [1.0]}, "each of the 2 classes, got"),
        (dirichlet_by_client, {"labels": [0, 1], "num_clients": 2, "prior": [1.0, 0.0]}, "each of the 2 classes, got"),
        (dirichlet_by_class, {"labels": [0, 1], "num_clients": 2, "concentration": -1.0}, "must be positive and fin"),
        (dirichlet_by_class, {"labels": [0, 1], "num_clients": 2, "concentration": float("inf")}, "must be positive"),
        (dirichlet_by_class, {"labels": [0, 1], "num_clients": 2, "min_rows": -1}, "min_rows must not be negative"),
        (dirichlet_by_class, {"labels": [0, 1] * 9, "num_clients": 2, "min_rows": 10}, "need 20 rows, there are 18"),
        (
            dirichlet_by_class,
            {"labels": [0, 1] * 50, "num_clients": 5, "concentration": 1e-6},
            "1000 draws of 5 clients at concentration 1e-06 .* with 2 classes .* dirichlet_by_client",
        ),
        (k_means, {"inputs": [1.0, 2.0]}, r"inputs must have rows and features, got the shape \[2\]"),
        (k_means, {"inputs": [[1.0], [2.0]], "num_clients": 3}, "3 clients with 1 or more rows each need 3 rows"),
        (k_means, {"inputs": [[1.0], [float("inf")]], "num_clients": 1}, "row 1 of the inputs is not finite"),
    ],
)
def test_requests_that_cannot_be_met(recipe, arguments, message):
    with pytest.raises(ValueError, match=message):
        recipe(**arguments)
