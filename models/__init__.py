"""Bundled models: plain Pyro programs, one a file."""
