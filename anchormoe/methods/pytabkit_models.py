"""Networks of the pytabkit library, fitted quietly on one thread."""

from __future__ import annotations

import contextlib
import functools
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from anchormoe.methods.fold_stack import Part, Predict

with warnings.catch_warnings():
    # The library compiles a function with torch.jit when it is imported.
    warnings.filterwarnings("ignore", message=r"`torch\.jit", category=DeprecationWarning)
    from pytabkit import RealMLP_TD_Regressor, TabM_D_Regressor

__all__ = ["RealMLP_TD_Regressor", "TabM_D_Regressor", "fit_network"]


def fit_network(network: Any, part: Part, **settings: Any) -> Predict:
    """Fit a network to a part, with the epoch of the lowest held-out error, and return its predictions of rows."""
    model = network(device="cpu", random_state=part.seed, n_threads=1, n_cv=1, n_refit=0, verbosity=0, **settings)
    with _quiet():
        model.fit(part.X, part.y, X_val=part.held_out_X, y_val=part.held_out_y)
    return functools.partial(_predicted, model)


def _predicted(model: Any, X: np.ndarray) -> np.ndarray:
    with _quiet():
        return np.asarray(model.predict(X), dtype=np.float64)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the library's trainer, which reports on devices at every call, and leave the random streams alone."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    state = np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(state)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
