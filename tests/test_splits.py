"""Outer and inner splits against the facts of the published runs."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from anchormoe.config.compose import jobs
from anchormoe.config.schema import Config
from anchormoe.data.catalogue import info
from anchormoe.data.splits import OuterSplit, inner_split, subsample
from anchormoe.running.evaluate import load_dataset
from anchormoe.running.tasks import make_task

# name: rows, (train, test), (TV, CAL), (TR, VA), (TR, VA) of no_cal
SIZES = {
    "boston": (506, (455, 51), (398, 57), (318, 80), (364, 91)),
    "concrete": (1030, (927, 103), (811, 116), (648, 163), (741, 186)),
    "energy": (768, (691, 77), (604, 87), (483, 121), (552, 139)),
    "kin8nm": (8192, (7373, 819), (6451, 922), (5160, 1291), (5898, 1475)),
    "naval": (11934, (10741, 1193), (9398, 1343), (7518, 1880), (8592, 2149)),
    "power": (9568, (8611, 957), (7534, 1077), (6027, 1507), (6888, 1723)),
    "protein": (10000, (9000, 1000), (7875, 1125), (6300, 1575), (7200, 1800)),
    "wine": (1599, (1439, 160), (1259, 180), (1007, 252), (1151, 288)),
    "yacht": (308, (277, 31), (242, 35), (193, 49), (221, 56)),
}


@pytest.fixture(scope="module")
def configs() -> dict[tuple[str, str], Config]:
    """Return the published protocol's configuration of every dataset and ablation."""
    swept = jobs(["ablation=full,no_anchor,no_router,no_cal", "anchor=gbdt"])
    return {
        (name, job.ablation): dataclasses.replace(job.config(), dataset=info(name)) for job in swept for name in SIZES
    }


def all_rows(
    outer: OuterSplit, num_rows: int, seed: int, *, calibration_fraction: float, validation_fraction: float
) -> SimpleNamespace:
    """Return the row numbers of the table, by fold."""
    train, test = outer.rows(num_rows)
    fractions = {"calibration_fraction": calibration_fraction, "validation_fraction": validation_fraction}
    inner = inner_split(len(train), seed, **fractions)
    folds = {name: train[getattr(inner, name)] for name in ("tr", "va", "tv", "cal")}
    return SimpleNamespace(train=train, test=test, **folds)


def make_split(config: Config, num_rows: int, number: int) -> SimpleNamespace:
    """Return the rows that a configuration's task uses for each purpose."""
    task = make_task(config, number)
    fractions = {name: task.arguments[name] for name in ("calibration_fraction", "validation_fraction")}
    return all_rows(task.split, num_rows, task.arguments["inner_seed"], **fractions)


def inner_seed(config: Config, number: int) -> int:
    return make_task(config, number).arguments["inner_seed"]


def outer_split(num_rows: int, number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return OuterSplit(number, seed).rows(num_rows)


def published_split(
    num_rows: int, number: int = 1, seed: int = 1, calibration_fraction: float = 0.125
) -> SimpleNamespace:
    fractions = {"calibration_fraction": calibration_fraction, "validation_fraction": 0.2}
    return all_rows(OuterSplit(number, seed), num_rows, seed, **fractions)


def assert_partition(whole: np.ndarray, *parts: np.ndarray) -> None:
    """Assert that every row is in exactly one part."""
    assert np.array_equal(np.sort(np.concatenate(parts)), np.sort(whole))


# --- sizes


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_the_published_ones(name: str, configs: dict[tuple[str, str], Config]) -> None:
    num_rows, outer, tv_cal, tr_va, tr_va_without_cal = SIZES[name]
    for ablation in ("full", "no_anchor", "no_router"):
        if (name, ablation) == ("kin8nm", "full"):  # a kernel-ridge mixture, which has no inner splits
            continue
        split = make_split(configs[name, ablation], num_rows, 1)
        assert (len(split.train), len(split.test)) == outer
        assert (len(split.tv), len(split.cal)) == tv_cal
        assert (len(split.tr), len(split.va)) == tr_va
    split = make_split(configs[name, "no_cal"], num_rows, 1)
    assert (len(split.train), len(split.test)) == outer
    assert len(split.cal) == 0
    assert np.array_equal(split.tv, split.train)
    assert (len(split.tr), len(split.va)) == tr_va_without_cal


def test_sizes_of_the_longer_kin8nm_file() -> None:
    split = published_split(8785)
    sizes = [len(rows) for rows in (split.train, split.test, split.tv, split.cal, split.tr, split.va)]
    assert sizes == [7906, 879, 6917, 989, 5533, 1384]


# --- which rows


def test_first_permutation_of_ten_thousand_rows() -> None:
    train, _ = outer_split(10000, 1, seed=1)
    assert train[:3].tolist() == [9953, 3850, 4962]


def test_protein_subsample_is_the_published_one_in_the_order_drawn() -> None:
    rows = subsample(45730, 10000, seed=1)
    assert rows[:3].tolist() == [13171, 38548, 22657]
    assert np.array_equal(rows, np.random.RandomState(1).permutation(45730)[:10000])
    dataset = load_dataset(make_task(jobs(["dataset=protein"])[0].config(), 1))
    assert len(dataset.y) == 10000
    assert dataset.y.std() == pytest.approx(6.133332, abs=1e-6)


def test_no_cal_on_protein_continues_the_stream_that_drew_the_subsample(
    configs: dict[tuple[str, str], Config],
) -> None:
    starts = {
        ablation: make_split(configs["protein", ablation], 10000, 1).train[:3].tolist()
        for ablation in ("full", "no_anchor", "no_router", "no_cal")
    }
    standard = [9953, 3850, 4962]
    assert starts == {"full": standard, "no_anchor": standard, "no_router": standard, "no_cal": [5504, 1492, 7668]}


def test_splits_are_consecutive_permutations_of_one_stream_cut_at_ninety_percent() -> None:
    stream = np.random.RandomState(3)
    for number in range(1, 21):
        permutation = stream.choice(np.arange(57), 57, replace=False)
        train, test = outer_split(57, number, seed=3)
        assert np.array_equal(np.concatenate([train, test]), permutation)
        assert len(train) == round(0.9 * 57)


def test_inner_split_holds_out_the_first_rows_of_a_permutation() -> None:
    split = all_rows(OuterSplit(2, seed=1), 103, 9, calibration_fraction=0.125, validation_fraction=0.2)
    train = split.train

    order = np.random.RandomState(9).permutation(len(train))
    held_out = math.ceil(0.125 * len(train))
    assert np.array_equal(split.cal, train[order[:held_out]])
    assert np.array_equal(split.tv, train[order[held_out:]])

    order = np.random.RandomState(9).permutation(len(split.tv))
    held_out = math.ceil(0.2 * len(split.tv))
    assert np.array_equal(split.va, split.tv[order[:held_out]])
    assert np.array_equal(split.tr, split.tv[order[held_out:]])


@pytest.mark.parametrize("calibration_fraction", [0.125, 0.0])
def test_every_row_is_used_once(calibration_fraction: float) -> None:
    for number in (1, 2, 20):
        split = published_split(308, number, calibration_fraction=calibration_fraction)
        assert_partition(np.arange(308), split.train, split.test)
        assert_partition(split.train, split.tv, split.cal)
        assert_partition(split.tv, split.tr, split.va)


# --- seeds


def test_inner_seed_is_fixed_for_the_full_model_and_the_split_number_later_for_ablations(
    configs: dict[tuple[str, str], Config],
) -> None:
    for ablation, seeds in {"full": [1, 1], "no_anchor": [2, 21], "no_router": [2, 21], "no_cal": [2, 21]}.items():
        assert [inner_seed(configs["boston", ablation], number) for number in (1, 20)] == seeds
    full = make_split(configs["boston", "full"], 506, 4)
    no_router = make_split(configs["boston", "no_router"], 506, 4)
    assert np.array_equal(full.test, no_router.test)
    assert not np.array_equal(full.va, no_router.va)


def test_clean_protocol_has_the_same_splits_for_all_ablations() -> None:
    swept = jobs(["protocol=clean", "ablation=full,no_anchor,no_router,no_cal"])
    first, *others = [make_split(job.config(), 506, 4) for job in swept]
    assert len(others) == 3
    for other in others:
        for fold in ("train", "tr", "va", "tv", "cal", "test"):
            assert np.array_equal(getattr(first, fold), getattr(other, fold))


def test_another_seed_gives_other_splits(configs: dict[tuple[str, str], Config]) -> None:
    reseeded = jobs(["dataset=boston", "seed=5"])[0].config()
    split, other = (make_split(config, 506, 1) for config in (configs["boston", "full"], reseeded))
    assert not np.array_equal(split.test, other.test)
    assert np.array_equal(other.train, np.random.RandomState(5).permutation(506)[:455])


def test_a_split_alone_equals_the_split_in_sequence(configs: dict[tuple[str, str], Config]) -> None:
    config = configs["boston", "no_router"]
    in_sequence = [make_split(config, 506, number) for number in range(1, 6)]
    alone = make_split(config, 506, 5)
    for fold in ("train", "tr", "va", "tv", "cal", "test"):
        assert np.array_equal(getattr(alone, fold), getattr(in_sequence[4], fold))


def test_protein_has_a_variant_with_all_its_rows() -> None:
    for variant, num_rows in (("standard", 10_000), ("all_rows", 45_730)):
        for ablation in ("full", "no_cal"):  # the published no_cal splits follow the stream that drew the subsample
            (job,) = jobs(["dataset=protein", f"dataset.variant={variant}", f"ablation={ablation}"])
            task = make_task(job.config(), 1)
            dataset = load_dataset(task)
            train, test = task.split.rows(len(dataset.y))
            assert len(dataset.y) == len(train) + len(test) == num_rows
            assert len(np.unique(np.concatenate([train, test]))) == num_rows


def test_rows_first_tested_are_different_ones_and_all_that_the_splits_test() -> None:
    tested, first = [], []
    for number in range(1, 8):
        split = OuterSplit(number, seed=3)
        rows = split.rows(57)[1]
        tested += rows.tolist()
        first += rows[split.first_tested(57)].tolist()
    assert len(tested) > len(set(tested))
    assert sorted(first) == sorted(set(tested))
