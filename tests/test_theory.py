"""The theory's lab: its estimators and problems against independent computations, its verdicts on a small plan."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from anchormoe import suggest_num_experts
from anchormoe.cli import main
from anchormoe.report.theory import claims, densities, rates
from anchormoe.report.theory.claims import HOLDS, NOT_SEEN, QUALIFIED, Claim, Part
from anchormoe.report.theory.slopes import Curve, Estimate
from anchormoe.rows import SIMULATION
from anchormoe.running.store import load_results
from anchormoe.theory import estimators, partitions, plan
from anchormoe.theory.problems import Cube, Sphere, Warped, grid, holder_series, inputs
from anchormoe.theory.problems import Curve as CurveProblem
from anchormoe.theory.simulations import Simulation, evaluate

ROOT = Path(__file__).parent.parent
AXES = {
    "truncated": partitions.truncated_linear,
    "bump": partitions.bump,
    "linear": partitions.spline(1),
    "quadratic": partitions.spline(2),
}


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (6, 5)])
def test_windows_are_a_partition_of_unity_with_bounded_overlap(axis: str, shape: tuple[int, ...]) -> None:
    weights = partitions.product_weights(rng().uniform(size=(500, 2)), shape, AXES[axis])
    assert weights.shape == (500, math.prod(shape))
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert np.diff(weights.indptr).max() <= (9 if axis == "quadratic" else 4)


def test_only_b_splines_with_nodes_at_the_boundary_reproduce_linear_functions() -> None:
    x = rng().uniform(size=(400, 1))
    errors = {}
    for name, nodes in (("linear", np.linspace(0, 1, 6)), ("truncated", (np.arange(6) + 0.5) / 6)):
        errors[name] = np.abs(partitions.product_weights(x, (6,), AXES[name]) @ nodes - x[:, 0])
    generic = np.abs(partitions.product_weights(x, (6,), AXES["bump"]) @ ((np.arange(6) + 0.5) / 6) - x[:, 0])
    assert errors["linear"].max() < 1e-12
    inside = (x[:, 0] > 1 / 12) & (x[:, 0] < 11 / 12)
    assert errors["truncated"][inside].max() < 1e-12 < errors["truncated"][~inside].max()
    assert generic[inside].max() > 0.01


def test_local_linear_experts_fit_a_line_exactly() -> None:
    X = rng().uniform(size=(500, 2))
    y = 1 + 2 * X[:, 0] - 3 * X[:, 1]
    estimator = estimators.make_estimator(Cube(2.0, 2, 2), "linear_experts")
    design = estimator.design(X, (3, 2))
    assert design.shape == (500, 3 * 2 * 3)
    fitted = design @ np.linalg.lstsq(design.toarray(), y, rcond=None)[0]
    np.testing.assert_allclose(fitted, y, atol=1e-9)


@pytest.mark.parametrize("most_dense_columns", [1000, 0])
def test_least_squares_is_ridge_regression(monkeypatch: pytest.MonkeyPatch, most_dense_columns: int) -> None:
    """Both ways of solving agree with numpy's least squares on the rows extended by the ridge."""
    monkeypatch.setattr(estimators, "_DENSE_COLUMNS", most_dense_columns)
    design = partitions.product_weights(rng().uniform(size=(300, 2)), (6, 6), partitions.truncated_linear)
    y = rng().standard_normal(300)
    extended = np.vstack([design.toarray(), math.sqrt(estimators._RIDGE) * np.eye(36)])
    expected = np.linalg.lstsq(extended, np.concatenate([y, np.zeros(36)]), rcond=None)[0]
    np.testing.assert_allclose(estimators.least_squares(sparse.csr_matrix(design), y), expected, atol=1e-4)


@pytest.mark.parametrize("smoothness", [0.5, 1.0, 1.5])
def test_random_functions_have_exactly_the_smoothness_assumed(smoothness: float) -> None:
    """Mean squares of second differences over a distance t are in proportion to t^(2 a), for a < 2."""
    distances = 2.0 ** -np.arange(4, 11)
    squares = np.zeros(len(distances))
    for seed in range(30):
        function = holder_series(smoothness, 1, np.random.default_rng(seed))
        x = np.random.default_rng(seed).uniform(0.1, 0.9, size=(4000, 1))
        for place, t in enumerate(distances):
            squares[place] += np.mean((function(x + t) - 2 * function(x) + function(x - t)) ** 2)
    slope = np.polyfit(np.log(distances), np.log(squares), 1)[0]
    assert slope == pytest.approx(2 * smoothness, abs=0.15)


@pytest.mark.parametrize(
    "problem", [CurveProblem(1.0, 16), Sphere(1.0, 16), Cube(1.0, 4, 2), Warped(1.0, 2, "bi_lipschitz")]
)
def test_problems_place_inputs_in_the_cube(problem: Any) -> None:
    X = inputs(problem, 400, rng())
    assert X.shape == (400, problem.ambient_dimension)
    assert X.min() >= 0
    assert X.max() <= 1
    assert grid(problem, 6, 1).shape == (64, problem.ambient_dimension)
    values = problem.function(rng())(X)
    assert values.shape == (400,)
    assert values.std() > 0.1
    if isinstance(problem, CurveProblem | Sphere):
        points, mesh = problem.lattice(50)
        weights = partitions.scattered_weights(X, points, mesh)
        np.testing.assert_allclose(weights.sum(axis=1), 1.0)
        nearest = np.linalg.norm(X[:, None] - points[None], axis=2).min(axis=1)
        assert nearest.max() < 1.5 * mesh, "every point is inside a window"


def test_functions_of_few_coordinates_do_not_depend_on_the_others() -> None:
    X = inputs(Cube(1.0, 4, 2), 50, rng())
    function = Cube(1.0, 4, 2).function(rng())
    moved = np.column_stack([X[:, :2], rng().uniform(size=(50, 2))])
    np.testing.assert_array_equal(function(X), function(moved))


@pytest.mark.parametrize(("num_rows", "dimension", "alpha"), [(1000, 3, 1.0), (5000, 8, 0.5), (400, 2, 2.0)])
def test_the_labs_rule_is_that_of_suggest_num_experts(num_rows: int, dimension: int, alpha: float) -> None:
    expected = round(num_rows ** estimators.rule_exponent(alpha, dimension))
    assert suggest_num_experts(num_rows, dimension, alpha=alpha) == expected


@pytest.mark.parametrize(("experts", "dimension"), [(1, 2), (7, 2), (100, 3), (300, 4)])
def test_lattices_are_nearly_regular_and_of_the_size_asked_for(experts: int, dimension: int) -> None:
    shape = partitions.lattice_shape(experts, dimension)
    assert len(shape) == dimension
    assert max(shape) - min(shape) <= 1
    assert 0.6 < math.prod(shape) / experts < 1.6


def test_slopes_of_exact_power_laws() -> None:
    x = 2.0 ** np.arange(8, 13)
    noise = np.exp(0.1 * rng().standard_normal((5, 40)))
    values = tuple(3 * size**-0.7 * factor for size, factor in zip(x, noise, strict=True))
    slope = Curve(x, values).slope()
    expected = np.polyfit(np.log(x), np.log([value.mean() for value in values]), 1)[0]
    assert slope.value == pytest.approx(expected)
    assert slope.low < expected < slope.high
    assert slope.low < -0.7 < slope.high


def estimate(low: float, high: float) -> Estimate:
    return Estimate((low + high) / 2, low, high)


def test_verdicts() -> None:
    near, off, failed = (Part("", -0.5, estimate(*ends)) for ends in ((-0.52, -0.48), (-0.44, -0.4), (-0.2, -0.1)))
    assert Claim("", "", "", [near], [failed]).verdict == HOLDS
    assert Claim("", "", "", [off], [failed]).verdict == QUALIFIED
    assert Claim("", "", "", [near, failed], [failed]).verdict == QUALIFIED
    assert Claim("", "", "", [failed], [failed]).verdict == NOT_SEEN
    assert Claim("", "", "", [near], [near]).verdict == NOT_SEEN, "a control that agrees"
    assert Claim("", "", "", [near]).verdict == NOT_SEEN, "no control"
    assert Part("", -0.5, estimate(-0.9, 0.1)).verdict == NOT_SEEN, "too wide to say anything"
    assert Claim("", "", "", [near], [failed], [near]).verdict == HOLDS
    assert Claim("", "", "", [near], [failed], [failed]).verdict == QUALIFIED, "a reference that does not agree"
    assert Part("", -4.0, estimate(-3.9, -3.85)).verdict == HOLDS, "5% of a large prediction"
    bound = Part("", -0.5, estimate(-0.9, -0.8), at_most=True)
    assert bound.verdict == HOLDS
    assert not bound.failed


def small_lab(kinds: tuple[str, ...], smoothness: float) -> pd.DataFrame:
    """Run arm 1 in one dimension, with its controls."""
    values = plan.read_plan("full")
    values["rates"] |= {"smoothness": [smoothness], "dimensions": [1], "rows": [8, 14], "replicates": 20}
    values["grid"] = 12
    tasks = [task for task in plan.simulations(values, ("rates",)) if task.settings["object"] in kinds]
    return pd.DataFrame([evaluate(task) for task in tasks])


def test_the_rate_holds_with_the_papers_rule_and_the_controls_fail() -> None:
    (claim,) = rates.main_claims(small_lab(("truncated_spline",), 0.5))
    assert len(claim.controls) == 2
    assert claim.failed_controls == 2
    assert claim.verdict == HOLDS


@pytest.mark.parametrize("wrong", [-0.3, 0.3])
def test_the_rate_is_not_seen_with_a_wrong_rule(monkeypatch: pytest.MonkeyPatch, wrong: float) -> None:
    right = estimators.rule_exponent
    monkeypatch.setattr(estimators, "rule_exponent", lambda a, d: right(a, d) + wrong)
    estimators.fitted_constant.cache_clear()
    try:
        (claim,) = rates.main_claims(small_lab(("truncated_spline",), 0.5))
    finally:
        estimators.fitted_constant.cache_clear()
    assert claim.verdict == NOT_SEEN


def test_constants_saturate_where_linear_experts_do_not() -> None:
    found = {claim.object: claim for claim in rates.main_claims(small_lab(("bump", "linear_experts"), 2.0))}
    generic, linear = (found[rates.OBJECTS[kind]] for kind in ("bump", "linear_experts"))
    assert generic.verdict == NOT_SEEN
    assert generic.parts[0].measured.value > linear.parts[0].measured.value + 0.1
    assert linear.parts[0].verdict != NOT_SEEN


def test_the_links_constants_bound_the_excess_nll() -> None:
    """The bound is compared with the expected NLL of random normals, computed from its definition."""
    first, second = densities.link_constants(0.2, 0.8)
    draw = rng()
    scale, true_scale = (draw.uniform(0.2, 0.8, size=5000) for _ in range(2))
    error = draw.normal(size=5000)
    excess = np.log(scale / true_scale) + (true_scale**2 + error**2) / (2 * scale**2) - 0.5
    assert (excess <= first * error**2 + second * (scale - true_scale) ** 2 + 1e-9).all()


def test_a_study_is_stored_resumed_and_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # names of claims on one line
    command = ["theory", "size=quick", "study=lemmas", f"results_dir={tmp_path}", "workers=1"]
    assert main(command) == 0
    assert "Interpolation lemma" in capsys.readouterr().out
    rows = load_results(tmp_path, ["theory"], kind=SIMULATION)
    assert set(rows["status"]) == {"ok"}
    assert (rows["replicates"] == 4).all()
    assert rows["code_version"].notna().all()
    assert load_results(tmp_path).empty, "simulations are no splits"
    assert main(command) == 0
    assert f"{len(rows)} of {len(rows)} splits are stored already" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("study=nothing", "study must be one of"),
        ("size=huge", "size must be one of"),
        ("sizes=full", "options must be"),
    ],
)
def test_a_wrong_option_is_one_line(option: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", option]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("study", ["selection", "gap", "link"])
def test_every_other_kind_of_study_gives_a_row(study: str) -> None:
    tasks = plan.simulations(plan.read_plan("quick"), (study,))
    by_object = {task.settings["object"]: task for task in tasks}
    for task in by_object.values():
        row = evaluate(dataclasses.replace(task, replicates=1))
        assert row["status"] == "ok", row.get("error")
        lists = [value for name, value in row.items() if isinstance(value, list)]
        assert lists
        assert all(len(values) == 1 and math.isfinite(values[0]) for values in lists)


def test_a_failing_simulation_is_a_failed_row() -> None:
    settings = {"data": "", "object": "bump", "rule": "theory", "problem": "cube", "smoothness": 1.0, "dimension": 7}
    row = evaluate(Simulation("rates", {**settings, "noise": 0.5, "num_rows": 64, "grid": 4}, 1, 1, 0.0))
    assert row["status"] == "failed"
    assert "KeyError" in row["error"]


@pytest.mark.parametrize("size", plan.sizes())
def test_no_two_simulations_of_a_plan_are_the_same(size: str) -> None:
    tasks = plan.simulations(plan.read_plan(size))
    assert len({task.labels["config_hash"] for task in tasks}) == len(tasks)
    json.dumps([task.labels for task in tasks])


def test_stored_rows_are_those_of_the_plan() -> None:
    stored = {
        row["config_hash"] for row in load_results(ROOT / "results", ["theory"], kind=SIMULATION).to_dict("records")
    }
    assert stored == {task.labels["config_hash"] for task in plan.simulations(plan.read_plan("full"))}


def test_no_claim_of_the_stored_rows_holds_without_failed_controls() -> None:
    judged = claims(load_results(ROOT / "results", ["theory"], kind=SIMULATION))
    assert {claim.key for claim in judged} == set(plan.STUDIES) - {"selection"}
    for claim in judged:
        if claim.verdict != NOT_SEEN:
            assert claim.controls
            assert claim.failed_controls == len(claim.controls)
