"""The arrays that the figures of a dataset show, computed from fits of a few splits and returned as plain arrays.

The methods are fitted as their stored rows were. Predictions are those of all test rows of the splits; the inside of
the network (router, training, calibration) is that of the paper's recipe on the first split.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anchormoe import methods
from anchormoe.config.compose import jobs
from anchormoe.data.splits import inner_split
from anchormoe.distributions.base import Distribution
from anchormoe.distributions.scores import scores
from anchormoe.running.evaluate import load_dataset
from anchormoe.running.tasks import make_task

Arrays = dict[str, np.ndarray]

# method -> what the command line of its rows says beside dataset and protocol
METHODS = {
    "anchormoe_crossfit": ["method=anchormoe_crossfit"],
    "anchormoe": ["anchor=trees"],
    "ngboost": ["method=ngboost", "anchor=none"],
}
TEST_ROWS = 200  # splits are added until they have this number of test rows
LEVELS = np.array([*np.arange(0.05, 0.96, 0.05), 0.99])  # nominal coverage of central intervals
DENSITY_POINTS = 160
PLANE_POINTS = 140
SCORES = ("nll_y", "crps_y", "rmse_y")


def compute(name: str) -> Arrays:
    """Fit all methods on the first splits of a dataset and return what its figures show."""
    arrays: Arrays = {"levels": LEVELS, "score_names": np.array(SCORES)}
    kept: dict[str, tuple[Distribution, np.ndarray]] = {}
    for method, settings in METHODS.items():
        (job,) = jobs([f"dataset={name}", "protocol=clean", *settings])
        config, split = job.config(), 0
        parts: list[Arrays] = []
        while sum(len(part["y"]) for part in parts) < TEST_ROWS:
            split += 1
            task = make_task(config, split)
            dataset = load_dataset(task)
            train, test = task.split.rows(len(dataset.y))
            regressor = methods.make(task.method, task.arguments).fit(dataset.X[train], dataset.y[train])
            distribution = regressor.predict_dist(dataset.X[test])
            parts.append(_predictions(distribution, dataset.y[test]))
            if split == 1:
                kept[method] = distribution, dataset.y[test]
                arrays[f"{method}/config_hash"] = np.array(task.labels["config_hash"])
            if split == 1 and method == "anchormoe":
                arrays |= _network(regressor, dataset.X[train], dataset.y[train], dataset.X[test])
        arrays["target_name"], arrays["num_splits"] = np.array(dataset.target_name), np.array(split)
        for key in parts[0]:
            joined = np.stack if key in ("widths", "scores") else np.concatenate
            arrays[f"{method}/{key}"] = joined([part[key] for part in parts])
    arrays["y"] = arrays["anchormoe/y"]
    for method in METHODS:
        del arrays[f"{method}/y"]
    return arrays | _densities(kept)


def _predictions(distribution: Distribution, y: np.ndarray) -> Arrays:
    """Return the targets, means, 90% intervals, PIT values, mean widths of central intervals, and scores."""
    quantiles = distribution.quantile(np.concatenate([(1 - LEVELS) / 2, (1 + LEVELS) / 2]))
    widths = quantiles[:, len(LEVELS) :] - quantiles[:, : len(LEVELS)]
    measured = scores(distribution, y)
    return {
        "y": y,
        "mean": distribution.mean,
        "interval": distribution.interval(0.9),
        "pit": distribution.cdf(y),
        "widths": widths.mean(0),
        "scores": np.array([measured[name] for name in SCORES]),
    }


def _densities(kept: dict[str, tuple[Distribution, np.ndarray]]) -> Arrays:
    """Return the densities of an easy, a hard and a wrong row, as the cross-fitted recipe sees them.

    Easy is the narrowest density whose target lies in its middle half, hard the widest whose target lies in its central
    90%, wrong the row whose target is furthest out in its density.
    """
    leading, y = kept["anchormoe_crossfit"]
    std, pit = leading.std, leading.cdf(y)
    rows = [
        int(np.argmin(np.where(np.abs(pit - 0.5) <= 0.25, std, np.inf))),
        int(np.argmax(np.where(np.abs(pit - 0.5) <= 0.45, std, -np.inf))),
        int(np.argmax(np.abs(pit - 0.5))),
    ]
    shown = ("anchormoe_crossfit", "anchormoe")
    levels = np.linspace(0.003, 0.997, DENSITY_POINTS // 4)
    quantiles = np.concatenate([kept[method][0].quantile(levels)[rows].T for method in shown])
    low, high = (function([quantiles.min(0), quantiles.max(0), y[rows]], axis=0) for function in (np.min, np.max))
    margin = 0.04 * (high - low)
    even = np.linspace(low - margin, high + margin, DENSITY_POINTS // 2)
    grid = np.sort(np.concatenate([even, quantiles]), axis=0)  # (points, rows): dense where either density is narrow
    arrays: Arrays = {"density_y": y[rows], "density_grid": grid.T}
    for method in shown:
        distribution, values = kept[method][0], np.empty_like(grid)
        everywhere = np.array(y, dtype=float)
        for point in range(len(grid)):
            everywhere[rows] = grid[point]
            values[point] = np.exp(distribution.log_prob(everywhere)[rows])
        arrays[f"{method}/density"] = values.T
    return arrays


def _network(regressor: Any, X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> Arrays:
    """Return the router's map, the training curves and the calibration of a fitted regressor of the paper's recipe."""
    import torch

    network = regressor.fitted_.network
    model, selected = network.model, network.selected
    with torch.no_grad():
        batch = network.scaling.batch(network.encoder(X_test), np.zeros(len(X_test)), network.anchor.predict(X_test))
        z = model.projection(batch.x).numpy()
        low, high = z.min(0), z.max(0)
        margin = 0.08 * (high - low)
        axes = [np.linspace(low[k] - margin[k], high[k] + margin[k], PLANE_POINTS) for k in (0, 1)]
        plane = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
        regions = _first_expert(model, plane).reshape(PLANE_POINTS, PLANE_POINTS)
        arrays: Arrays = {
            "router/z": z,
            "router/expert": _first_expert(model, z),
            "router/first_axis": axes[0],
            "router/second_axis": axes[1],
            "router/regions": regions,
            "router/centers": model.window.center_KD.numpy(),
            "router/scales": model.window.log_scale_KD.clamp(model.window.log_scale_min, model.window.log_scale_max)
            .exp()
            .numpy(),
        }
    inner = inner_split(
        len(y),
        regressor.inner_seed,
        calibration_fraction=regressor.calibration_fraction,
        validation_fraction=regressor.validation_fraction,
    )
    return arrays | {
        "training/objective": np.array(selected.objectives),
        "training/validation": np.array(selected.validation_nlls),
        "training/epoch": np.array(selected.epoch),
        "calibration/mean": network.predict(X[inner.cal]).mean,
        "calibration/y": y[inner.cal],
        "calibration/line": np.array([regressor.fitted_.linear_map.slope, regressor.fitted_.linear_map.intercept]),
    }


def _first_expert(model: Any, z: np.ndarray) -> np.ndarray:
    """Return the expert with the largest gate at points of the latent plane."""
    import torch

    z_ND = torch.as_tensor(z, dtype=torch.float32)
    gates_NK = model.window(z_ND) * model.router(z_ND, model.temperature).softmax(1)
    return gates_NK.argmax(1).numpy().astype(np.uint8)
