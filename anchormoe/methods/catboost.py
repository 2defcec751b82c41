"""CatBoost for the mean: slow and deep, fold models averaged, with a t-distribution from out-of-fold residuals."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from catboost import CatBoostRegressor

from anchormoe.methods.fold_stack import Fitter, FoldStack, Part, Predict


class CatBoost(FoldStack):
    """CatBoost with the depth of the lowest held-out error; each fold stops by its held-out rows."""

    def __init__(
        self,
        *,
        rounds: int = 5000,
        learning_rate: float = 0.03,
        depths: Sequence[int] = (6, 4),
        folds_up_to: int = 2000,
        random_state: int = 0,
    ) -> None:
        super().__init__(folds_up_to=folds_up_to, random_state=random_state)
        self.rounds, self.learning_rate, self.depths = rounds, learning_rate, tuple(depths)

    def _members(self) -> dict[str, Sequence[Fitter]]:
        fit = functools.partial(fit_catboost, rounds=self.rounds, learning_rate=self.learning_rate)
        return {"catboost": [functools.partial(fit, depth=depth) for depth in self.depths]}


def fit_catboost(part: Part, *, rounds: int = 5000, learning_rate: float = 0.03, depth: int = 6) -> Predict:
    """Fit to a part, stopped where its held-out error is lowest, and return the predictions as a function of rows."""
    model = CatBoostRegressor(
        iterations=rounds,
        learning_rate=learning_rate,
        depth=depth,
        random_seed=part.seed,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
    )
    model.fit(part.X, part.y, eval_set=(part.held_out_X, part.held_out_y), early_stopping_rounds=200)
    return functools.partial(model.predict, thread_count=1)
