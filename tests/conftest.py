"""Settings of every test: one thread, since small tensors only lose by sharing cores."""

import torch

torch.set_num_threads(1)
