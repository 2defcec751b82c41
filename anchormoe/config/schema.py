"""The schema of every run: dataclasses that Hydra fills and that check themselves when they are made."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from anchormoe.data.catalogue import DatasetInfo
from anchormoe.data.splits import NUM_SPLITS
from anchormoe.model.settings import (
    AnchorSettings,
    Calibration,
    CrossfitSettings,
    Fold,
    InitialWeights,
    ModelSettings,
    TrainingSettings,
    require,
)

ABLATIONS = ("full", "no_anchor", "no_router", "no_cal")
# The experiments behind the tables. Their rows have the standard configuration; no other rows enter the tables.
TABLE_EXPERIMENTS = ("split_by_split", "tables", "corrected", "comparison", "crossfit", "rivals")
STOCK_EXPERIMENTS = (*TABLE_EXPERIMENTS, "ingredients")
CALIBRATION_EXPERIMENT = "calibration"  # all calibrations of the fast preset on the same fits
CONTROLS_EXPERIMENT = "controls"  # the cross-fitted recipe beside simpler densities on its stack of anchors
RIVALS_EXPERIMENT = "rivals"  # modern methods on the splits of the comparison
THEORY_EXPERIMENT = "theory"  # simulations, no splits
RANKING_EXPERIMENT = "ranking"  # regressors of the user's, to be ranked with the comparison
SEVERAL_TARGETS_EXPERIMENT = "several_targets"  # targets predicted together, and one by one
EXTENDED_EXPERIMENT = "extended"  # tables on which no setting was chosen, in a comparison of their own


def write_splits(numbers: Sequence[int]) -> str:
    """Write [1, 2, 3, 7] as "1-3,7", the form that `splits=` takes."""
    parts: list[list[int]] = []
    for split in sorted(numbers):
        if parts and split == parts[-1][-1] + 1:
            parts[-1].append(split)
        else:
            parts.append([split])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


class SeedRule(Enum):
    fixed = "fixed"  # the run's seed for every split
    per_split = "per_split"  # the run's seed + split number


class DataSource(Enum):
    embedded = "embedded"
    download = "download"


@dataclass
class RunRules:
    """The rules of a protocol for one ablation."""

    inner_seed: SeedRule = SeedRule.fixed  # seed of the inner splits and the anchor
    calibration_fraction: float = 0.125  # share of the training rows; 0 means no CAL split
    validation_fraction: float = 0.2  # share of the rows that CAL leaves
    feature_fold: Fold = Fold.train_validation  # fold whose column statistics phase 2 uses
    anchor_column: bool = True  # the anchor is a column of the network input
    initial_weights: InitialWeights = InitialWeights.own
    variants: dict[str, str] = field(default_factory=dict)  # dataset -> target and feature set
    methods: dict[str, str] = field(default_factory=dict)  # dataset -> method run instead of Anchor-MoE
    continued_stream: list[str] = field(default_factory=list)  # datasets whose splits follow the subsample's stream

    def __post_init__(self) -> None:
        require(0 <= self.calibration_fraction < 1, "calibration_fraction", "in [0, 1)", self.calibration_fraction)
        require(0 < self.validation_fraction < 1, "validation_fraction", "in (0, 1)", self.validation_fraction)


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
        require(not unused, "data.mirror", "used with data.source=download", f"data.source={self.source.value}")


@dataclass
class MethodConfig:
    name: str = "anchormoe"
    target: str | None = None  # import path of a regressor, for the method sklearn
    params: dict[str, Any] = field(default_factory=dict)  # parameters of a method other than Anchor-MoE
    calibration: Calibration = Calibration.none  # pit or conformal: any method, refitted without each fold

    def __post_init__(self) -> None:
        known = self.calibration is Calibration.none or self.calibration.maps_cdf
        require(known, "method.calibration", "none, pit or conformal", self.calibration.value)
        require(
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
    anchor: AnchorSettings = field(default_factory=AnchorSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    train: TrainingSettings = field(default_factory=TrainingSettings)
    crossfit: CrossfitSettings = field(default_factory=CrossfitSettings)
    data: DataConfig = field(default_factory=DataConfig)
    ablation: str = "full"
    calibration: Calibration = Calibration.linear
    seed: int = 1

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**31, "seed", "a whole number from 0 to 2147483647", self.seed)

    @property
    def rules(self) -> RunRules:
        """Return the protocol's rules for this ablation."""
        return getattr(self.protocol, self.ablation)


class EngineKind(Enum):
    local = "local"
    dask = "dask"
    ray = "ray"
    slurm = "slurm"


@dataclass
class EngineConfig:
    """The place where tasks are computed. No number depends on it, so it is not part of a row's identity."""

    kind: EngineKind = EngineKind.local
    address: str | None = None  # of a running Dask scheduler or Ray cluster; None starts one on this machine
    jobs: int = 1  # of Slurm, all that follows
    cores: int = 1  # worker processes of one thread in each job
    memory: str = "4GB"  # of a job
    walltime: str = "01:00:00"  # of a job; a run that needs longer submits the next one
    partition: str | None = None
    account: str | None = None
    interface: str | None = None  # the network interface on which workers reach the driver
    directives: list[str] = field(default_factory=list)  # further options of sbatch, such as --exclusive
    prologue: list[str] = field(default_factory=list)  # shell commands before the workers, such as module load python

    def __post_init__(self) -> None:
        with_address = self.address is None or self.kind in (EngineKind.dask, EngineKind.ray)
        require(with_address, "engine.address", "left out unless engine=dask or engine=ray", self.address)
        for name in ("jobs", "cores"):
            require(getattr(self, name) > 0, f"engine.{name}", "a positive number", getattr(self, name))


@dataclass
class LimitConfig:
    """The most that one fit may take. A fit that takes more is ended, and its row says why; no number depends on it."""

    seconds: float | None = None
    memory_gb: float | None = None  # resident memory of the process that computes

    def __post_init__(self) -> None:
        for name in ("seconds", "memory_gb"):
            value = getattr(self, name)
            require(value is None or value > 0, f"limit.{name}", "null or a positive number", value)

    @property
    def is_set(self) -> bool:
        return self.seconds is not None or self.memory_gb is not None


@dataclass
class JobConfig(Config):
    """A configuration with settings that change no number: the splits, the folder of the rows, the engine."""

    experiment_name: str = "runs"  # folder under results_dir
    results_dir: str = "results"
    splits: str = f"1-{NUM_SPLITS}"
    predictions: bool | None = (
        None  # whether predictions are kept; None: of a dataset that does not ship with the package
    )
    workers: str = "auto"  # processes of one thread each on this machine; auto: one per core
    engine: EngineConfig = field(default_factory=EngineConfig)
    limit: LimitConfig = field(default_factory=LimitConfig)
    debug: bool = False  # show the full traceback of a failure
    sweep: dict[str, str] = field(default_factory=dict)  # what an experiment runs, written as on the command line

    def __post_init__(self) -> None:
        super().__post_init__()
        plain_name = (
            bool(self.experiment_name) and not set(self.experiment_name) & set("/\\") and self.experiment_name != ".."
        )
        require(plain_name, "experiment_name", "the name of a folder under results_dir", repr(self.experiment_name))
        require(bool(self.results_dir), "results_dir", "a folder", "nothing")
        local = self.engine.kind is EngineKind.local
        require(local or not self.limit.is_set, "limit", "left out unless engine=local, which can end a fit", "one")
        self.split_numbers()
        self.num_workers()

    def split_numbers(self) -> list[int]:
        """Return the numbers that `splits` asks for, written as `7`, `1-5` or `1,3,8-10` and counted from 1."""
        numbers: set[int] = set()
        for part in self.splits.split(","):
            first, _, last = part.strip().partition("-")
            bounds_are_numbers = first.isdigit() and (last.isdigit() or "-" not in part)
            low, high = (int(first), int(last or first)) if bounds_are_numbers else (0, 0)
            required = f"split numbers from 1 to {NUM_SPLITS} such as 7, 1-5 or 1,3,8-10"
            require(1 <= low <= high <= NUM_SPLITS, "splits", required, self.splits)
            numbers.update(range(low, high + 1))
        return sorted(numbers)

    def num_workers(self) -> int:
        if self.workers == "auto":
            affinity = getattr(os, "sched_getaffinity", None)  # missing on some systems
            return len(affinity(0)) if affinity else os.cpu_count() or 1
        require(self.workers.isdigit() and int(self.workers) > 0, "workers", "auto or a positive number", self.workers)
        return int(self.workers)

    def config(self) -> Config:
        return Config(**{item.name: getattr(self, item.name) for item in fields(Config)})
