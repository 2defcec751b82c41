"""The command line as a user meets it: right answers, and one clear line with exit code 2 for every mistake."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import anchormoe
from anchormoe import cli
from anchormoe.commands.run import parse
from anchormoe.errors import UserError


def mistake(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must fail as the user's mistake, and return its one line."""
    assert cli.main(list(arguments)) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == 1
    assert "Traceback" not in captured.out + captured.err
    return lines[0]


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("dataset=bostn", "did you mean dataset=boston?"),
        ("ablation=no_ruter", "did you mean ablation=no_router?"),
        ("protocol=clear", "protocol must be one of clean, published, received clear"),
        ("modle.top_k=3", "did you mean model.top_k?"),
        ("model.topk=3", "did you mean model.top_k?"),
        ("+model.topk=3", "did you mean model.top_k?"),
        ("model.top_k=two", "model.top_k: Value 'two' of type 'str' could not be converted to Integer"),
        ("model.top_k=9", "model.top_k must be at most num_experts=8, received 9"),
        ("model.sigma_min=2", "model.sigma_min must be at most sigma_max=1.0, received 2.0"),
        ("model.router=foo", "expected one of [dot, cosine, none]"),
        ("train.epochs=0", "train.epochs must be positive and finite, received 0"),
        ("splits=21", "splits must be split numbers from 1 to 20"),
        ("splits=5-2", "splits must be split numbers from 1 to 20"),
        ("splits=x", "splits must be split numbers from 1 to 20"),
        ("workers=0", "workers must be auto or a positive number, received 0"),
        ("seed=-1", "seed must be"),
        ("dataset.variant=cooling", "unknown variant of dataset 'boston'"),
        ("anchor=sklearn.svm.NoSuch", "received sklearn.svm.NoSuch"),
        ("anchor=sklearn", "anchor.target"),
        ("splits=1,30", "splits must be split numbers from 1 to 20"),
        ("data.mirror=somewhere", "data.mirror must be used with data.source=download"),
        ("dataset.subsample=1000", "dataset.subsample must be null or from 30 to 506, received 1000"),
        ("experiment_name=../elsewhere", "experiment_name must be the name of a folder"),
        (
            "experiment_name=tables train.epochs=1",
            "crossfit, rivals, ingredients, extended take no settings",
        ),
        ("dataset=3", "received 3"),
        ("=3", "arguments must look like key=value"),
        ("dataset=boston model=crossfit", "model must be one of paper, published, received crossfit"),
        ("method=no_such_package.Regressor", "received no_such_package.Regressor: No module named"),
        ("anchor=no_such_package.Regressor", "received no_such_package.Regressor: No module named"),
        ("experiment=tabels", "did you mean experiment=tables?"),
        ("train.learning_rate=1e400", "train.learning_rate must be positive and finite, received inf"),
        ("dataset=grün", "received grün"),
        ("method=gbdt_homoscedastic method.params.stagse=3", "'stagse'"),
        ("table", "did you mean tables?"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(
    argument: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = mistake(capsys, *argument.split(), f"results_dir={tmp_path / 'results'}")
    assert expected in line
    assert not (tmp_path / "results").exists()


def test_an_unwritable_results_dir_is_found_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("not a folder")
    line = mistake(capsys, "dataset=yacht", f"results_dir={tmp_path / 'file'}")
    assert "results_dir must be a folder that can be written to" in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tables", "format=pdf"], "format must be one of"),
        (["tables", "what=1"], "options must be among"),
        (["check", "live=x"], "live must be a number of splits"),
        (["check", "live=99"], "live must be from 0 to"),
        (["check", "results_dir=nowhere"], "results_dir must be a folder"),
    ],
)
def test_mistakes_in_tables_and_check(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert expected in mistake(capsys, *arguments)


def test_help_shows_commands_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "anchormoe-bench dataset=boston ablation=no_router" in text
    assert "dataset: airfoil, autoMPG6, boston" in text
    assert text.splitlines()[2] == "Ask it"
    for command in ("rank", "tables", "check", "data"):
        assert f"anchormoe-bench {command}" in text
        assert cli.main([command, "--help"]) == 0


def test_cfg_job_shows_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["dataset=wine", "model.top_k=3", "--cfg", "job"]) == 0
    text = capsys.readouterr().out
    assert "name: wine" in text
    assert "top_k: 3" in text


def test_a_sweep_runs_every_combination_and_leaves_nothing_but_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["dataset=yacht,boston", "ablation=full,no_anchor", "anchor=ridge", "train.epochs=2"]
    assert cli.main([*arguments, "splits=1", "workers=1"]) == 0
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["results/runs/boston.jsonl", "results/runs/yacht.jsonl"]
    output = " ".join(capsys.readouterr().out.split())
    for dataset in ("yacht", "boston"):
        for ablation in ("full", "no_anchor"):
            assert f"{dataset} (standard), anchormoe {ablation}, protocol published" in output
    assert "CRPS (y)" in output
    assert "SE" in output


@pytest.mark.parametrize("position", [0, 1, 2])
def test_the_sweep_flag_may_stand_anywhere(position: int) -> None:
    arguments = ["dataset=yacht,boston", "ablation=full,no_cal"]
    arguments.insert(position, "-m")
    assert len(parse(arguments)) == 4


def test_an_anchor_by_its_import_path(tmp_path: Path) -> None:
    rows = anchormoe.run(
        "anchor=sklearn.linear_model.BayesianRidge",
        **{"dataset": "yacht", "train.epochs": 2, "splits": "1-2", "workers": 1, "results_dir": tmp_path},
    )
    assert list(rows.split) == [1, 2]
    assert set(rows.anchor) == {"sklearn.linear_model.BayesianRidge"}
    assert set(anchormoe.load_results(str(tmp_path)).split) == {1, 2}


def test_reading_rows_needs_no_torch() -> None:
    modules = ", ".join(f"anchormoe.commands.{name}" for name in ("tables", "check", "data", "help"))
    code = (
        f"import sys, {modules}; sys.exit(any(name in sys.modules for name in ('torch', 'numba', 'hydra', 'xgboost')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- what people type


@pytest.mark.parametrize("argument", ["dataset=[boston,yacht]", "dataset=boston,yacht"])
def test_a_list_of_datasets_is_a_sweep(argument: str) -> None:
    assert [job.dataset.name for job in parse([argument])] == ["boston", "yacht"]


def test_names_and_import_paths_may_be_swept_together() -> None:
    swept = parse(["method=mdn,sklearn.linear_model.Ridge,sklearn.svm.SVR", "dataset=boston,yacht"])
    found = [(job.dataset.name, job.method.target or job.method.name) for job in swept]
    methods = ("mdn", "sklearn.linear_model.Ridge", "sklearn.svm.SVR")
    assert found == [(dataset, method) for method in methods for dataset in ("boston", "yacht")]


@pytest.mark.parametrize("plus", ["", "+"])
def test_parameters_of_a_method_or_an_anchor_need_no_plus(plus: str) -> None:
    (job,) = parse(["method=sklearn.linear_model.Ridge", f"{plus}method.params.alpha=3"])
    assert job.method.params == {"alpha": 3}
    swept = parse(["method=sklearn.linear_model.Ridge", f"{plus}method.params.alpha=1,3"])
    assert [job.method.params for job in swept] == [{"alpha": 1}, {"alpha": 3}]
    (job,) = parse(["anchor=sklearn.linear_model.Ridge", f"{plus}anchor.params.alpha=3"])
    assert job.anchor.params == {"alpha": 3}


def test_values_may_be_of_any_alphabet() -> None:
    (job,) = parse(["results_dir=Ergebnisse für später"])
    assert job.results_dir == "Ergebnisse für später"


def test_an_instance_in_a_file_at_hand_is_a_regressor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_pipeline.py").write_text(
        "from sklearn.linear_model import Ridge\n"
        "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler\n"
        "model = make_pipeline(StandardScaler(), Ridge())\n"
    )
    arguments = ["dataset=yacht", "splits=1", "workers=1", "protocol=clean"]
    for setting in ("method=my_pipeline.model", "anchor=my_pipeline.model"):
        assert cli.main([*arguments, setting, "train.epochs=2"]) == 0
    assert cli.main([*arguments, "method=my_pipeline.model", "method.params.ridge__alpha=5"]) == 0


def test_python_lists_are_lists_of_the_command_line(tmp_path: Path) -> None:
    rows = anchormoe.run(
        dataset=["yacht", "boston"],
        method="sklearn.linear_model.Ridge",
        splits=[1, 3],
        workers=1,
        results_dir=tmp_path,
        **{"dataset.variant": None},
    )
    assert list(zip(rows.dataset, rows.split, strict=True)) == [
        ("yacht", 1),
        ("yacht", 3),
        ("boston", 1),
        ("boston", 3),
    ]


def test_a_mistake_in_python_is_one_error_and_leaves_the_process_as_it_was() -> None:
    before = dict(os.environ), list(sys.argv)
    with pytest.raises(UserError, match="did you mean dataset=boston") as raised:
        anchormoe.run(dataset="bostn")
    assert raised.value.__suppress_context__
    assert raised.value.__cause__ is None
    assert (dict(os.environ), list(sys.argv)) == before


def test_completion_knows_commands_keys_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    def completed(*words: str) -> list[str]:
        assert cli.main(["completion", *words]) == 0
        return capsys.readouterr().out.split()

    assert {"rank", "run", "report", "results_dir="} == set(completed("r"))
    assert completed("ta") == ["tables"]
    assert completed("dataset=bo") == ["dataset=boston"]
    assert completed("dataset=boston,ya") == ["dataset=boston,yacht"]
    assert completed("dataset=boston", "abl") == ["ablation="]
    assert completed("tables", "fo") == ["format=", "form="]
    assert completed("check", "live") == ["live="]


def test_the_completion_script_is_bash(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion"]) == 0
    script = capsys.readouterr().out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


# --- rows of one's own beside the shipped ones


def test_a_first_run_elsewhere_leaves_the_shipped_rows_in_sight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    quick = ["dataset=yacht", "anchor=ridge", "train.epochs=2", "splits=1", "workers=1"]
    assert cli.main(quick) == 0
    capsys.readouterr()
    assert cli.main(["tables", "form=comparison", "format=md"]) == 0
    assert "Anchor-MoE, cross-fitted" in capsys.readouterr().out
    assert cli.main(["tables", "format=md"]) == 0
    assert "no finished split is stored" not in capsys.readouterr().out
    assert cli.main(["check", "live=0"]) == 0
    assert "0 missing" in capsys.readouterr().out


def test_a_folder_that_is_named_is_read_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").mkdir()
    assert cli.main(["check", "live=0", f"results_dir={tmp_path}"]) == 1
    assert "nothing to compare" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["tables", "form=comparison", "format=md", f"results_dir={tmp_path}"]) == 0


@pytest.mark.parametrize("format", ["rich", "md"])
def test_a_reader_that_has_enough_is_no_traceback(format: str) -> None:
    """As with `anchormoe-bench tables | head`."""
    command = [sys.executable, "-m", "anchormoe.cli", "tables", "form=published", f"format={format}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
