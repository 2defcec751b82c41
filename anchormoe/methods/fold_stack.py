"""Point models fitted on folds and averaged, with a t-distribution from the residuals of their held-out rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from anchormoe.distributions.base import Distribution
from anchormoe.methods.base import StandardisedRegressor, hold_out
from anchormoe.methods.residual_scale import ResidualScale

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


def fold_rows(num_rows: int, seed: int, *, folds_up_to: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return rows to fit on and held-out rows: five folds, above `folds_up_to` rows one part of 20%."""
    if num_rows > folds_up_to:
        return [hold_out(num_rows, seed)]
    parts = np.array_split(np.random.default_rng(seed).permutation(num_rows), NUM_FOLDS)
    return [(np.concatenate([*parts[:k], *parts[k + 1 :]]), parts[k]) for k in range(NUM_FOLDS)]


class FoldStack(StandardisedRegressor):
    """Members that are fitted on folds, averaged over them and weighted by non-negative least squares out of fold.

    A member has one setting or several; the one with the lowest error on the rows held out of the first fold is used on
    the others. The width of the t-distribution is learnt from the stack's out-of-fold residuals.
    """

    def __init__(self, *, folds_up_to: int = 2000, random_state: int = 0) -> None:
        super().__init__(random_state=random_state)
        self.folds_up_to = folds_up_to

    @abstractmethod
    def _members(self) -> dict[str, Sequence[Fitter]]:
        """Return the members, each with its settings."""

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        folds = fold_rows(len(y), seed, folds_up_to=self.folds_up_to)
        parts = [
            Part(X[rows], y[rows], X[held_out], y[held_out], seed + number)
            for number, (rows, held_out) in enumerate(folds)
        ]
        members = self._members()
        fitted = {name: self._fitted(name, fitters, parts) for name, fitters in members.items()}
        self.models = list(fitted.values())
        held_out_X = np.concatenate([part.held_out_X for part in parts])
        held_out_y = np.concatenate([part.held_out_y for part in parts])
        out_of_fold = np.column_stack(
            [
                np.concatenate([model(part.held_out_X) for model, part in zip(of_folds, parts, strict=True)])
                for of_folds in self.models
            ]
        )
        self.weights = np.ones(1) if len(members) == 1 else nnls(out_of_fold, held_out_y)[0]
        if len(members) > 1:
            self.diagnostics_["weights"] = dict(zip(members, self.weights.tolist(), strict=True))
        self.width = ResidualScale(seed=seed).fit(held_out_X, out_of_fold @ self.weights, held_out_y)

    def _fitted(self, name: str, fitters: Sequence[Fitter], parts: list[Part]) -> list[Predict]:
        """Return the member's model of every fold."""
        first = [fitter(parts[0]) for fitter in fitters]
        errors = [float(np.mean((model(parts[0].held_out_X) - parts[0].held_out_y) ** 2)) for model in first]
        best = int(np.argmin(errors))
        if len(fitters) > 1:
            self.diagnostics_[f"{name}_setting"] = best
        return [first[best], *(fitters[best](part) for part in parts[1:])]

    def _predict(self, X: np.ndarray) -> Distribution:
        members = [np.mean([model(X) for model in of_folds], axis=0) for of_folds in self.models]
        return self.width.predict(X, np.column_stack(members) @ self.weights)
