"""Federated Bayesian inference with Pyro: partitioned variational inference."""
