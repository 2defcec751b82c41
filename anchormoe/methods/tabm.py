"""TabM by the pytabkit library (Gorishniy et al., 2025): an ensemble of networks that share most of their weights."""

from __future__ import annotations

from collections.abc import Sequence

from anchormoe.methods.fold_stack import Fitter, FoldStack, Part, Predict
from anchormoe.methods.pytabkit_models import TabM_D_Regressor, fit_network


class TabM(FoldStack):
    """TabM-mini with piecewise linear embeddings for the mean, with a t-distribution from out-of-fold residuals.

    Every fit is an ensemble of `members` networks already. On the CPU it is far slower than any other method, so there
    are fold models on few rows only.
    """

    def __init__(
        self,
        *,
        members: int = 32,
        max_epochs: int = 300,
        patience: int = 16,
        folds_up_to: int = 600,
        random_state: int = 0,
    ) -> None:
        super().__init__(folds_up_to=folds_up_to, random_state=random_state)
        self.members, self.max_epochs, self.patience = members, max_epochs, patience

    def _members(self) -> dict[str, Sequence[Fitter]]:
        return {"tabm": [self._fit_part]}

    def _fit_part(self, part: Part) -> Predict:
        return fit_network(
            TabM_D_Regressor,
            part,
            arch_type="tabm-mini",
            num_emb_type="pwl",
            num_emb_n_bins=min(48, len(part.y) - 1),
            tabm_k=self.members,
            n_epochs=self.max_epochs,
            patience=self.patience,
            gradient_clipping_norm=1.0,
        )
