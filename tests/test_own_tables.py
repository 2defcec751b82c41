"""Tables as people have them: kinds of columns, gaps, groups, time, OpenML, DataFrames."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from data_files import excel_of

from anchormoe import cli
from anchormoe.commands.run import parse
from anchormoe.config.compose import suite_datasets
from anchormoe.data import openml
from anchormoe.data.catalogue import DatasetInfo, info
from anchormoe.data.containers import ContainerError
from anchormoe.data.dataset import load
from anchormoe.data.formats import read_table
from anchormoe.data.own import described, name_of, stored_frame
from anchormoe.data.splits import NUM_SPLITS, OuterSplit, Scheme
from anchormoe.data.table import Kind, content_sha256
from anchormoe.errors import UserError
from anchormoe.rows import Row
from anchormoe.running import store
from anchormoe.running.evaluate import evaluate
from anchormoe.running.identity import config_hash
from anchormoe.running.tasks import make_task


def houses(num_rows: int = 120) -> pd.DataFrame:
    """Make a table with numbers, truth values, dates, categories, free text, gaps and rows without a target."""
    stream = np.random.default_rng(0)
    area = stream.uniform(30, 200, num_rows).round(1)
    town = stream.choice(["Bonn", "Köln", "Aachen"], num_rows)
    frame = pd.DataFrame(
        {
            "area": np.where(np.arange(num_rows) % 7 == 0, np.nan, area),
            "garden": stream.random(num_rows) < 0.5,
            "sold": pd.date_range("2019-06-01", periods=num_rows, freq="3D").strftime("%Y-%m-%d"),
            "town": np.where(np.arange(num_rows) % 11 == 0, None, town),
            "owner": stream.choice([f"owner {n}" for n in range(30)], num_rows),
            "remark": [f"house number {n}" for n in range(num_rows)],
            "empty": np.nan,
            "price": (3 * area + 40 * (town == "Köln") + stream.normal(0, 5, num_rows)).round(2),
        }
    )
    frame.loc[[5, 17], "price"] = np.nan
    return frame


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    houses().to_csv("houses.csv", index=False)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_every_kind_of_column_becomes_numbers() -> None:
    dataset = load(described("houses.csv", "price"))
    frame = houses().dropna(subset="price")
    assert dataset.missing_targets == 2
    assert dataset.y.tolist() == frame.price.tolist()
    assert dataset.feature_names == (
        *("area", "garden", "sold (year)", "sold (month)", "sold (day)", "sold (weekday)", "town", "owner"),
    )
    assert set(dataset.left_out) == {"remark", "empty"}
    column = dict(zip(dataset.feature_names, dataset.X.T, strict=True))
    np.testing.assert_array_equal(column["area"], frame.area)
    assert column["garden"].tolist() == frame.garden.astype(float).tolist()
    dates = pd.to_datetime(frame.sold).dt
    for part in ("year", "month", "day", "weekday"):
        assert column[f"sold ({part})"].tolist() == getattr(dates, part).tolist()
    assert [dataset.feature_names[k] for k in dataset.categorical] == ["town", "owner"]
    assert dataset.levels[0] == ("Aachen", "Bonn", "Köln")
    shown = dataset.frame()
    assert shown.town.astype(object).where(shown.town.notna(), None).tolist() == frame.town.tolist()


@pytest.mark.parametrize(
    "data",
    [
        houses().to_csv(index=False).encode("utf-8-sig"),
        houses().to_csv(index=False, sep="\t").encode("utf-16"),
        houses().to_csv(index=False, sep=";", decimal=",").encode("cp1252"),
        houses().to_csv(index=False, sep="|", na_rep="?").encode(),
    ],
    ids=["UTF-8", "UTF-16 with tabs", "decimal comma", "question marks"],
)
def test_separator_and_encoding_are_found(data: bytes) -> None:
    plain = read_table(houses().to_csv(index=False).encode())
    assert read_table(data).sha256 == plain.sha256


def test_containers_agree() -> None:
    frame = houses()
    parquet = io.BytesIO()
    frame.assign(town=frame.town.astype("category"), sold=pd.to_datetime(frame.sold)).to_parquet(parquet)
    plain, other = read_table(frame.to_csv(index=False).encode()), read_table(parquet.getvalue())
    assert [(column.name, column.kind, column.levels) for column in other.columns] == [
        (column.name, column.kind, column.levels) for column in plain.columns
    ]
    np.testing.assert_array_equal(other.values, plain.values)


def test_kinds_that_text_hides() -> None:
    def kinds(*cells: str) -> list[Kind]:
        return [column.kind for column in read_table("\n".join(["x;y", *cells * 25]).encode()).columns]

    assert kinds("1,5;1.234", "2;5") == [Kind.numeric, Kind.numeric]
    assert kinds("true;yes", "false;no") == [Kind.boolean, Kind.categorical]
    assert kinds("13/02/2020;01/02/2020", "14/02/2020;02/01/2020") == [Kind.date, Kind.categorical]
    thousands = read_table(('x,y\n"1,234.5",1\n"12,345",2\n' * 1).encode())
    assert thousands.values[:, 0].tolist() == [1234.5, 12345.0]


def test_a_table_of_an_excel_sheet_is_the_same() -> None:
    numbers = np.arange(120.0).reshape(60, 2)
    assert content_sha256(read_table(excel_of(numbers, ("a", "b"))).values) == content_sha256(numbers)


@pytest.mark.usefixtures("folder")
def test_categories_that_look_like_numbers_are_named() -> None:
    frame = pd.DataFrame({"zone": np.tile([3, 1, 2], 20), "price": np.arange(60.0)})
    frame.to_csv("zones.csv", index=False)
    plain, named = (load(described("zones.csv", "price", categorical=names)) for names in ([], ["zone"]))
    assert (plain.categorical, named.categorical) == ((), (0,))
    assert plain.X[:3, 0].tolist() == [3, 1, 2]
    assert named.X[:3, 0].tolist() == [2, 0, 1]
    assert named.levels == ((1, 2, 3),)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("method", ["xgboost_normal", "gamlss"])
def test_a_mixed_table_is_evaluated(method: str) -> None:
    (job,) = parse([f"method={method}", "protocol=clean"])
    job.dataset = described("houses.csv", "price")
    row = evaluate(make_task(job.config(), 1))
    assert row["status"] == "ok", row
    assert (row["num_rows"], row["num_features"]) == (118, 8)
    assert "test_share" not in row


@pytest.mark.usefixtures("folder")
def test_data_add_makes_a_dataset_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "add", "houses.csv", "target=price", "groups=owner"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "118, 2 more dropped: they have no target" in output
    assert "remark: free text: 120 different values in 120 rows" in output
    assert Path("conf/dataset/houses.yaml").read_text() == (
        "name: houses\npath: houses.csv\ntarget: price\ngroups: owner\n"
    )
    assert cli.main(["data", "add", "houses.csv", "target=price", "groups=owner"]) == 0
    assert cli.main(["data", "add", "houses.csv", "target=area"]) == 2
    assert "exists and says something else" in capsys.readouterr().err
    run = ["dataset=houses", "method=sklearn.linear_model.BayesianRidge", "protocol=clean", "splits=1-2", "workers=1"]
    assert cli.main(run) == 0
    stored: list[Row] = store.read(Path("results/runs/houses.jsonl"))
    assert [row["split_scheme"] for row in stored] == ["groups", "groups"]
    assert all(0.02 < row["test_share"] < 0.25 for row in stored)
    assert cli.main(["data", "check", "houses"]) == 0


@pytest.mark.usefixtures("folder")
def test_the_identity_of_a_row_covers_kinds_and_scheme() -> None:
    def hash_of(**roles: object) -> str:
        (job,) = parse(["method=xgboost_normal", "protocol=clean"])
        job.dataset = described("houses.csv", "price", **roles)  # type: ignore[arg-type]
        return config_hash(job.config())

    assert hash_of() == hash_of()
    assert hash_of(time="sold") != hash_of()
    only = ["area", "garden"]  # the same features, other splits
    assert (
        len({hash_of(features=only), hash_of(features=only, groups="owner"), hash_of(features=only, time="sold")}) == 3
    )
    assert hash_of(features=only) != hash_of(features=only, categorical=["garden"])


def test_groups_stay_on_one_side() -> None:
    stream = np.random.default_rng(1)
    groups = stream.integers(0, 40, 500).astype(float)
    seen = set()
    for number in range(1, NUM_SPLITS + 1):
        split = OuterSplit(number, seed=1, scheme=Scheme.groups)
        train, test = split.rows(500, groups)
        assert sorted([*train, *test]) == list(range(500))
        assert not set(groups[train]) & set(groups[test])
        assert 25 <= len(test) <= 75
        seen.add(tuple(sorted(test)))
        assert split.rows(500, groups)[0].tolist() == train.tolist()
    assert len(seen) == NUM_SPLITS


def test_time_splits_train_on_the_past() -> None:
    stream = np.random.default_rng(1)
    time = stream.integers(0, 300, 1000).astype(float)
    last, tested = 0, []
    for number in range(1, NUM_SPLITS + 1):
        train, test = OuterSplit(number, seed=1, scheme=Scheme.time).rows(1000, time)
        assert time[train].max() < time[test].min()
        assert len(train) > last
        last = len(train)
        tested += test.tolist()
        assert len(test) <= 40
    assert len(set(tested)) == len(tested)
    assert set(tested) == set(np.flatnonzero(time >= time[tested].min()))
    assert 470 <= len(tested) <= 530


def fake_frame() -> pd.DataFrame:
    return pd.DataFrame({"town": pd.Categorical(["a", "b"] * 30), "price": np.arange(60.0)})


def test_openml_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(number: str) -> pd.DataFrame:
        asked.append(number)
        return fake_frame()

    monkeypatch.setenv("ANCHORMOE_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(openml, "_fetch", fetch)
    for _ in range(2):
        dataset = load(described("openml:531", "price"))
    assert (asked, dataset.name, dataset.levels) == (["531"], "openml_531", (("a", "b"),))
    (path,) = (tmp_path / "cache").iterdir()
    path.write_bytes(path.read_bytes()[:-10])  # a damaged copy is fetched again
    load(described("openml:531", "price"))
    assert asked == ["531", "531"]


def test_openml_without_a_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sklearn.datasets

    def no_network(**arguments: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setenv("ANCHORMOE_DATA", str(tmp_path))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", no_network)
    with pytest.raises(UserError, match="cannot get openml:531: ConnectionError no route; check the number"):
        described("openml:531", "price")
    assert list(tmp_path.iterdir()) == []


def test_a_dataframe_is_stored_by_its_content(tmp_path: Path) -> None:
    frame = houses()
    first = stored_frame(frame, target="price", folder=tmp_path)
    second = stored_frame(frame.drop(columns="price"), frame.price, folder=tmp_path)
    assert first.path == second.path
    assert first.name.startswith("table_")
    assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]
    assert load(first).feature_names[-1] == "owner"
    array = stored_frame(np.arange(120.0).reshape(60, 2), np.arange(60.0), folder=tmp_path)
    assert load(array).feature_names == ("x0", "x1")
    for X, y, target, message in (
        (frame, frame.price, "price", "received both or neither"),
        (frame, frame.price, None, "must not have a column named like the target"),
        (frame, None, "prize", "did you mean 'price'"),
        (frame, np.arange(3), None, r"y must have one number for each of the 120 rows of X, received \(3,\)"),
    ):
        with pytest.raises(UserError, match=message):
            stored_frame(X, y, target=target, folder=tmp_path)


def test_names_of_datasets() -> None:
    assert name_of("data/House prices.csv.gz") == "house_prices"
    assert name_of("openml:531") == "openml_531"


def test_a_suite_is_a_list_of_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf/suite").mkdir(parents=True)
    Path("conf/suite/small.yaml").write_text("datasets: [yacht, insurance]\n")
    names = suite_datasets("extended")
    assert len(names) == 10
    swept = parse(["experiment=extended", "method=xgboost_normal"])
    assert [job.dataset.name for job in swept] == names
    assert [job.dataset.name for job in parse(["suite=small", "method=xgboost_normal"])] == ["yacht", "insurance"]
    assert [job.dataset.name for job in parse(["experiment=extended", "method=mdn", "dataset=laser"])] == ["laser"]
    with pytest.raises(UserError, match="suite must be one of extended, published, small, received extendet"):
        parse(["suite=extendet"])


@pytest.mark.parametrize(
    ("name", "shape", "categories"),
    [
        ("airfoil", (1503, 5), ()),
        ("autoMPG6", (392, 5), ()),
        ("compactiv", (8192, 21), ()),
        ("puma32h", (8192, 32), ()),
        ("laser", (993, 4), ()),
        ("mortgage", (1049, 15), ()),
        ("real_estate_valuation", (414, 6), ()),
        ("insurance", (1338, 6), ("sex", "smoker", "region")),
        ("forestfires", (517, 12), ("month", "day")),
        ("electrical_grid_stability", (10000, 11), ()),
    ],
)
def test_the_tables_of_the_extended_suite(name: str, shape: tuple[int, int], categories: tuple[str, ...]) -> None:
    dataset = load(info(name))
    assert dataset.X.shape == shape
    assert tuple(dataset.feature_names[k] for k in dataset.categorical) == categories
    assert np.isfinite(dataset.X).all()
    assert info(name).licence
    assert info(name).citation


def test_a_description_with_both_schemes_is_refused() -> None:
    with pytest.raises(UserError, match="groups and time must not both be given"):
        DatasetInfo(name="a", path="a.csv", target="y", groups="g", time="t")


def test_the_content_hash_covers_the_levels(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("town,price\n" + "a,1\nb,2\n" * 30)
    before = load(described(str(path), "price")).sha256
    path.write_text("town,price\n" + "a,1\nc,2\n" * 30)
    assert load(described(str(path), "price")).sha256 != before


@pytest.mark.parametrize("names", [range(1, 121), [f"house {n}" for n in range(120)]], ids=["numbers", "texts"])
def test_names_of_rows_are_no_feature(names) -> None:
    """R and pandas write them as a first column without a name."""
    table = read_table(houses().set_axis(list(names)).to_csv().encode())
    assert table.names == list(houses().columns)


@pytest.mark.parametrize("values", [[n // 2 for n in range(120)], [n + 0.5 for n in range(120)]])
def test_a_first_column_without_a_name_that_cannot_be_names_is_refused(values) -> None:
    """Values that repeat name no rows, and numbers with fractions measure something."""
    with pytest.raises(ContainerError, match="every column must have a name, found none for column 1"):
        read_table(houses().set_axis(values).to_csv().encode())
