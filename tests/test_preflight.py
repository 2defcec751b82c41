"""The preflight finds what misleads a comparison, and raises no false alarm on public tables."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from anchormoe.commands.preflight import preflight_path, show_preflight
from anchormoe.data.catalogue import DatasetInfo, catalogue
from anchormoe.data.dataset import load
from anchormoe.data.leaks import LEAK_R2, find_leaks
from anchormoe.data.own import described
from anchormoe.data.preflight import Preflight, preflight, target_facts
from anchormoe.data.splits import OuterSplit, Scheme

N = 400


def table(**columns: object) -> pd.DataFrame:
    stream = np.random.default_rng(3)
    a, b = stream.normal(size=N), stream.normal(size=N)
    return pd.DataFrame({"a": a, "b": b, **columns, "y": 10 + a + 0.5 * b + stream.normal(size=N)})


def written(frame: pd.DataFrame, folder: Path, **roles: str) -> DatasetInfo:
    path = folder / "table.csv"
    frame.to_csv(path, index=False)
    return described(str(path), "y", **roles)  # type: ignore[arg-type]


def look_at(frame: pd.DataFrame, folder: Path, **roles: str) -> Preflight:
    return preflight(written(frame, folder, **roles))


def test_an_ordinary_table_has_no_findings(tmp_path: Path) -> None:
    found = look_at(table(), tmp_path)
    assert found.findings() == []
    assert (found.rows, found.features, found.kinds, found.missing) == (N, 2, {"numeric": 2}, {})


@pytest.mark.parametrize(
    ("leak", "kind"),
    [
        (lambda y: 3 * y - 2, "copy"),
        (lambda y: np.log(y + 100), "predictor"),
        (lambda y: np.exp(y), "predictor"),
        (lambda y: y + 0.01 * y.std() * np.random.default_rng(0).normal(size=N), "predictor"),
        (lambda y: np.argsort(np.argsort(y)), "identifier"),
    ],
    ids=["another unit", "logarithm", "exponential", "little noise", "an identifier in its order"],
)
def test_a_column_that_gives_the_target_away_is_found(leak, kind: str, tmp_path: Path) -> None:
    frame = table()
    frame["late"] = leak(frame.y.to_numpy())
    found = look_at(frame, tmp_path)
    assert [(item.column, item.kind) for item in found.leaks] == [("late", kind)]
    assert "leak: late" in found.findings()[0]


def test_a_category_that_gives_the_target_away_is_found(tmp_path: Path) -> None:
    stream = np.random.default_rng(0)
    code = stream.integers(0, 5, N)
    frame = pd.DataFrame({"a": stream.normal(size=N), "grade": np.array(list("abcde"))[code], "y": code * 2.0})
    assert [item.column for item in look_at(frame, tmp_path).leaks] == ["grade"]


def test_a_noisy_predictor_is_no_leak(tmp_path: Path) -> None:
    frame = table()
    frame["good"] = frame.y + 0.1 * frame.y.std() * np.random.default_rng(0).normal(size=N)
    frame["row"] = np.arange(N)
    assert look_at(frame, tmp_path).leaks == []


@pytest.mark.parametrize(
    "name", [name for name, dataset in catalogue().items() if dataset.path is None and not dataset.table]
)
def test_no_false_alarm_of_a_leak_or_groups_on_public_tables(name: str) -> None:
    dataset = load(catalogue()[name])
    assert find_leaks(dataset.X, dataset.y, dataset.feature_names, dataset.categorical) == []
    if len(dataset.y) < 5000:
        assert preflight(catalogue()[name]).group_candidates == []


def test_the_threshold_is_what_the_comment_says() -> None:
    stream = np.random.default_rng(0)
    y = stream.normal(size=5000)
    found = [bool(find_leaks((y + s * stream.normal(size=5000))[:, None], y, ("x",))) for s in (0.02, 0.06)]
    assert found == [True, False], LEAK_R2


def test_repeated_rows_and_how_many_cross_splits(tmp_path: Path) -> None:
    frame = table()
    twins = pd.concat([frame, frame[:100]], ignore_index=True)
    found = look_at(twins, tmp_path)
    assert found.hazards.repeated_rows == 100
    values = twins.to_numpy()
    shares = []
    for number in range(1, 6):
        train, test = OuterSplit(number, seed=1).rows(len(values))
        known = {tuple(row) for row in values[train]}
        shares.append(np.mean([tuple(row) in known for row in values[test]]))
    assert found.repeated_across_splits == pytest.approx(np.mean(shares), abs=1e-4)
    assert any(line.startswith("repeated rows: ") for line in found.findings())


def test_groups_in_which_random_splits_flatter(tmp_path: Path) -> None:
    """A forest of customers: known customers are predicted well, new ones are not; the preflight says so."""
    stream = np.random.default_rng(0)
    customer = np.repeat(np.arange(50), 8)
    frame = pd.DataFrame({"a": stream.normal(size=N), "customer_id": customer})
    frame["y"] = stream.normal(0, 3, 50)[customer] + stream.normal(0, 0.3, N)
    flat = look_at(frame, tmp_path)
    assert flat.group_candidates == ["customer_id"]
    assert any("add groups=customer_id" in line for line in flat.findings())
    grouped = look_at(frame, tmp_path, groups="customer_id")
    assert (grouped.group_candidates, grouped.num_groups, grouped.scheme) == ([], 50, "groups")

    def error(scheme: Scheme) -> float:
        """Predict every test row by the mean of its customer's training rows."""
        errors = []
        for number in range(1, 6):
            train, test = OuterSplit(number, 1, scheme=scheme).rows(N, customer.astype(float))
            means = frame.y[train].groupby(customer[train]).mean()
            predicted = pd.Series(customer[test]).map(means).fillna(frame.y[train].mean())
            errors.append(np.sqrt(np.mean((predicted.to_numpy() - frame.y[test].to_numpy()) ** 2)))
        return float(np.mean(errors))

    assert error(Scheme.random) < 0.5 < 2 < error(Scheme.groups)


def test_few_groups_are_said(tmp_path: Path) -> None:
    found = look_at(table(site=np.arange(N) % 8), tmp_path, groups="site")
    assert any("only 8 groups" in line for line in found.findings())


def test_a_heavy_tail_is_told_from_its_logarithm(tmp_path: Path) -> None:
    frame = table()
    frame["y"] = np.exp(1.5 * (frame.y - 10))
    found = look_at(frame, tmp_path)
    assert found.target.suggestion == "log"
    assert found.target.outliers > 5
    assert any("consider predicting the logarithm" in line for line in found.findings())
    assert look_at(table(), tmp_path).target.suggestion == ""


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda stream: np.where(stream.random(N) < 0.5, 0.0, np.exp(1.5 * stream.normal(size=N))), "tails"),
        (lambda stream: np.where(stream.random(N) < 0.9, 0.0, np.exp(1.5 * stream.normal(size=N))), "tails"),
        (lambda stream: -np.exp(stream.normal(size=N)), "tails"),
        (lambda stream: stream.standard_t(2, N), "tails"),
        (lambda stream: np.exp(stream.normal(size=N)), "log"),
        (lambda stream: stream.laplace(size=N), ""),
        (lambda stream: stream.uniform(size=N), ""),
        (lambda stream: (stream.random(N) < 0.02) * 1.0, ""),
    ],
    ids=["half zeros", "mostly zeros", "left", "both sides", "log-normal", "Laplace", "uniform", "two values"],
)
def test_heavy_tails_of_every_kind_are_found(draw, expected: str, tmp_path: Path) -> None:
    frame = table()
    frame["y"] = draw(np.random.default_rng(1))
    found = look_at(frame, tmp_path)
    assert found.target.suggestion == expected
    assert any("heavy" in line for line in found.findings()) == bool(expected)


@pytest.mark.parametrize(("name", "expected"), [("forestfires", "tails"), ("compactiv", "tails"), ("boston", "")])
def test_heavy_tails_of_public_tables(name: str, expected: str) -> None:
    assert target_facts("y", load(catalogue()[name]).y).suggestion == expected


def test_the_target_is_described() -> None:
    stream = np.random.default_rng(0)
    counts = target_facts("y", stream.poisson(2, 500).astype(float))
    assert (counts.suggestion, counts.step, counts.lowest) == ("counts", 1.0, 0.0)
    halves = target_facts("y", stream.integers(0, 100, 500) * 0.5)
    assert halves.step == 0.5
    assert target_facts("y", stream.normal(size=500)).step is None
    assert target_facts("y", np.round(stream.normal(100, 1, 500), 2)).step == 0.01


@pytest.mark.parametrize(("rows", "distinct", "expected"), [(60, 60, False), (200, 50, True), (400, 101, False)])
def test_few_values_are_those_that_repeat(rows: int, distinct: int, expected: bool, tmp_path: Path) -> None:
    frame = table()[:rows]
    frame["y"] = np.random.default_rng(2).permutation(np.resize(np.linspace(0, 1, distinct), rows))
    assert any("values only" in line for line in look_at(frame, tmp_path).findings()) == expected


def test_names_of_columns_are_no_markup(tmp_path: Path) -> None:
    frame = table(same=1.0).rename(columns={"a": "[red]a[/b]", "same": "same[/i]"})
    frame["text[/]"] = [f"remark {row}" for row in range(N)]
    frame.loc[3, "[red]a[/b]"] = np.nan
    console = Console(file=io.StringIO(), width=100)
    show_preflight(written(frame, tmp_path), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for name in ("[red]a[/b] 0.2%", "text[/]: free text", "never vary: same[/i]"):
        assert name in text


def test_gaps_constant_and_identical_columns(tmp_path: Path) -> None:
    frame = table(same=1.0, half=np.where(np.arange(N) % 2, np.nan, np.arange(N)))
    frame["again"] = frame.a
    found = look_at(frame, tmp_path)
    assert found.missing == {"half": 0.5}
    assert found.constant == ["same"]
    assert found.identical == [["a", "again"]]


def test_it_is_shown_as_a_table_and_stored(tmp_path: Path) -> None:
    frame = table()
    frame["late"] = 2 * frame.y
    info = written(frame, tmp_path)
    console = Console(file=io.StringIO(), width=100)
    path = preflight_path(tmp_path / "results", "runs", info.name)
    show_preflight(info, console, path)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"Preflight of {info.name}" in text
    assert "look at" in text
    stored = json.loads(path.read_text())
    assert (stored["rows"], stored["leaks"][0]["column"]) == (N, "late")
    assert len(stored["findings"]) == 1
