"""Stored rows are found again: the identity of a row must not move when code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from anchormoe.commands.run import parse
from anchormoe.config.schema import STOCK_EXPERIMENTS
from anchormoe.rows import identity
from anchormoe.running import store
from anchormoe.running.identity import row_identity

RESULTS = Path(__file__).parent.parent / "results"

# Pinned by hand. A change here means that stored rows are lost, or must be renamed together with it.
GOLDEN = {
    "dataset=boston": "8fcef10b5b941a35",
    "dataset=boston ablation=no_router": "124903890ab18dc9",
    "dataset=wine anchor=gbdt": "f9942c3cdb1884fd",
    "dataset=yacht ablation=no_anchor protocol=clean": "1c80d0999242a9be",
    "dataset=yacht ablation=no_cal anchor=trees": "a6202136c130b8d4",
    "dataset=energy ablation=no_cal anchor=trees": "ed64b9aa48f7ca10",
    "dataset=naval ablation=no_router anchor=trees protocol=clean": "d830ef940fcf2e10",
    "dataset=protein ablation=no_cal anchor=trees": "36076d354d7c5c01",
    "dataset=kin8nm": "a36efcd7dd49c3f8",
    "dataset=kin8nm protocol=clean anchor=trees": "50e4928f120fae24",
    "dataset=boston method=ngboost protocol=clean anchor=none": "b1dd167a0d19dc09",
    "dataset=protein method=ngboost_authors protocol=clean anchor=none": "998eae68461f851f",
    "dataset=boston method=sklearn.linear_model.BayesianRidge protocol=clean": "746f52f01c7c36bc",
    "dataset=boston anchor=sklearn.linear_model.BayesianRidge": "4229aea9d847ca34",
    "dataset=boston model.num_experts=4 train.epochs=3 seed=3": "9259e3a1b2256eba",
    "dataset=boston model=paper": "2b3dd4169bb48d7d",
    "dataset=boston method=anchormoe_crossfit protocol=clean": "e06edb824f95498d",
    "dataset=yacht method=anchormoe_crossfit protocol=clean seed=2": "ba02b01bed7d986f",
    "dataset=yacht method=anchormoe_crossfit ingredient=crossfit_trees protocol=clean": "f2bf11d12738651d",
    "dataset=yacht method=anchormoe_crossfit ingredient=out_of_fold protocol=clean": "69fc4f1bd63bad10",
    "dataset=yacht method=anchormoe_crossfit ingredient=crossfit_libraries protocol=clean": "1dd94d7f77d4615e",
    "dataset=yacht method=anchormoe_crossfit ingredient=crossfit_without_network protocol=clean": "f5b13b15a3abfd74",
}


@pytest.mark.parametrize("line", GOLDEN)
def test_hash_of_a_configuration_is_the_pinned_one(line: str) -> None:
    (job,) = parse(line.split())
    assert row_identity(job.config(), 1)["config_hash"] == GOLDEN[line]


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("method=anchormoe_best", "anchormoe_best"),
        ("method=anchormoe_best calibration=none", "anchormoe_best+none"),
        ("method=anchormoe_best calibration=conformal", "anchormoe_best+conformal"),
        ("method=anchormoe_fast", "anchormoe_fast"),
        ("method=anchormoe_fast calibration=none", "anchormoe_fast"),
        ("method=anchormoe_fast calibration=pit", "anchormoe_fast+pit"),
        ("method=ngboost method.calibration=pit", "ngboost+pit"),
    ],
)
def test_a_label_states_the_calibration_of_the_whole_distribution(line: str, label: str) -> None:
    (job,) = parse(["dataset=yacht", "protocol=clean", *line.split()])
    assert row_identity(job.config(), 1)["method"] == label


@pytest.mark.parametrize("experiment", STOCK_EXPERIMENTS)
def test_every_stored_row_is_a_row_of_its_experiment(experiment: str) -> None:
    stored = {identity(row): row["seed"] for path in (RESULTS / experiment).glob("*.jsonl") for row in store.read(path)}
    assert stored
    expected = set()
    for seed in set(stored.values()):
        for job in parse([f"experiment={experiment}", f"seed={seed}"]):
            labels = row_identity(job.config(), 0)
            expected |= {identity({**labels, "split": split}) for split in job.split_numbers()}
    assert set(stored) <= expected
    # split_by_split has the full model alone of wine and concrete, and the rivals' sweep takes many hours.
    if experiment not in ("split_by_split", "rivals"):
        of_first_seed = {key for key, seed in stored.items() if seed == 1}
        assert {key for key in expected if key[5] == 1} == of_first_seed, "a sweep would start anew"
