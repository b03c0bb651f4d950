"""Irregular time series of intensive care stays as tables: 17 variables, 7 sub-periods, 6 statistics."""
