"""TabM by the pytabkit library (Gorishniy et al., 2025): an ensemble of networks that share most of their weights."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from anchormoe.methods.fold_stack import Fitter, FoldStack, Part, Predict
from anchormoe.methods.pytabkit_models import TabM_D_Regressor, fit_network


class TabM(FoldStack):
    """TabM-mini with piecewise linear embeddings for the mean, with a t-distribution from out-of-fold residuals.

    Every fit is an ensemble of `members` networks already. Its authors tune the width of the layers from 64 to 1024 and
    their number from 1 to 5. The cost on the CPU is quadratic in the width, so there is a narrow network here, and
    above 2,000 rows a single fit.
    """

    slow = frozenset({"tabm"})

    def __init__(
        self,
        *,
        members: int = 32,
        width: int = 128,
        max_epochs: int = 300,
        patience: int = 16,
        folds_up_to: int = 2000,
        random_state: int = 0,
    ) -> None:
        super().__init__(folds_up_to=folds_up_to, random_state=random_state)
        self.members, self.width_of_layers = members, width
        self.max_epochs, self.patience = max_epochs, patience

    def _members(self) -> dict[str, Sequence[Fitter]]:
        fit = functools.partial(
            fit_tabm,
            members=self.members,
            width=self.width_of_layers,
            max_epochs=self.max_epochs,
            patience=self.patience,
        )
        return {"tabm": [fit]}


def fit_tabm(part: Part, *, members: int, width: int, max_epochs: int, patience: int) -> Predict:
    """Fit to a part, stopped by its held-out rows, and return the predictions as a function of rows."""
    return fit_network(
        TabM_D_Regressor,
        part,
        arch_type="tabm-mini",
        num_emb_type="pwl",
        num_emb_n_bins=min(48, len(part.y) - 1),
        tabm_k=members,
        d_block=width,
        n_epochs=max_epochs,
        patience=patience,
        gradient_clipping_norm=1.0,
    )
