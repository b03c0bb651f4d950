"""Tables for people: coefficients, rounds, held-out rows; as pandas frames and for the terminal."""

import math
from typing import Any

import pandas as pd
import torch
from rich import box
from rich.markup import escape
from rich.table import Table

from pvi.diagnostics.heldout import ALL, heldout_log_density, heldout_metrics
from pvi.diagnostics.labels import element_labels
from pvi.diagnostics.marginals import direction, interval
from pvi.diagnostics.ratios import RATIOS, ratio_name
from pvi.history import Round
from pvi.result import Result

READABLE = 20
"""Characters of a name that stay on one line."""
GAP = 3
"""Characters between the columns of a table."""


def coefficient_table(result: Result) -> pd.DataFrame:
    """One row for each element of each shared site.

    Columns: ``coefficient`` (the feature's name, the scalar's site, or ``site[index]``), ``site``, ``mean``, ``sd``,
    ``lower`` and ``upper`` (95 %, equal-tailed), ``p_direction`` = max(P(> 0), P(< 0)), NaN where the support has one
    sign only. All are exact where the site's bijection acts elementwise, else from draws. For logistic and Poisson
    regression also ``odds_ratio`` or ``rate_ratio`` (the exponential of the mean, which is the ratio's median) with
    ``_lower`` and ``_upper``; NaN for scalars, since an intercept is no ratio.
    """
    ratio = ratio_name(result)
    records: list[dict[str, Any]] = []
    for site, labels in element_labels(result.posterior.coordinates, result.columns).items():
        mean, sd = result.posterior.moments(site)
        low, high = interval(result.posterior, site)
        sign = direction(result.posterior, site)
        is_scalar = mean.ndim == 0
        parts = zip(labels, *(part.reshape(-1).tolist() for part in (mean, sd, low, high, sign)), strict=True)
        for label, centre, spread, lower, upper, share in parts:
            record = {"coefficient": label, "site": site, "mean": centre, "sd": spread, "lower": lower, "upper": upper}
            if ratio:
                values = [math.nan] * 3 if is_scalar else [_exp(value) for value in (centre, lower, upper)]
                record |= dict(zip((ratio, f"{ratio}_lower", f"{ratio}_upper"), values, strict=True))
            records.append(record | {"p_direction": share})
    return pd.DataFrame.from_records(records)


def history_frame(result: Result) -> pd.DataFrame:
    """One row a round: the fields of :class:`pvi.Round` flat, with running totals of what was sent.

    ``elbo``, ``kl`` and ``log_likelihood[client]`` (expected under q) are in nats; ``rejected`` and ``unconverged``
    name clients, ``max_staleness`` counts the server's steps, ``accelerated`` the rounds that were mixed (0: the plain
    step was taken); ``hyperparameter[name]``, or ``hyperparameter[name][index]`` of arrays, are those learned.
    """
    left_out = ("number", "expected_log_likelihood", "clients", "hyperparameters", "mixing", "earlier")
    records = []
    for record in result.history:
        flat: dict[str, Any] = {key: value for key, value in record._asdict().items() if key not in left_out}
        flat |= {
            "accelerated": len(record.mixing),
            "max_staleness": record.max_staleness,
            "rejected": ";".join(record.rejected),
            "unconverged": ";".join(record.unconverged),
        }
        flat |= _learned(record)
        likelihoods = {f"log_likelihood[{name}]": value for name, value in record.expected_log_likelihood.items()}
        records.append({"round": record.number} | flat | likelihoods)
    frame = pd.DataFrame.from_records(records)
    for name in ("communications", "bytes_sent", "seconds"):
        place = int(frame.columns.get_indexer(pd.Index([name]))[0])
        frame.insert(place + 1, f"cumulative_{name}", frame[name].cumsum())
    return frame


def _learned(record: Round) -> dict[str, float]:
    """A round's hyperparameters, an element a column, row-major as in the table of hyperparameters."""
    found: dict[str, float] = {}
    for name, value in record.hyperparameters.items():
        values = torch.as_tensor(value, dtype=torch.float64)
        numbers = values.reshape(-1).tolist()
        labels = [f"[{index}]" for index in range(len(numbers))] if values.ndim else [""]
        found |= {f"hyperparameter[{name}]{label}": number for label, number in zip(labels, numbers, strict=True)}
    return found


def render_coefficients(table: pd.DataFrame, title: str = "Coefficients", width: int = 80) -> Table:
    """A coefficient table for a terminal of some width.

    Numbers have two digits of their standard deviation, in scientific notation where they are large or tiny. Rows whose
    interval leaves zero out are bold. Where space is short and there are ratios, the coefficient's own interval is left
    out; where that is not enough, lines break.
    """
    ratio = next((name for name in RATIOS.values() if name in table.columns), "")
    columns = {"coefficient": [escape(label) for label in table["coefficient"]]} | _cells(table, ratio)
    sizes = {name: max(len(text) for text in (name, *cells)) for name, cells in columns.items()}
    sizes["coefficient"] = min(sizes["coefficient"], READABLE)
    if ratio and sum(sizes.values()) + GAP * len(sizes) > width:
        del columns["95 % interval"], sizes["95 % interval"]
    fits = sum(sizes.values()) + GAP * len(sizes) <= width
    shown = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), title_justify="left")
    for name in columns:
        is_label = name == "coefficient"
        shown.add_column(name, justify="left" if is_label else "right", no_wrap=fits and not is_label, overflow="fold")
    clear = (table["lower"] * table["upper"] > 0) & table["p_direction"].notna()
    for cells, bold in zip(zip(*columns.values(), strict=True), clear, strict=True):
        shown.add_row(*cells, style="bold" if bold else "")
    return shown


def _cells(table: pd.DataFrame, ratio: str) -> dict[str, list[str]]:
    """The columns of numbers as text."""
    found: dict[str, list[str]] = {"mean": [], "sd": [], "95 % interval": []}
    of_ratio, of_direction = [], []
    for row in table.to_dict("records"):
        digits = _decimals(row["sd"])
        mean, sd, low, high = (_number(row[name], digits) for name in ("mean", "sd", "lower", "upper"))
        for cells, text in zip(found.values(), (mean, sd, f"{low} to {high}"), strict=True):
            cells.append(text)
        if ratio:
            centre, low, high = (_ratio(row[name]) for name in (ratio, f"{ratio}_lower", f"{ratio}_upper"))
            of_ratio.append("" if math.isnan(row[ratio]) else f"{centre} ({low} to {high})")
        share = row["p_direction"]
        of_direction.append("" if math.isnan(share) else "> 0.999" if share > 0.9995 else f"{share:.3f}")
    if ratio:
        found[f"{ratio.replace('_', ' ')} (95 %)"] = of_ratio
    return found | {"P(dir.)": of_direction}


def render_metrics(table: pd.DataFrame, title: str = "Held-out rows") -> Table:
    """Held-out metrics for the terminal."""
    shown = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), title_justify="left")
    shown.add_column("client", overflow="fold")
    headings = {"log_density": "log density a row (nats)", "brier": "Brier score", "rmse": "RMSE"}
    for name in table.columns:
        shown.add_column(headings.get(str(name), str(name)), justify="right")
    for client, row in table.iterrows():
        cells = [str(int(row["rows"])), *("" if math.isnan(v) else _number(v, 3) for v in row.drop("rows"))]
        shown.add_row(escape(str(client)), *cells, style="bold" if client == ALL else "")
    return shown


def render_personal_metrics(table: pd.DataFrame, title: str = "Held-out rows: personal / global model") -> Table:
    """What :func:`pvi.diagnostics.personal_metrics` gives, for the terminal: both models' numbers in one cell."""
    shown = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), title_justify="left")
    shown.add_column("client", overflow="fold")
    shown.add_column("rows", justify="right")
    headings = {"log_density": "log density (nats)", "auroc": "AUROC", "rmse": "RMSE"}
    metrics = [str(name).removesuffix("_pm") for name in table.columns if str(name).endswith("_pm")]
    for name in metrics:
        shown.add_column(headings.get(name, name), justify="right")
    for client, row in table.iterrows():
        pairs = [[row[f"{name}_{model}"] for model in ("pm", "gm")] for name in metrics]
        cells = [" / ".join("" if math.isnan(value) else _number(value, 3) for value in pair) for pair in pairs]
        cells = ["" if cell == " / " else cell for cell in cells]
        shown.add_row(escape(str(client)), str(int(row["n"])), *cells, style="bold" if client == ALL else "")
    return shown


def _decimals(sd: float) -> int:
    """Decimals that show two digits of a standard deviation, negative ones of a large one."""
    return 1 - math.floor(math.log10(sd)) if sd > 0 and math.isfinite(sd) else 3


def _number(value: float, decimals: int) -> str:
    """At most eight decimals; from 1e6 on and under 1e-6 scientific, with as many significant digits: two to six."""
    size = abs(value)
    if size == 0 or 1e-6 <= size < 1e6 or not math.isfinite(size):
        return f"{value:.{min(8, max(0, decimals))}f}"
    return f"{value:.{min(6, max(2, math.floor(math.log10(size)) + 1 + decimals)) - 1}e}"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if 0.1 <= value < 100 else f"{value:.2g}"


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


__all__ = [
    "coefficient_table",
    "heldout_log_density",
    "heldout_metrics",
    "history_frame",
    "ratio_name",
    "render_coefficients",
    "render_metrics",
    "render_personal_metrics",
]
