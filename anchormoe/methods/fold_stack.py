"""Point models fitted on folds and averaged, with a t-distribution from the residuals of their held-out rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from anchormoe.distributions.base import Distribution
from anchormoe.methods.base import StandardisedRegressor
from anchormoe.methods.residual_scale import ResidualScale
from anchormoe.model.kernels.clock import clock
from anchormoe.model.sharing import shared
from anchormoe.model.training_rows import folds_of

NUM_FOLDS = 5

Predict = Callable[[np.ndarray], np.ndarray]


class Part(NamedTuple):
    """The rows that a model is fitted to and those held out, on which its training may be stopped."""

    X: np.ndarray
    y: np.ndarray
    held_out_X: np.ndarray
    held_out_y: np.ndarray
    seed: int


Fitter = Callable[[Part], Predict]


def fold_parts(X: np.ndarray, y: np.ndarray, seed: int) -> list[Part]:
    """Return five parts; each holds out another fifth of the rows."""
    folds = folds_of(len(y), NUM_FOLDS, seed=seed)
    parts = []
    for number, held_out in enumerate(folds):
        rows = np.concatenate([*folds[:number], *folds[number + 1 :]])
        parts.append(Part(X[rows], y[rows], X[held_out], y[held_out], seed + number))
    return parts


def timed_fit(fitter: Fitter, part: Part) -> tuple[Predict, float]:
    """Fit to a part and return the predictions and the seconds that this took."""
    start = clock()
    return fitter(part), clock() - start


class FoldStack(StandardisedRegressor):
    """Members that are fitted on folds, averaged over them and weighted by non-negative least squares out of fold.

    A member has one setting or several; the one with the lowest error on the rows held out of the first fold is used on
    the others. The width of the t-distribution is learnt from the stack's out-of-fold residuals.

    Above `folds_up_to` rows the members named in `slow` are fitted on the first fold only. Weights and width then come
    from the rows that this fold holds out.
    """

    slow: frozenset[str] = frozenset()

    def __init__(self, *, folds_up_to: int = 2000, random_state: int = 0) -> None:
        super().__init__(random_state=random_state)
        self.folds_up_to = folds_up_to

    @abstractmethod
    def _members(self) -> dict[str, Sequence[Fitter]]:
        """Return the members, each with its settings."""

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        start, self._seconds_saved = clock(), 0.0
        parts = fold_parts(X, y, seed)
        members = self._members()
        fitted = {
            name: self._fitted(name, fitters, parts[:1] if name in self.slow and len(y) > self.folds_up_to else parts)
            for name, fitters in members.items()
        }
        self.models = list(fitted.values())
        common = parts[: min(map(len, self.models))]
        held_out_X = np.concatenate([part.held_out_X for part in common])
        held_out_y = np.concatenate([part.held_out_y for part in common])
        out_of_fold = np.column_stack(
            [
                np.concatenate([model(part.held_out_X) for model, part in zip(of_folds, common, strict=False)])
                for of_folds in self.models
            ]
        )
        self.weights = np.ones(1) if len(members) == 1 else nnls(out_of_fold, held_out_y)[0]
        if len(members) > 1:
            self.diagnostics_["weights"] = dict(zip(members, self.weights.tolist(), strict=True))
        self.width = ResidualScale(seed=seed).fit(held_out_X, out_of_fold @ self.weights, held_out_y)
        self.diagnostics_["fit_seconds"] = clock() - start + self._seconds_saved

    def _fitted(self, name: str, fitters: Sequence[Fitter], parts: list[Part]) -> list[Predict]:
        """Return the member's model of every fold."""
        first = [self._fitted_to(parts[0], fitter) for fitter in fitters]
        errors = [float(np.mean((model(parts[0].held_out_X) - parts[0].held_out_y) ** 2)) for model in first]
        best = int(np.argmin(errors))
        if len(fitters) > 1:
            self.diagnostics_[f"{name}_setting"] = best
        return [first[best], *(self._fitted_to(part, fitters[best]) for part in parts[1:])]

    def _fitted_to(self, part: Part, fitter: Fitter) -> Predict:
        """Fit to a part; in a run, methods with the same member share it, and its seconds count for each of them."""
        start = clock()
        model, seconds = shared(timed_fit)(fitter, part)
        self._seconds_saved += seconds - (clock() - start)
        return model

    def _predict(self, X: np.ndarray) -> Distribution:
        members = [np.mean([model(X) for model in of_folds], axis=0) for of_folds in self.models]
        return self.width.predict(X, np.column_stack(members) @ self.weights)
