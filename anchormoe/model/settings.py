"""The settings of Anchor-MoE: dataclasses that check their values when they are made, and their choices.

Names are full words; the paper's letters stand in the comments. Defaults are those of the published runs.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from anchormoe.errors import UserError


class AnchorMode(Enum):
    delta = "delta"  # component mean = anchor + Delta (the paper's default)
    only = "only"  # component mean = anchor
    free = "free"  # component mean = Delta: no anchor


class RouterKind(Enum):
    dot = "dot"
    cosine = "cosine"
    none = "none"  # windows alone choose the experts


class Combination(Enum):
    product = "product"  # window * router, renormalised: what the published runs did
    log_space = "log_space"  # softmax(log max(window, floor) + router logits): as the paper writes it


class SmoothAt(Enum):
    train = "train"  # what the published runs did
    always = "always"  # as the paper writes it


class Covariance(Enum):
    diagonal = "diagonal"  # the targets of a component are independent; they depend through its mean and weight
    low_rank = "low_rank"  # diagonal + U U^T with `rank` columns
    full = "full"


class Loss(Enum):
    nll = "nll"
    crps = "crps"


class Calibration(Enum):
    linear = "linear"
    weighted = "weighted"  # linear, each row weighted by the precision of its predicted density
    none = "none"
    pit = "pit"  # a smooth map of the distribution function
    conformal = "conformal"  # a map of the distribution function whose intervals cover what they promise

    @property
    def maps_cdf(self) -> bool:
        """Tell whether the whole distribution is mapped and not its mean alone."""
        return self in (Calibration.pit, Calibration.conformal)


class Fold(Enum):
    train = "train"
    train_validation = "train_validation"


class InitialWeights(Enum):
    own = "own"  # drawn for exactly the parts this network has
    shared = "shared"  # drawn for the network with a router; one without drops the router's and keeps all others


class AnchorKind(Enum):
    gbdt = "gbdt"  # scikit-learn's exact boosted trees
    trees = "trees"  # the same trees, compiled
    xgboost = "xgboost"
    lightgbm = "lightgbm"
    quadratic = "quadratic"  # ridge regression on products of features
    kernel = "kernel"  # Gaussian-process mean with a length-scale per feature
    sklearn = "sklearn"  # any regressor, by its import path
    stack = "stack"  # the best combination of its members; cross-fitted only
    network = "network"  # a member of a stack: Anchor-MoE without an anchor
    none = "none"


class Backend(Enum):
    auto = "auto"  # compiled where it can be, else torch
    compiled = "compiled"  # the CPU kernels; stock parts only
    torch = "torch"  # autograd, on any device and with any parts


SMALL_TABLE = 2000  # rows; larger tables may have other folds and wider networks
WIDTHS = (64, 256)  # of networks whose width the number of rows decides: of small tables, and of larger ones


def require(condition: bool, key: str, required: str, received: object) -> None:
    """Raise the one-line error for a setting whose value is not what is required."""
    if not condition:
        raise UserError(f"{key} must be {required}, received {received}")


def _require_positive(owner: str, instance: Any, *names: str) -> None:
    for name in names:
        value = getattr(instance, name)
        require(value > 0 and math.isfinite(value), f"{owner}.{name}", "positive and finite", value)


@dataclass
class ModelSettings:
    """The network: sizes, router, windows, scales."""

    name: str = "published"  # name of the preset, stored in the rows
    latent_dim: int = 2  # D
    layer_norm: bool = False  # the paper has it, the runs did not: at D=2 it leaves only the two points (1,-1), (-1,1)
    num_experts: int = 8  # K
    top_k: int = 2  # k
    hidden_dim: int | None = 128  # h; null: WIDTHS, by the number of rows
    num_components: int = 3  # C
    router: RouterKind = RouterKind.dot
    router_dim: int = 64  # d_r
    combination: Combination = Combination.product
    window_learnable: bool = True
    log_scale_min: float = -2.5
    log_scale_max: float = 1.0
    smoothing: float = 0.05  # epsilon, spread over the chosen experts
    smooth_at: SmoothAt = SmoothAt.train
    sigma_min: float = 0.05
    sigma_max: float = 1.0
    dropout: float = 0.0  # share of the experts' hidden units left out at a training step
    anchor_mode: AnchorMode = AnchorMode.delta
    covariance: Covariance = Covariance.full  # of a component, where there are several targets
    rank: int = 1  # of covariance=low_rank

    def __post_init__(self) -> None:
        sizes = ("latent_dim", "num_experts", "top_k", "num_components", "router_dim", "rank")
        _require_positive("model", self, *sizes, *(["hidden_dim"] if self.hidden_dim is not None else []))
        require(self.top_k <= self.num_experts, "model.top_k", f"at most num_experts={self.num_experts}", self.top_k)
        require(0 <= self.dropout < 1, "model.dropout", "in [0, 1)", self.dropout)
        require(0 <= self.smoothing < 1, "model.smoothing", "in [0, 1)", self.smoothing)
        _require_positive("model", self, "sigma_min", "sigma_max")
        require(
            self.sigma_min <= self.sigma_max, "model.sigma_min", f"at most sigma_max={self.sigma_max}", self.sigma_min
        )
        require(
            self.log_scale_min <= self.log_scale_max,
            "model.log_scale_min",
            f"at most log_scale_max={self.log_scale_max}",
            self.log_scale_min,
        )

    def for_rows(self, num_rows: int) -> ModelSettings:
        """Return settings whose width is a number, for a table of `num_rows` rows."""
        if self.hidden_dim is not None:
            return self
        return dataclasses.replace(self, hidden_dim=WIDTHS[num_rows > SMALL_TABLE])

    @property
    def width(self) -> int:
        """Return the number of hidden units; where it is None, `for_rows` must have chosen it."""
        assert self.hidden_dim is not None
        return self.hidden_dim


@dataclass
class TrainingSettings:
    """The training: two phases of AdamW."""

    loss: Loss = Loss.nll
    epochs: int = 400
    min_steps: int = 0  # least number of steps; it raises the number of epochs if needed
    batch_size: int | None = None  # rows per step, in an order drawn anew each epoch; null: all rows, as published
    patience: int | None = None  # phase 1 stops after this number of epochs without a new best; null: never
    learning_rate: float = 1e-3
    weight_decay: float = 3e-4
    clip_norm: float = 2.0
    temperature_start: float = 3.0  # tau
    temperature_decay: float = 0.995
    temperature_end: float = 1.0
    entropy_epochs: int = 150
    entropy_weight: float = 1e-3  # up to entropy_epochs: raises the router's entropy
    entropy_weight_after: float = -2e-4  # from then on: lowers it
    log_scale_weight: float = 1e-4
    balance_weight: float = 1e-3
    delta_weight: float = 3e-3
    backend: Backend = Backend.auto
    device: str = "cpu"  # torch's name of it; the compiled backend is the CPU's

    def __post_init__(self) -> None:
        _require_positive("train", self, "epochs", "learning_rate", "clip_norm", "temperature_start", "temperature_end")
        require(0 < self.temperature_decay <= 1, "train.temperature_decay", "in (0, 1]", self.temperature_decay)
        weights = (
            *("weight_decay", "entropy_weight", "entropy_weight_after"),
            *("log_scale_weight", "balance_weight", "delta_weight"),
        )
        for name in weights:
            require(math.isfinite(getattr(self, name)), f"train.{name}", "finite", getattr(self, name))
        require(self.weight_decay >= 0, "train.weight_decay", "at least 0", self.weight_decay)
        for name in ("batch_size", "patience"):
            value = getattr(self, name)
            require(value is None or value > 0, f"train.{name}", "null or positive", value)


@dataclass
class AnchorSettings:
    """The point regressor whose mean the experts correct."""

    name: str = "xgboost"
    kind: AnchorKind = AnchorKind.xgboost
    target: str | None = None  # import path of a scikit-learn regressor, for kind sklearn
    regressor: Any = None  # the regressor itself in place of its import path; only from Python
    stages: int = 2000  # largest number of stages of a boosted kind
    params: dict[str, Any] = field(default_factory=dict)
    members: dict[str, Any] = field(default_factory=dict)  # members of a stack: name -> settings; null takes one out

    def __post_init__(self) -> None:
        if self.kind is AnchorKind.none:  # an ablation that removes the anchor removes its settings too
            self.params, self.target, self.regressor, self.stages, self.members = {}, None, None, 2000, {}
        _require_positive("anchor", self, "stages")
        require(
            self.kind is not AnchorKind.sklearn or self.target is not None or self.regressor is not None,
            "anchor.target",
            "the import path of a scikit-learn regressor, e.g. sklearn.linear_model.BayesianRidge",
            self.target,
        )
        if self.name == "sklearn":
            self.name = str(self.target)
        if self.kind is AnchorKind.stack:
            self.members = {name: member for name, member in self.members.items() if member is not None}
            self.stack_members()

    def stack_members(self, num_rows: int | None = None) -> list[AnchorSettings]:
        """Return the settings of a stack's members; with `num_rows`, of those that join the stack at so many rows.

        A member may have `least_rows`: with fewer rows to fit it is left out.
        """
        required = "at least one named anchor with a kind and what that kind needs"
        members = []
        for name, member in self.members.items():
            try:
                own = {"name": name, **member, "kind": AnchorKind[member["kind"]]}
                least_rows = own.pop("least_rows", 0)
                members += [AnchorSettings(**own)] * (num_rows is None or num_rows >= least_rows)
            except (KeyError, TypeError) as error:
                raise UserError(f"anchor.members.{name} must be {required}, received {member}: {error}") from None
        at_size = "" if num_rows is None else f" for {num_rows} rows"
        require(len(members) > 0, "anchor.members", f"{required}{at_size}", self.members)
        return members


@dataclass
class CrossfitSettings:
    """The folds of the training rows; each has a network of its own."""

    folds: int = 10
    folds_when_large: int = 5  # above large_rows, where a model costs more and a larger fold matters less
    large_rows: int = SMALL_TABLE
    repetitions: int = 1  # times that up to large_rows rows are cut into folds, each time anew
    repetitions_when_large: int = 1  # the same above large_rows

    def __post_init__(self) -> None:
        _require_positive("crossfit", self, "repetitions", "repetitions_when_large")
        for name in ("folds", "folds_when_large"):
            require(getattr(self, name) > 1, f"crossfit.{name}", "at least 2", getattr(self, name))

    def num_folds(self, num_rows: int) -> int:
        """Return the number of folds for a table of `num_rows` rows."""
        folds = self.folds_when_large if num_rows > self.large_rows else self.folds
        return max(2, min(folds, num_rows // 4))  # at least four rows to a fold, on small tables too

    def num_repetitions(self, num_rows: int) -> int:
        """Return how many times a table of `num_rows` rows is cut into folds."""
        return self.repetitions_when_large if num_rows > self.large_rows else self.repetitions


Settings = TypeVar("Settings", ModelSettings, TrainingSettings, CrossfitSettings, AnchorSettings)


def changed(settings: Settings, values: Mapping[str, Any], what: str) -> Settings:
    """Return settings with some values replaced; choices may be written as their names."""
    kinds = typing.get_type_hints(type(settings))
    converted = {}
    for name, value in values.items():
        if name not in kinds:
            raise ValueError(
                f"{what} must have settings among {', '.join(kinds)}, received {name!r}{hint(name, list(kinds))}"
            )
        kind = kinds[name]
        is_choice = isinstance(kind, type) and issubclass(kind, Enum)
        converted[name] = as_enum(kind, value, f"{what}.{name}") if is_choice else value
    return dataclasses.replace(settings, **converted)


Choice = TypeVar("Choice", bound=Enum)


def as_enum(kind: type[Choice], value: Any, what: str) -> Choice:
    """Return a choice by its name; a choice is returned as it is."""
    if isinstance(value, kind):
        return value
    names = [item.name for item in kind]
    if value not in names:
        raise ValueError(f"{what} must be one of {', '.join(names)}, received {value!r}")
    return kind[value]


def hint(name: object, names: Sequence[str]) -> str:
    """Return the end of an error message that names the nearest of the right names, if one is near."""
    near = difflib.get_close_matches(str(name), names, n=1)
    return f"; did you mean {near[0]}?" if near else ""
