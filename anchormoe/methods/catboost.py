"""CatBoost for the mean: slow and deep, fold models averaged, with a t-distribution from out-of-fold residuals."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from catboost import CatBoostRegressor

from anchormoe.methods.fold_stack import Fitter, FoldStack, Part, Predict


class CatBoost(FoldStack):
    """CatBoost with the depth and rate of the lowest held-out error; each fold stops by its held-out rows."""

    def __init__(
        self,
        *,
        rounds: int = 5000,
        settings: Sequence[tuple[int, float]] = ((6, 0.03), (4, 0.03), (8, 0.1)),
        random_state: int = 0,
    ) -> None:
        super().__init__(random_state=random_state)
        self.rounds, self.settings = rounds, tuple(settings)

    def _members(self) -> dict[str, Sequence[Fitter]]:
        fitters = [
            functools.partial(fit_catboost, rounds=self.rounds, depth=depth, learning_rate=rate)
            for depth, rate in self.settings
        ]
        return {"catboost": fitters}


def fit_catboost(part: Part, *, rounds: int, depth: int, learning_rate: float) -> Predict:
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
