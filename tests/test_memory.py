"""Where clients' states lie, and how many clients are computed at once."""

import gc
import logging
import os

import pytest
import torch

import pvi
from pvi import memory
from pvi.executors import Vectorised
from pvi.executors.vectorised import chunks
from pvi.memory import Mapped, Resident, store_for
from pvi.models import logistic_regression
from pvi.solvers import SVI

CPU = torch.device("cpu")


def mapped_files() -> int:
    """Mapped files of this process that a store has opened."""
    with open(f"/proc/{os.getpid()}/maps", encoding="utf-8") as lines:
        return sum("pvi-" in line for line in lines)


def clients(number: int, rows: int = 12, columns: int = 3):
    generator = torch.Generator().manual_seed(2)
    found = []
    for k in range(number):
        x = torch.randn(rows + k % 3, columns, generator=generator, dtype=torch.float64)
        found.append((x, (torch.rand(len(x), generator=generator, dtype=torch.float64) < 0.5).double()))
    return found


def test_chunks_hold_the_budget_and_lose_nobody():
    needed = dict(enumerate([5, 1, 1, 9, 2, 30, 1]))
    found = chunks(needed, None, 10)
    assert sorted(index for chunk in found for index in chunk) == list(range(7))
    assert all(sum(needed[index] for index in chunk) <= 10 or len(chunk) == 1 for chunk in found)
    assert max(len(chunk) for chunk in chunks(needed, 2, 1000)) == 2


def test_a_store_on_disk_keeps_values_apart():
    store = Mapped()
    tensors = [torch.randn(n, generator=torch.Generator().manual_seed(n)).double() for n in (3, 1, 1000)]
    kept = [store.keep(tensor) for tensor in tensors]
    assert all(torch.equal(one, other) for one, other in zip(kept, tensors, strict=True))
    kept[0].zero_()
    assert torch.equal(kept[1], tensors[1])
    assert store.keep(torch.ones(2, dtype=torch.bool)).tolist() == [True, True]
    assert store.keep(torch.empty(0)).numel() == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="the list of mapped files is that of Linux")
def test_files_go_when_nothing_in_them_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "ARENA", 4096)
    before = mapped_files()
    store = Mapped(tmp_path)
    kept = [store.keep(torch.zeros(1024)) for _ in range(5)]
    assert mapped_files() - before >= 5
    assert not list(tmp_path.iterdir())
    del kept, store
    gc.collect()
    assert mapped_files() == before


def test_states_beyond_memory_go_to_disk_and_change_nothing(monkeypatch, caplog):
    data, options = clients(6), {"rounds": 3, "damping": 0.5}
    plain = pvi.fit(logistic_regression.model, data, **options)
    faster = pvi.fit(logistic_regression.model, data, acceleration="anderson", **options)
    assert isinstance(store_for(1, CPU), Resident)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 100)
    with caplog.at_level(logging.INFO, logger="pvi"):
        again = pvi.fit(logistic_regression.model, data, **options)
        faster_again = pvi.fit(logistic_regression.model, data, acceleration="anderson", **options)
    assert "kept on disk" in caplog.text
    # So little memory also means one client at once: sums in batches round differently.
    torch.testing.assert_close(plain.posterior.natural, again.posterior.natural, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(faster.posterior.natural, faster_again.posterior.natural, rtol=1e-7, atol=1e-7)


def test_few_clients_at_once_give_the_same_answers():
    data, solver = clients(7), SVI(steps=60, num_particles=2)
    whole = pvi.fit(logistic_regression.model, data, solver=solver, rounds=2, executor=Vectorised(compile=False))
    parts = pvi.fit(
        logistic_regression.model, data, solver=solver, rounds=2,
        executor=Vectorised(compile=False, max_clients_at_once=2),
    )  # fmt: skip
    torch.testing.assert_close(whole.posterior.natural, parts.posterior.natural, rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match="max_clients_at_once must be at least 1"):
        Vectorised(max_clients_at_once=0)
