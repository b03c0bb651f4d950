"""aggregators."""
