"""The command rank: a class in a file of the current folder gets its rank among all methods."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import anchormoe
from anchormoe import cli
from anchormoe.commands.rank import method_names
from anchormoe.errors import UserError
from anchormoe.methods import METHODS
from anchormoe.report.ranking_text import fit_code
from anchormoe.running import store

CLASS = """
import numpy as np

class Constant:
    def fit(self, X, y):
        self.value = {value}
        return self

    def predict(self, X):
        return np.full(len(X), self.value)
"""


def write_class(folder: Path, value: str) -> None:
    sys.modules.pop("at_hand", None)
    (folder / "at_hand.py").write_text(CLASS.format(value=value))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a user's working folder with a class in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two versions within a second would share the cached file
    write_class(tmp_path, "y.mean()")
    return tmp_path


def test_one_command_ranks_a_class_at_hand_among_the_shipped_methods(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rank", "at_hand.Constant", "workers=1"]) == 0
    output = capsys.readouterr().out
    lines = {line.split("  ")[1].strip(): line.split() for line in output.splitlines() if line.startswith("  ")}
    best, mine = lines["Anchor-MoE, best"], lines["at_hand.Constant"]
    assert all(float(rank) < 2 for rank in best[-3:])
    assert all(float(rank) > 10 for rank in mine[-3:]), "a constant is no match for any of them"
    (boston,) = [line for name, line in lines.items() if name == "boston"]
    assert len(boston) == 7
    assert cli.main(["tables", "form=comparison"]) == 0
    assert capsys.readouterr().out.count("at_hand.Constant") > 10


def test_a_class_that_was_changed_is_run_anew(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["rank", "at_hand.Constant", "dataset=yacht", "splits=1", "workers=1"]

    def scores() -> list[float]:
        assert cli.main(arguments) == 0
        output = " ".join(capsys.readouterr().out.split())
        assert "at_hand.Constant is ranked on 1 split of 1 dataset; the whole comparison has 180" in output
        return [row["rmse_y"] for row in store.read(folder / "results" / "ranking" / "yacht.jsonl")]

    first = scores()
    assert len(first) == 1
    assert scores() == first, "unchanged: nothing to do"
    write_class(folder, "y.max()")
    both = scores()
    assert len(both) == 2
    assert both[0] == first[0] != both[1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "rank must be followed by the import path of a regressor, such as"),
        (["mdn"], "received mdn"),
        (["methods=mnd", "dataset=yacht"], "did you mean 'mdn'?"),
        (["methods=", "dataset=yacht"], "methods must be all, fast or names of methods, received nothing"),
        (["dataset=yacht", "limit.seconds=0"], "limit.seconds must be null or a positive number, received 0"),
        (["dataset=yacht", "limit.seconds=9", "engine=dask"], "limit must be left out unless engine=local"),
        (["at_hand.Missing"], "module 'at_hand' has no attribute 'Missing'"),
        (["at_hand.Constant", "method.params.depth=3"], "at_hand.Constant has no depth"),
    ],
)
def test_a_mistake_is_one_line(
    folder: Path, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rank", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
    assert not (folder / "results").exists()


def test_a_few_splits_are_ranked_among_the_stored_rows_of_the_same_splits(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rank", "at_hand.Constant", "dataset=yacht,boston", "splits=2,5", "workers=1"]) == 0
    output = capsys.readouterr().out
    stored = anchormoe.load_results()
    stored = stored[(stored.dataset == "yacht") & (stored.protocol == "clean") & (stored.ablation == "full")]
    splits = stored[(stored.seed == 1) & stored.split.isin([2, 5])].groupby("method").split.nunique()
    assert f"yacht: {sum(splits == 2) + 1} methods on the same 2 splits (2,5)" in output
    assert "Average rank by CRPS over 2 datasets" in output
    assert "ranked on 4 splits of 2 datasets; the whole comparison has 180" in " ".join(output.split())
    found = anchormoe.load_results()
    rows = found[(found.dataset == "yacht") & (found.method == "mdn") & found.split.isin([2, 5])]
    (line,) = [line.split() for line in output[: output.index("boston: ")].splitlines() if " mdn " in line]
    assert float(line[2]) == pytest.approx(rows.crps_y.mean(), abs=5e-3), "the mean over the same splits"


def test_several_methods_on_one_dataset_end_in_a_recommendation(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["rank", "at_hand.Constant", "methods=mdn,gbdt_homoscedastic", "dataset=yacht", "workers=1"]
    assert cli.main(arguments) == 0
    output = capsys.readouterr().out
    assert "yacht: 3 methods on the same 20 splits (1-20)" in output
    assert "gbdt_homoscedastic, CRPS 75.5 % below the next, mdn, p < 0.001" in output
    # The shipped rows of the two methods are not computed again.
    assert {row["method"] for row in store.read(folder / "results" / "ranking" / "yacht.jsonl")} == {"at_hand.Constant"}
    code = [line.strip() for line in output.splitlines() if line.startswith("    ") and "=" in line]
    assert code == [
        'X, y = anchormoe.load_dataset("yacht")',
        'model = anchormoe.MethodRegressor("gbdt_homoscedastic").fit(X, y)',
    ]


@pytest.mark.parametrize("method", ["gbdt_homoscedastic", "at_hand.Constant"])
def test_the_lines_that_fit_the_winner_run(folder: Path, method: str) -> None:
    place: dict[str, Any] = {}
    exec(fit_code(method, 'anchormoe.load_dataset("yacht")'), place)
    X, y, model = (place[name] for name in ("X", "y", "model"))
    assert list(X.columns)[-1] == "froude_number"
    assert model.predict_dist(X).mean.shape == y.shape
    low, high = model.predict_interval(X, 0.8).T
    assert 0.7 < ((low <= y) & (y <= high)).mean() <= 1
    assert model.predict(X[:3]).shape == (3,)


def test_the_method_by_its_name_takes_texts_and_gaps() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"size": rng.normal(size=90), "town": rng.choice(["Bonn", "Ulm", "Kiel"], 90)})
    y = X["size"] + X["town"].map({"Bonn": 0, "Ulm": 3, "Kiel": 6}) + 0.1 * rng.normal(size=90)
    X.loc[3, "size"] = np.nan
    X.loc[4, "town"] = None
    model = anchormoe.MethodRegressor("gamlss", rounds=5, penalties=[1.0]).fit(X, y)
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.95
    assert np.isfinite(model.predict(pd.DataFrame({"size": [0.0], "town": ["Jena"]}))).all()


def test_when_nothing_is_finished_the_answer_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "at_hand.py").write_text(CLASS.format(value="1 / 0"))
    sys.modules.pop("at_hand", None)
    assert cli.main(["rank", "dataset=yacht", "methods=at_hand.Constant", "splits=1", "workers=1"]) == 1
    output = capsys.readouterr().out
    assert "yacht: no method has finished a split" in output
    assert "No method has finished a split, so none can be recommended." in output
    assert "(0/0)" not in output


def test_the_answer_from_python(folder: Path) -> None:
    found = anchormoe.rank("yacht", methods=["mdn", "gbdt_homoscedastic"], splits=[1, 2, 3], workers=1)
    assert found.table.method.tolist() == ["gbdt_homoscedastic", "mdn"]
    assert found.table["rank"].tolist() == [1, 2]
    assert found.recommendation.startswith("gbdt_homoscedastic, CRPS")
    assert found.recommendation in " ".join(repr(found).split())
    assert "<td>gbdt_homoscedastic</td>" in found._repr_html_()


def test_lists_of_methods_and_a_list_of_the_users(folder: Path) -> None:
    assert "anchormoe_fast" in method_names("fast")
    assert set(method_names("fast")) <= set(method_names("all")) <= set(METHODS)
    (folder / "conf" / "methods").mkdir(parents=True)
    (folder / "conf" / "methods" / "mine.yaml").write_text("methods: [mdn, at_hand.Constant]\n")
    assert method_names("mine,gamlss") == ["mdn", "at_hand.Constant", "gamlss"]


def test_a_table_without_a_name_is_ranked_and_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": X[:, 0] + rng.normal(size=60)}).to_csv("plots.csv", index=False)
    methods = ["sklearn.linear_model.BayesianRidge", "at_hand.Constant"]
    found = anchormoe.rank("plots.csv", target="y", methods=methods, splits="1-5", workers=1)
    assert found.table.method.tolist() == methods
    assert found.table.density.tolist() == [None, "smoothed residuals"]
    assert "plots: 2 methods on the same 5 splits (1-5)" in repr(found)
    assert cli.main(["tables", "form=comparison", "results_dir=results"]) == 0
    output = capsys.readouterr().out
    assert "Plots" in output
    assert "From a smoothed density, because the method predicts none: at_hand.Constant." in output
    assert cli.main(["report", "results_dir=results", "output=plots.html"]) == 0
    assert found.recommendation.replace("'", "&#x27;") in (folder / "plots.html").read_text()


def mixed_table(num_rows: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    size = rng.normal(size=num_rows)
    table = pd.DataFrame({"size": size, "town": rng.choice(["Bern", "Genf", "Zug"], num_rows)})
    table["price"] = 3 * size + (table["town"] == "Zug") + 0.3 * rng.normal(size=num_rows)
    table.loc[[3, 8], "size"] = np.nan
    return table


def test_a_file_is_looked_at_ranked_and_its_winner_fitted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed_table().to_csv("houses.csv", index=False)
    command = [
        "rank",
        "data=houses.csv",
        "target=price",
        "methods=gbdt_homoscedastic,gamlss",
        "splits=1-3",
        "workers=1",
    ]
    assert cli.main(command) == 0
    output = capsys.readouterr().out
    assert "Preflight of houses" in output
    assert "1 numeric, 1 categorical" in output
    assert "houses: 2 methods on the same 3 splits (1-3)" in output
    stored = json.loads((folder / "results" / "ranking" / "houses.preflight.json").read_text())
    assert stored["rows"] == 80
    code = textwrap.dedent(output[output.index("    import anchormoe") :])
    place: dict[str, Any] = {}
    exec(code, place)
    assert place["model"].predict(place["X"]).shape == (80,)
    assert cli.main(command) == 0
    assert "6 of 6 splits are stored already" in capsys.readouterr().out


def test_a_frame_and_arrays_are_ranked(folder: Path) -> None:
    table = mixed_table()
    quick = {"methods": ["gamlss"], "splits": [1, 2], "workers": 1}
    by_target = anchormoe.rank(table, target="price", **quick)
    by_parts = anchormoe.rank(table[["size", "town"]], table["price"], **quick)
    assert by_target.rows["crps_y"].tolist() == by_parts.rows["crps_y"].tolist()
    assert by_target.code == 'import anchormoe\nmodel = anchormoe.MethodRegressor("gamlss").fit(X, y)'
    with pytest.raises(UserError, match="rank needs X and y, or a DataFrame and target=<column>"):
        anchormoe.rank(table)
