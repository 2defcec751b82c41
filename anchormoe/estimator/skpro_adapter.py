"""AnchorMoERegressor as a regressor of skpro, so that skpro's metrics, pipelines and searches work with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import clone

from anchormoe.config.presets import recipe_preset
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.estimator.regressor import AnchorMoERegressor

try:
    from skpro.distributions import NormalMixture
    from skpro.regression.base import BaseProbaRegressor
except ImportError as error:
    raise ImportError(f"the adapter needs skpro: pip install 'anchormoe[skpro]' ({error})") from None


class ExactNormalMixture(NormalMixture):
    """A mixture of normals of skpro, one mixture per row, with exact energies.

    skpro's own class leaves out of the self-energy how far apart the components are, which makes its CRPS wrong, and
    loses digits of the variance where the mean is far from zero.

    The weights `pi` are (N, M), the means `mu` and standard deviations `sigma` (N, M), or (N, M, outputs).

    Examples
    --------
    >>> from anchormoe.estimator.skpro_adapter import ExactNormalMixture
    >>> mixture = ExactNormalMixture(pi=[[0.5, 0.5]], mu=[[-1.0, 1.0]], sigma=[[0.1, 0.1]])
    >>> round(float(mixture.energy().iloc[0, 0]), 4)  # half of all pairs are about 2 apart
    1.0564
    """

    def _var(self) -> Any:
        return self._by_output(lambda mixture: np.square(mixture.std))

    def _energy_self(self) -> Any:
        """Compute E|Y - Y'| from the CRPS, which is E|Y - y| - E|Y - Y'| / 2 at any y, here at the mean."""
        crps = self._by_output(lambda mixture: mixture.crps(mixture.mean))
        return 2 * (self._energy_x(self._mean()) - (crps if self.ndim == 0 else crps.sum(axis=1, keepdims=True)))

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> ExactNormalMixture:
        return self._of_own_class(super()._iloc(rowidx, colidx))

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> ExactNormalMixture:
        return self._of_own_class(super()._iat(rowidx, colidx))

    def _of_own_class(self, part: NormalMixture) -> ExactNormalMixture:
        return type(self)(part.pi, part.mu, part.sigma, part.index, part.columns)

    def _by_output(self, function: Callable[[GaussianMixture], np.ndarray]) -> Any:
        """Compute a function of each output's mixtures: (N, outputs), or a number if this is a scalar."""
        with np.errstate(divide="ignore"):  # a component of weight zero
            log_weights = np.log(self._pi)
        outputs = range(self._mu.shape[2])
        parts = [GaussianMixture(log_weights, self._mu[:, :, k], self._sigma[:, :, k]) for k in outputs]
        values = np.stack([function(part) for part in parts], axis=1)
        return float(values[0, 0]) if self.ndim == 0 else values


class AnchorMoEProbaRegressor(BaseProbaRegressor):
    """AnchorMoERegressor behind skpro's interface: `predict_proba` returns a mixture of normals per row.

    Parameters
    ----------
    regressor : AnchorMoERegressor or None
        The regressor to fit, which is cloned; None takes the default settings. Its settings are reached as
        `regressor__num_experts` and so on, also by skpro's searches.

    Attributes
    ----------
    regressor_ : AnchorMoERegressor
        The fitted regressor, with `summary`, `save` and the plots.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from anchormoe import AnchorMoERegressor
    >>> from anchormoe.estimator.skpro_adapter import AnchorMoEProbaRegressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> quick = AnchorMoERegressor(anchor="ridge", folds=2, training={"epochs": 2}, random_state=0)
    >>> predicted = AnchorMoEProbaRegressor(quick).fit(X[:60], y[:60]).predict_proba(X[60:63])
    >>> predicted.shape
    (3, 1)
    """

    _tags: ClassVar[dict[str, Any]] = {
        "capability:missing": True,
        "capability:multioutput": False,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, regressor: AnchorMoERegressor | None = None) -> None:
        self.regressor = regressor
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> AnchorMoEProbaRegressor:
        regressor = AnchorMoERegressor() if self.regressor is None else clone(self.regressor)
        if regressor.calibration == "auto" and recipe_preset(regressor.recipe).calibration.maps_cdf:
            regressor.set_params(calibration="weighted")  # a distribution of skpro is a mixture
        self.regressor_ = regressor.fit(_with_text_names(X), y.iloc[:, 0])
        self._target_columns = y.columns
        return self

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(self.regressor_.predict(_with_text_names(X)), index=X.index, columns=self._target_columns)

    def _predict_proba(self, X: pd.DataFrame) -> ExactNormalMixture:
        predicted = self.regressor_.predict_dist(_with_text_names(X))
        if not isinstance(predicted, GaussianMixture):
            raise ValueError(
                "calibration must be auto, none, linear or weighted for skpro, whose distributions are mixtures, "
                f"received {self.regressor_.calibration}"
            )
        predicted = predicted.float64()
        return ExactNormalMixture(
            pi=predicted.weights,
            mu=predicted.means * predicted.scale + predicted.center,
            sigma=predicted.scales * predicted.scale,
            index=X.index,
            columns=self._target_columns,
        )

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return the settings of skpro's checks: both recipes, small, on an anchor that fits at once."""
        quick: dict[str, Any] = {"anchor": "ridge", "hidden_dim": 8, "training": {"epochs": 2}, "random_state": 0}
        return [
            {"regressor": AnchorMoERegressor(folds=2, **quick)},
            {"regressor": AnchorMoERegressor("paper", **quick)},
        ]


def _with_text_names(X: pd.DataFrame) -> pd.DataFrame:
    """Return the table with names of columns that are texts: skpro allows a mixture of types, scikit-learn does not."""
    return X.set_axis(X.columns.astype(str), axis=1)
