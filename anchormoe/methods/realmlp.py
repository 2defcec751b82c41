"""RealMLP by the pytabkit library (Holzmüller et al., 2024), with its tuned defaults."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from anchormoe.methods.fold_stack import Fitter, FoldStack, Part, Predict
from anchormoe.methods.pytabkit_models import RealMLP_TD_Regressor, fit_network
from anchormoe.methods.quantile_folds import LEVELS, QuantileFolds


class RealMLP(FoldStack):
    """RealMLP-TD for the mean, fold models averaged, with a t-distribution from out-of-fold residuals."""

    slow = frozenset({"realmlp"})

    def __init__(self, *, epochs: int = 256, folds_up_to: int = 2000, random_state: int = 0) -> None:
        super().__init__(folds_up_to=folds_up_to, random_state=random_state)
        self.epochs = epochs

    def _members(self) -> dict[str, Sequence[Fitter]]:
        return {"realmlp": [functools.partial(fit_realmlp, epochs=self.epochs)]}


class RealMLPQuantiles(QuantileFolds):
    """RealMLP-TD for many quantiles at once, averaged over folds."""

    def __init__(self, *, epochs: int = 256, folds_up_to: int = 2000, random_state: int = 0) -> None:
        super().__init__(folds_up_to=folds_up_to, random_state=random_state)
        self.epochs = epochs

    def _fit_part(self, part: Part) -> Predict:
        pinball = f"multi_pinball({','.join(f'{level:g}' for level in LEVELS)})"
        return fit_realmlp(part, epochs=self.epochs, train_metric_name=pinball, val_metric_name=pinball)


def fit_realmlp(part: Part, *, epochs: int, **settings: Any) -> Predict:
    """Fit to a part, with the epoch of the lowest held-out error, and return the predictions as a function of rows."""
    return fit_network(RealMLP_TD_Regressor, part, n_epochs=epochs, **settings)
