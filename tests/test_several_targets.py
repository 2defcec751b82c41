"""Several targets: the estimator, its saved files, the harness from configuration to table, a case of known truth."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.datasets import make_regression
from sklearn.exceptions import DataConversionWarning

from anchormoe import AnchorMoERegressor, load_dataset
from anchormoe.cli import main
from anchormoe.data.catalogue import info
from anchormoe.data.dataset import load
from anchormoe.distributions.joint import IndependentTargets, JointMixture
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.estimator.saving import SavedFileError
from anchormoe.methods.independent import OneByOne
from anchormoe.methods.stack_gaussian import StackGaussian
from anchormoe.model.crossfit import TargetStatistics
from anchormoe.model.joint import with_outlier_components
from anchormoe.model.settings import AnchorKind, AnchorSettings
from anchormoe.report import documents, several_targets
from anchormoe.report.statistics import paired_test
from anchormoe.running.store import load_results

TRAINING = {"epochs": 20, "min_steps": 0, "learning_rate": 0.01}
QUICK: dict[str, Any] = {"anchor": "ridge", "folds": 3, "hidden_dim": 8, "training": TRAINING, "random_state": 0}


def quick(**settings: Any) -> AnchorMoERegressor:
    return AnchorMoERegressor(**{**QUICK, **settings})


def table(num_rows: int = 200, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return rows with a category, gaps and two targets of different units, whose noise is strongly correlated."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"size": rng.uniform(-1, 1, num_rows), "age": rng.uniform(0, 1, num_rows)})
    X["town"] = rng.choice(["east", "west"], num_rows)
    noise = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], num_rows)
    east = (X["town"] == "east").to_numpy()
    y = pd.DataFrame(
        {"price": 1000 * (3 * X["size"] + east + 0.3 * noise[:, 0]), "rent": X["size"] + X["age"] + 0.3 * noise[:, 1]}
    )
    X.loc[::9, "age"] = np.nan
    return X, y


@pytest.fixture(scope="module")
def fitted() -> tuple[AnchorMoERegressor, pd.DataFrame, pd.DataFrame]:
    X, y = table()
    return quick().fit(X, y), X, y


def test_predictions_have_a_column_per_target(fitted: Any) -> None:
    model, X, y = fitted
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == y.shape
    assert model.predict_interval(X, 0.8).shape == (200, 2, 2)
    assert model.predict_quantiles(X, (0.1, 0.5, 0.9)).shape == (200, 2, 3)
    assert 0.8 < model.score(X, y) < 1
    joint = model.predict_dist(X)
    assert isinstance(joint, JointMixture)
    assert joint.names == ("price", "rent")
    np.testing.assert_allclose(joint.marginal("rent").mean, mean[:, 1])
    np.testing.assert_allclose(joint.marginal("price").interval(0.8), model.predict_interval(X, 0.8)[:, 0])
    assert isinstance(joint.condition({"price": y["price"].to_numpy()}), GaussianMixture)


def test_knowing_one_target_tells_about_the_other() -> None:
    """On new rows the conditional mean has a much smaller error than the mean, as the noise has correlation 0.9."""
    X, y = table(600)
    model = quick(training={**TRAINING, "epochs": 60}).fit(X, y)
    new_X, new_y = table(400, seed=1)
    joint = model.predict_dist(new_X)
    truth = new_y["rent"].to_numpy()
    before = np.sqrt(np.mean((joint.marginal("rent").mean - truth) ** 2))
    after = np.sqrt(np.mean((joint.condition({"price": new_y["price"].to_numpy()}).mean - truth) ** 2))
    assert after < 0.7 * before


def test_a_dataframe_and_an_array_give_the_same_numbers() -> None:
    X, y = table()
    named, unnamed = (quick(folds=2).fit(X, target) for target in (y, y.to_numpy()))
    np.testing.assert_array_equal(named.predict(X), unnamed.predict(X))
    assert unnamed.predict_dist(X).names == ()


def test_a_column_vector_is_one_target_and_warns() -> None:
    X, y = table()
    with pytest.warns(DataConversionWarning):
        column = quick(folds=2).fit(X, y[["rent"]])
    assert isinstance(column.predict_dist(X), GaussianMixture)
    np.testing.assert_array_equal(column.predict(X), quick(folds=2).fit(X, y["rent"]).predict(X))


def test_threads_do_not_change_the_result(fitted: Any) -> None:
    model, X, y = fitted
    np.testing.assert_array_equal(quick(n_jobs=3).fit(X, y).predict(X), model.predict(X))


@pytest.mark.parametrize("covariance", ["full", "low_rank", "diagonal"])
def test_five_targets(covariance: str) -> None:
    X, y = make_regression(n_samples=60, n_features=4, n_targets=5, noise=1.0, random_state=0)
    model = quick(covariance=covariance, folds=2).fit(X, y)
    joint = model.predict_dist(X)
    assert joint.factors.shape[2:] == (5, 5)
    assert np.isfinite(joint.log_prob(y)).all()
    assert model.fitted_.members[0].model.config.covariance.value == covariance


def test_the_recipe_best_calibrates_means_where_there_is_no_one_distribution_function() -> None:
    X, y = table()
    own, stated = (quick(recipe="best", calibration=one).fit(X, y).predict(X) for one in ("auto", "weighted"))
    np.testing.assert_array_equal(own, stated)
    with pytest.raises(ValueError, match="calibration must be none, linear or weighted with several targets"):
        quick(recipe="best", calibration="pit").fit(X, y)


def test_weights_of_rows_count() -> None:
    X, y = table()
    weight = np.r_[np.zeros(50), np.ones(150)]
    without = quick(folds=2).fit(X.iloc[50:], y.iloc[50:])
    np.testing.assert_allclose(quick(folds=2).fit(X, y, weight).predict(X), without.predict(X), rtol=1e-9)
    assert not np.array_equal(quick(folds=2).fit(X, y, weight + 0.5).predict(X), quick(folds=2).fit(X, y).predict(X))


def test_a_category_of_many_levels_is_encoded_by_every_target() -> None:
    rng = np.random.default_rng(0)
    level = rng.integers(0, 30, 300)
    effect = rng.standard_normal((2, 30))
    X = pd.DataFrame({"level": pd.Categorical([f"l{one}" for one in level])})
    y = np.column_stack([effect[0][level], effect[1][level]]) + 0.1 * rng.standard_normal((300, 2))
    model = quick().fit(X, y)
    assert model.fitted_.members[0].scaling.column_mean.shape == (4,)  # two means of levels, two anchors
    assert model.score(X, y) > 0.8


def test_a_target_that_never_varies() -> None:
    X, y = table()
    y["rent"] = 3.0
    joint = quick(folds=2).fit(X, y).predict_dist(X)
    np.testing.assert_allclose(joint.mean[:, 1], 3.0, atol=1e-6)
    assert np.isfinite(joint.log_prob(y.to_numpy())).all()


def test_calibration_maps_the_means_of_each_target() -> None:
    X, y = table()
    none, linear = (quick(calibration=name).fit(X, y) for name in ("none", "linear"))
    assert none.fitted_.linear_maps == ()
    before, after = none.predict(X), linear.predict(X)
    for k, one in enumerate(linear.fitted_.linear_maps):
        np.testing.assert_allclose(after[:, k], one(before[:, k]), rtol=1e-9)
    assert linear.diagnostics_["calibration_a"] == [one.slope for one in linear.fitted_.linear_maps]


def test_summary_tells_of_every_target(fitted: Any) -> None:
    model, X, _ = fitted
    text = io.StringIO()
    model.summary(Console(file=text, width=100), X)
    for words in ("calibration of price", "calibration of rent", "covariance", "together", "rows are far"):
        assert words in text.getvalue()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"calibration": "pit"}, "calibration must be none, linear or weighted with several targets, received pit"),
        ({"calibration": "conformal"}, "none, linear or weighted with several targets, received conformal"),
        ({"loss": "crps"}, "loss must be nll with several targets, received crps"),
        (
            {"recipe": "paper", "folds": None},
            "must be fast, best or crossfit with several targets, received 'paper'",
        ),
        ({"covariance": "dense"}, "network.covariance must be one of diagonal, low_rank, full, received 'dense'"),
        ({"network": {"rank": 0}}, "model.rank must be positive"),
    ],
)
def test_what_several_targets_do_not_have_is_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    X, y = table()
    with pytest.raises(ValueError, match=message) as caught:
        quick(**settings).fit(X, y)
    assert "\n" not in str(caught.value)


def test_plots_of_distributions_ask_for_one_target(fitted: Any) -> None:
    model, X, y = fitted
    with pytest.raises(ValueError, match="plots of distributions need one target"):
        model.plot_pit(X, y)


def test_members_are_averaged() -> None:
    X, y = table()
    model = quick(calibration="none").fit(X, y)
    rows = model.columns_.matrix(X.iloc[:10])
    parts = [member.predict(rows) for member in model.fitted_.members]
    expected = with_outlier_components(JointMixture.average(parts), model.fitted_.targets)
    np.testing.assert_allclose(model.predict_dist(X.iloc[:10]).log_prob(y[:10]), expected.log_prob(y[:10]))


def test_outlier_components_have_the_weight_of_one_target_in_every_marginal() -> None:
    """A marginal of the joint density is what a model of this target alone would have: weight 1 / (N + 1) is wide."""
    joint = JointMixture.normal(np.zeros((1, 2)), np.array([[1.0, 0.6], [0.6, 2.0]]) * 1e-4)
    targets = [TargetStatistics(99, 0.0, 3.0), TargetStatistics(99, 0.0, 5.0)]
    found = with_outlier_components(joint, targets)
    assert found.weights.sum() == pytest.approx(1)
    for k, wide in ((0, 3.0), (1, 5.0)):
        marginal = found.marginal(k)
        assert marginal.weights[0][np.isclose(marginal.scales[0], wide)].sum() == pytest.approx(0.01)
    odd = found.condition({0: 2.5})  # odd in the first target alone or in both
    assert odd.prob(-0.1, 0.1)[0] == pytest.approx(0.5, abs=0.05)


def test_saved_predictions_are_the_same_bits(tmp_path: Path) -> None:
    X, y = table()
    members = {"xgboost": {"kind": "xgboost", "stages": 5}, "network": {"kind": "network"}}
    stack = AnchorSettings("stack", AnchorKind.stack, members=members)
    for number, covariance in enumerate(("full", "low_rank", "diagonal")):
        settings = {"anchor": stack} if number == 0 else {}
        model = quick(folds=2, covariance=covariance, **settings).fit(X, y)
        path = tmp_path / f"{covariance}.anchormoe"
        model.save(path)
        ours, theirs = model.predict_dist(X), AnchorMoERegressor.load(path).predict_dist(X)
        for name in ("log_weights", "means", "factors"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        assert theirs.names == ("price", "rent")
        held_out = AnchorMoERegressor.load(path).fitted_.held_out
        np.testing.assert_array_equal(held_out.densities.factors, model.fitted_.held_out.densities.factors)


def rewritten(path: Path, change: Any) -> Path:
    """Write a saved file again with a manifest that was changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members.pop("manifest.json"))
    change(manifest)
    out = path.with_name("hostile.anchormoe")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {"manifest.json": json.dumps(manifest).encode(), **members}.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return out


def fields(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["attributes"]["fitted_"]["fields"]


def first_member(manifest: dict[str, Any]) -> dict[str, Any]:
    return fields(manifest)["members"]["items"][0]["fields"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: first_member(m)["model"].update(num_targets=3), "limits of the scales of 3 targets"),
        (lambda m: first_member(m)["model"].update(num_targets=10**9), "limits of the scales of 1000000000 targets"),
        (lambda m: first_member(m)["model"].pop("num_targets"), "experts"),
        (lambda m: fields(m)["targets"]["items"].pop(), "targets"),
        (lambda m: fields(m)["anchors"]["items"].pop(), "anchors of 2 targets"),
        (lambda m: fields(m)["names"]["items"].append("third"), "names of 2 targets"),
        (lambda m: fields(m)["linear_maps"]["items"].pop(), "linear maps of 2 targets"),
        (lambda m: first_member(m)["anchor"]["fields"]["parts"]["items"].pop(), "anchors of 2 targets"),
        (lambda m: first_member(m)["scaling"]["fields"].update(y_std=1.0), "units of the targets"),
        (lambda m: fields(m)["held_out"]["fields"]["scores"]["items"].pop(), "scores of 2 targets"),
    ],
)
def test_files_whose_parts_do_not_fit_are_refused(tmp_path: Path, change: Any, message: str, saved_file: Path) -> None:
    with pytest.raises(SavedFileError, match=message) as caught:
        AnchorMoERegressor.load(rewritten(saved_file, change))
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def saved_file(tmp_path_factory: pytest.TempPathFactory, fitted: Any) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model.anchormoe"
    fitted[0].save(path)
    return path


def test_files_of_versions_before_several_targets_load(tmp_path: Path) -> None:
    """Their networks have no setting `covariance` yet."""
    X, y = table()
    model = quick(folds=2).fit(X, y["rent"])
    path = tmp_path / "old.anchormoe"
    model.save(path)

    def older(manifest: dict[str, Any]) -> None:
        del manifest["parameters"]["covariance"]
        for member in fields(manifest)["members"]["items"]:
            settings = member["fields"]["model"]["settings"]["fields"]
            del settings["covariance"], settings["rank"]

    np.testing.assert_array_equal(AnchorMoERegressor.load(rewritten(path, older)).predict(X), model.predict(X))


def test_datasets_of_both_targets() -> None:
    for name, single, other in (("energy_joint", "energy", "cooling"), ("naval_joint", "naval", "turbine")):
        joint, first = load(info(name)), load(info(single))
        second = load(info(single), variant=other)
        np.testing.assert_array_equal(joint.X, first.X)
        np.testing.assert_array_equal(joint.y, np.column_stack([first.y, second.y]))
        assert joint.target_names == (first.target_name, second.target_name)
    X, y = load_dataset("energy_joint")
    assert list(y.columns) == ["Y1", "Y2"]
    assert X.shape == (768, 8)


def small_arguments() -> dict[str, Any]:
    return {**{name: value for name, value in QUICK.items() if name != "anchor"}, "anchor": "ridge"}


def test_independent_is_a_model_per_target() -> None:
    X, y = table()
    numbers, targets = X[["size"]].to_numpy(), y.to_numpy()
    both = OneByOne(**small_arguments()).fit(numbers, targets)
    joint = both.predict_dist(numbers)
    assert isinstance(joint, IndependentTargets)
    for k in (0, 1):
        alone = quick().fit(numbers, targets[:, k]).predict_dist(numbers)
        np.testing.assert_array_equal(joint.marginal(k).mean, alone.mean)
    assert len(both.diagnostics_["epoch"]) == 2


def test_stack_gaussian_has_the_covariance_of_the_residuals() -> None:
    X, y = table()
    numbers, targets = X[["size"]].to_numpy(), y.to_numpy()
    from anchormoe.config.presets import anchor_preset
    from anchormoe.model.settings import CrossfitSettings, ModelSettings, TrainingSettings

    settings = {"anchor": anchor_preset("ridge"), "model": ModelSettings(), "train": TrainingSettings()}
    control = StackGaussian(random_state=0, crossfit=CrossfitSettings(folds=4), **settings).fit(numbers, targets)
    residuals = targets - np.column_stack([anchor.mean for anchor in control.anchors])
    joint = control.predict_dist(numbers)
    main = joint.factors[:, 0] @ np.swapaxes(joint.factors[:, 0], 1, 2)
    expected = np.mean([np.outer(row, row) for row in residuals], axis=0)
    np.testing.assert_allclose(main[0], expected, rtol=1e-6)
    assert joint.weights[0, 0] == pytest.approx(1 - 1.5 / 201)


SMALL = [
    *("anchor=ridge", "crossfit.folds=2", "model.hidden_dim=4", "train.epochs=2", "train.min_steps=0"),
    *("workers=1", "splits=1-2", "protocol=clean", "experiment_name=several_targets"),
]


def run(*arguments: str) -> int:
    return main([*arguments, *SMALL])


def test_the_harness_from_configuration_to_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = f"results_dir={tmp_path}"
    methods = "anchormoe_crossfit,anchormoe_best,anchormoe_diagonal,independent,stack_gaussian"
    assert run("dataset=energy_joint", f"method={methods}", "predictions=true", out) == 0
    rows = load_results(tmp_path, kind="joint")
    assert len(rows) == 10
    assert set(rows["calibration"]) == {"weighted"}  # best maps the distribution function of a single target
    assert set(rows["kind"]) == {"joint"}
    assert len(load_results(tmp_path)) == 0  # tables of one target never see them
    for column in ("nll_joint_y", "energy_score_z", "variogram_score_z", "fit_seconds"):
        assert np.isfinite(rows[column].astype(float)).all()
    for row in rows.to_dict("records"):
        assert set(row["targets"]) == {"Y1", "Y2"}
        assert set(row["targets"]["Y1"]) == {"crps_y", "rmse_y", "coverage_90"}
        assert row["target_step"] == [0.002, 0.01]
    for form in ("several_targets", "comparison"):
        assert main(["tables", f"form={form}", "format=md", out]) == 0
        shown = capsys.readouterr().out
        assert ("joint NLL" in shown or "NLL of all targets" in shown) is (form == "several_targets")
    predictions = pd.read_parquet(next(tmp_path.glob("*/*.predictions/independent*.parquet")))
    mean = -predictions.groupby("split")["log_prob"].mean()
    stored = rows[rows["method"] == "independent"].set_index("split")["nll_joint_y"]
    np.testing.assert_allclose(mean, stored)


def stored(method: str, split: int, nll: float) -> dict[str, Any]:
    """Return a row of two targets as the harness stores it."""
    labels = {"experiment": "several_targets", "dataset": "energy_joint", "method": method, "split": split, "seed": 1}
    labels |= {"ablation": "full", "protocol": "clean", "anchor": "stack", "config_hash": method, "status": "ok"}
    alone = {name: {"crps_y": nll / 2, "rmse_y": nll, "coverage_90": 0.9} for name in ("Y1", "Y2")}
    scores = {"nll_joint_y": nll, "energy_score_z": nll / 10, "variogram_score_z": nll / 100, "num_rows": 768}
    return {**labels, **scores, "kind": "joint", "variant": "standard", "targets": alone}


def test_tables_pair_the_splits() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(1, 0.3, 20), rng.normal(0, 0.01, 20)
    rows = [stored("anchormoe_crossfit", split, ours[split - 1]) for split in range(1, 21)]
    rows += [stored("independent", split, ours[split - 1] + 0.5 + theirs[split - 1]) for split in range(1, 21)]
    built = {table.key: table for table in several_targets.build(pd.DataFrame(rows))}
    assert {table.form for table in built.values()} == {"several_targets"}
    first, second = built["several_targets_nll_joint_y"].rows[0].cells
    assert first.mean == pytest.approx(ours.mean())
    assert first.bold
    assert second.mean == pytest.approx((ours + 0.5 + theirs).mean())
    (difference,) = built["paired_nll_joint_y"].rows[0].cells
    test = paired_test(ours + 0.5 + theirs, ours)
    assert (difference.mean, difference.deviation) == pytest.approx((test.mean, test.se))
    assert difference.bold
    assert [row.dataset for row in built["several_targets_crps_y"].rows] == ["energy_joint: Y1", "energy_joint: Y2"]
    written = documents.several_targets_together(pd.DataFrame(rows))
    assert "**+0.5" in written or "**0.5" in written or "**0.4" in written
    assert several_targets.build(pd.DataFrame({"status": []})) == []


def test_a_table_of_the_users_with_two_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table(80)
    pd.concat([X, y], axis=1).to_csv(tmp_path / "flats.csv", index=False)
    folder = tmp_path / "conf" / "dataset"
    folder.mkdir(parents=True)
    (folder / "flats.yaml").write_text("name: flats\npath: flats.csv\ntarget: [price, rent]\n")
    monkeypatch.chdir(tmp_path)
    assert run("dataset=flats", "method=anchormoe_crossfit", f"results_dir={tmp_path / 'results'}") == 0
    rows = load_results(tmp_path / "results", kind="joint")
    assert set(rows["targets"].iloc[0]) == {"price", "rent"}
    assert list(rows["num_features"]) == [3, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dataset=energy_joint", "method=ngboost"], "for the 2 targets of 'energy_joint', received ngboost"),
        (["dataset=energy_joint", "method=anchormoe"], "for the 2 targets of 'energy_joint', received anchormoe"),
        (["dataset=energy", "method=independent"], "method=independent must have a dataset of several targets"),
        (["dataset=energy", "method=stack_gaussian"], "method=stack_gaussian must have a dataset of several targets"),
        (["dataset=energy_joint", "method=anchormoe_crossfit", "calibration=pit"], "calibration must be none, linear"),
        (["dataset=energy_joint", "method=anchormoe_best", "calibration=pit"], "calibration must be none, linear"),
        (["dataset=energy_joint", "method=independent", "method.calibration=conformal"], "method.calibration must be"),
        (["rank", "dataset=energy_joint", "methods=anchormoe_crossfit", "splits=1"], "rank needs a dataset of one"),
        (["data", "check", "energy_joint"], "preflight needs a dataset of one target"),
    ],
)
def test_what_does_not_fit_the_number_of_targets_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [] if arguments[0] == "data" else [f"results_dir={tmp_path}"]
    assert main([*arguments, *where]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("target: [a, a]", "a list of different columns"),
        ("target: []", "target must name the column to predict"),
        ("target: 3", "target must be text or a list of texts, received 3"),
        ("target: [a, 3]", "target must be text or a list of texts, received ['a', 3]"),
        ("target: [a, b]\nfeatures: [b, c]", "features must not include the target"),
        ("target: [a, b]\ntime: b", "time must not be the target"),
    ],
)
def test_descriptions_with_wrong_targets_are_one_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "conf" / "dataset"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(f"name: mine\npath: mine.csv\n{text}\n")
    monkeypatch.chdir(tmp_path)
    assert main(["dataset=mine", "method=anchormoe_crossfit"]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
