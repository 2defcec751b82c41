"""The schema of every run: dataclasses that Hydra fills and that check themselves when they are made.

Names are full words; the paper's letters appear only in the comments. Below the CLI nobody sees a DictConfig.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from anchormoe.data.catalogue import DatasetInfo
from anchormoe.errors import UserError

NUM_SPLITS = 20
ABLATIONS = ("full", "no_anchor", "no_router", "no_cal")
# The runs behind the tables. Their rows are of the stock configuration, nothing else enters the tables.
TABLE_EXPERIMENTS = ("split_by_split", "tables", "corrected", "comparison", "crossfit")
STOCK_EXPERIMENTS = (*TABLE_EXPERIMENTS, "ingredients")
RANKING_EXPERIMENT = "ranking"  # regressors of the user's, beside the comparison


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


class Loss(Enum):
    nll = "nll"
    crps = "crps"


class Calibration(Enum):
    linear = "linear"
    weighted = "weighted"  # linear, a row counting by how sure its predicted density is
    none = "none"


class SeedRule(Enum):
    fixed = "fixed"  # the run's seed for every split
    per_split = "per_split"  # the run's seed + split number


class Fold(Enum):
    train = "train"
    train_validation = "train_validation"


class InitialWeights(Enum):
    own = "own"  # drawn for exactly the parts this ablation has
    shared = "shared"  # drawn for the full model; an ablation drops its part, the rest is equal


class AnchorKind(Enum):
    gbdt = "gbdt"
    trees = "trees"
    xgboost = "xgboost"
    lightgbm = "lightgbm"
    sklearn = "sklearn"
    stack = "stack"  # the best combination of its members; cross-fitted only
    network = "network"  # a member of a stack: Anchor-MoE without an anchor
    none = "none"


class DataSource(Enum):
    embedded = "embedded"
    download = "download"


def _require(condition: bool, key: str, required: str, received: object) -> None:
    if not condition:
        raise UserError(f"{key} must be {required}, received {received}")


def _require_positive(owner: str, instance: Any, *names: str) -> None:
    for name in names:
        value = getattr(instance, name)
        _require(value > 0, f"{owner}.{name}", "positive", value)


@dataclass
class ModelConfig:
    """Defaults are the published runs'; letters are the paper's."""

    name: str = "published"  # of the preset, for the rows
    latent_dim: int = 2  # D
    layer_norm: bool = False  # the paper has it, the runs did not: at D=2 it leaves only the two points (1,-1), (-1,1)
    num_experts: int = 8  # K
    top_k: int = 2  # k
    hidden_dim: int = 128  # h
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

    def __post_init__(self) -> None:
        _require_positive(
            "model", self, "latent_dim", "num_experts", "top_k", "hidden_dim", "num_components", "router_dim"
        )
        _require(self.top_k <= self.num_experts, "model.top_k", f"at most num_experts={self.num_experts}", self.top_k)
        _require(0 <= self.dropout < 1, "model.dropout", "in [0, 1)", self.dropout)
        _require(0 <= self.smoothing < 1, "model.smoothing", "in [0, 1)", self.smoothing)
        _require(self.sigma_min > 0, "model.sigma_min", "positive", self.sigma_min)
        _require(
            self.sigma_min <= self.sigma_max, "model.sigma_min", f"at most sigma_max={self.sigma_max}", self.sigma_min
        )
        _require(
            self.log_scale_min <= self.log_scale_max,
            "model.log_scale_min",
            f"at most log_scale_max={self.log_scale_max}",
            self.log_scale_min,
        )


@dataclass
class TrainConfig:
    """Two phases of AdamW; defaults are the published runs'."""

    loss: Loss = Loss.nll
    epochs: int = 400
    min_steps: int = 0  # raises the epochs where they would be fewer steps than this
    batch_size: int | None = None  # rows per step, in an order drawn anew each epoch; null: all rows, as published
    patience: int | None = None  # stop phase 1 after so many epochs without a new best; off as published
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

    def __post_init__(self) -> None:
        _require_positive("train", self, "epochs", "learning_rate", "clip_norm", "temperature_start", "temperature_end")
        _require(0 < self.temperature_decay <= 1, "train.temperature_decay", "in (0, 1]", self.temperature_decay)
        _require(self.weight_decay >= 0, "train.weight_decay", "at least 0", self.weight_decay)
        _require(
            self.batch_size is None or self.batch_size > 0, "train.batch_size", "null or positive", self.batch_size
        )
        _require(self.patience is None or self.patience > 0, "train.patience", "null or positive", self.patience)


@dataclass
class AnchorConfig:
    name: str = "xgboost"
    kind: AnchorKind = AnchorKind.xgboost
    target: str | None = None  # import path of a scikit-learn regressor, for kind sklearn
    stages: int = 2000  # boosted kinds: how many stages the best one is chosen from
    params: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind is AnchorKind.none:  # nothing is left of the anchor that an ablation took away
            self.params, self.target, self.stages = {}, None, 2000
        _require_positive("anchor", self, "stages")
        _require(
            self.kind is not AnchorKind.sklearn or self.target is not None,
            "anchor.target",
            "the import path of a scikit-learn regressor, e.g. sklearn.linear_model.BayesianRidge",
            self.target,
        )
        if self.name == "sklearn":
            self.name = str(self.target)
        if self.kind is AnchorKind.stack:
            self.members()

    def members(self) -> list[AnchorConfig]:
        """Of a stack."""
        members: Any = self.params.get("members")
        required = "a list of anchors, each with a kind and what that kind needs"
        _require(isinstance(members, list) and len(members) > 0, "anchor.params.members", required, members)
        try:
            return [AnchorConfig(**{**member, "kind": AnchorKind[member["kind"]]}) for member in members]
        except (KeyError, TypeError) as error:
            raise UserError(f"anchor.params.members must be {required}, received {members}: {error}") from None


@dataclass
class CrossfitConfig:
    """Folds of the training rows, for the recipe in which each has a network of its own; 0: the paper's recipe."""

    folds: int = 0
    folds_when_large: int = 0  # above large_rows: a model per fold costs more there, and less data taken away less
    large_rows: int = 2000

    def __post_init__(self) -> None:
        for name in ("folds", "folds_when_large"):
            value = getattr(self, name)
            _require(value == 0 or value > 1, f"crossfit.{name}", "0 or at least 2", value)

    def num_folds(self, num_rows: int) -> int:
        return self.folds_when_large if self.folds_when_large and num_rows > self.large_rows else self.folds


@dataclass
class RunRules:
    """What a protocol decides for one ablation."""

    inner_seed: SeedRule = SeedRule.fixed  # of the inner splits and the anchor
    calibration_fraction: float = 0.125  # of the 90%; 0: no CAL split
    validation_fraction: float = 0.2  # of what CAL leaves
    feature_fold: Fold = Fold.train_validation  # whose column statistics phase 2 uses
    anchor_column: bool = True  # the anchor is a column of the network input
    initial_weights: InitialWeights = InitialWeights.own
    variants: dict[str, str] = field(default_factory=dict)  # dataset -> target and feature set
    methods: dict[str, str] = field(default_factory=dict)  # dataset -> method run instead of Anchor-MoE
    continued_stream: list[str] = field(default_factory=list)  # datasets whose splits follow the subsample's stream

    def __post_init__(self) -> None:
        _require(0 <= self.calibration_fraction < 1, "calibration_fraction", "in [0, 1)", self.calibration_fraction)
        _require(0 < self.validation_fraction < 1, "validation_fraction", "in (0, 1)", self.validation_fraction)


@dataclass
class ProtocolConfig:
    name: str = "published"
    full: RunRules = field(default_factory=RunRules)
    no_anchor: RunRules = field(default_factory=RunRules)
    no_router: RunRules = field(default_factory=RunRules)
    no_cal: RunRules = field(default_factory=RunRules)


@dataclass
class DataConfig:
    source: DataSource = DataSource.embedded
    mirror: str | None = None  # folder or URL tried before the public homes

    def __post_init__(self) -> None:
        unused = self.mirror is not None and self.source is DataSource.embedded
        _require(not unused, "data.mirror", "used with data.source=download", f"data.source={self.source.value}")


@dataclass
class MethodConfig:
    name: str = "anchormoe"
    target: str | None = None  # import path of a regressor, for the method sklearn
    params: dict[str, Any] = field(default_factory=dict)  # of a method other than Anchor-MoE

    def __post_init__(self) -> None:
        _require(
            (self.name == "sklearn") == (self.target is not None),
            "method.target",
            "the import path of a regressor, together with method=sklearn",
            f"{self.target} with method={self.name}",
        )


@dataclass
class Config:
    dataset: DatasetInfo = field(default_factory=DatasetInfo)
    method: MethodConfig = field(default_factory=MethodConfig)
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    anchor: AnchorConfig = field(default_factory=AnchorConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    crossfit: CrossfitConfig = field(default_factory=CrossfitConfig)
    data: DataConfig = field(default_factory=DataConfig)
    ablation: str = "full"
    calibration: Calibration = Calibration.linear
    seed: int = 1

    def __post_init__(self) -> None:
        _require(0 <= self.seed < 2**31, "seed", "a whole number from 0 to 2147483647", self.seed)

    @property
    def rules(self) -> RunRules:
        """The protocol's rules for this ablation."""
        return getattr(self.protocol, self.ablation)

    @property
    def effective_variant(self) -> str | None:
        """The variant of the dataset that this run or its protocol names; None: the dataset's first."""
        return self.dataset.variant or self.rules.variants.get(self.dataset.name)

    @property
    def effective_method(self) -> str:
        """The protocol may put another method in Anchor-MoE's place (the published Kin8nm row is such a case)."""
        if self.method.name == "anchormoe" and not self.crossfit.folds:
            return self.rules.methods.get(self.dataset.name, self.method.name)
        return self.method.name

    @property
    def method_label(self) -> str:
        """What a row calls its method."""
        if self.effective_method == "anchormoe" and self.crossfit.folds:
            return "anchormoe_crossfit"
        return self.method.target or self.effective_method


@dataclass
class JobConfig(Config):
    """A configuration with what does not change a number: which splits, where to, with how many processes."""

    experiment_name: str = "runs"  # folder under results_dir
    results_dir: str = "results"
    splits: str = f"1-{NUM_SPLITS}"
    workers: str = "auto"  # processes of one thread each; auto: one per core

    def __post_init__(self) -> None:
        super().__post_init__()
        plain_name = (
            bool(self.experiment_name) and not set(self.experiment_name) & set("/\\") and self.experiment_name != ".."
        )
        _require(plain_name, "experiment_name", "the name of a folder under results_dir", repr(self.experiment_name))
        _require(bool(self.results_dir), "results_dir", "a folder", "nothing")
        self.split_numbers()
        self.num_workers()

    def split_numbers(self) -> list[int]:
        """`7`, `1-5` or `1,3,8-10`, counted from 1."""
        numbers: set[int] = set()
        for part in self.splits.split(","):
            first, _, last = part.strip().partition("-")
            bounds_are_numbers = first.isdigit() and (last.isdigit() or "-" not in part)
            low, high = (int(first), int(last or first)) if bounds_are_numbers else (0, 0)
            required = f"split numbers from 1 to {NUM_SPLITS} such as 7, 1-5 or 1,3,8-10"
            _require(1 <= low <= high <= NUM_SPLITS, "splits", required, self.splits)
            numbers.update(range(low, high + 1))
        return sorted(numbers)

    def num_workers(self) -> int:
        if self.workers == "auto":
            affinity = getattr(os, "sched_getaffinity", None)  # not on every system
            return len(affinity(0)) if affinity else os.cpu_count() or 1
        _require(self.workers.isdigit() and int(self.workers) > 0, "workers", "auto or a positive number", self.workers)
        return int(self.workers)

    def config(self) -> Config:
        return Config(**{item.name: getattr(self, item.name) for item in fields(Config)})
