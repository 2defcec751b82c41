"""The command `anchormoe-bench rank`: run regressors and say which is best, on the nine datasets or on yours."""

from __future__ import annotations

import dataclasses
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from anchormoe.commands.options import wide_console
from anchormoe.commands.own_data import loading_call, own_dataset
from anchormoe.commands.preflight import preflight_path, show_preflight
from anchormoe.commands.rows import comparison_rows, stored_rows
from anchormoe.commands.run import parse, report_failures, run_jobs
from anchormoe.config.compose import choices
from anchormoe.config.schema import NUM_SPLITS, RANKING_EXPERIMENT, JobConfig
from anchormoe.data.catalogue import DatasetInfo, is_shipped, raise_unknown
from anchormoe.data.own import described, stored_frame
from anchormoe.distributions.scores import METRICS
from anchormoe.errors import UserError
from anchormoe.methods import METHODS
from anchormoe.paths import shipped
from anchormoe.report import comparison, published, ranking_text
from anchormoe.report.ranking import Ranking, rank_methods

HELP = """anchormoe-bench rank package.module.Class [method.params.NAME=VALUE ...] [workers=auto] [engine=local]
                     [dataset=NAME,...] [splits=1-20] [results_dir=results]
anchormoe-bench rank data=FILE target=COLUMN [methods=fast|all|NAME,NAME,package.module.Class,...] [groups=COLUMN]
                     [time=COLUMN] [categorical=COLUMNS] [features=COLUMNS] [limit.seconds=N] [limit.memory_gb=N]
anchormoe-bench rank dataset=NAME [methods=...] [limit.seconds=N] [limit.memory_gb=N] [debug=on]

The first form runs a regressor of yours on the nine datasets, 20 splits each, and ranks it among all methods that were
run; on fewer datasets or splits it is ranked on these. The others run several methods on a table of yours, or on a
dataset by its name, and say which to take and how sure that is. Stop it and the same command goes on. The file of a
class may lie in this folder. The table: docs/your-data.md. What the class must have: docs/your-method.md"""

DEFAULT_METHODS = "fast"


def main(arguments: list[str]) -> int:
    """Run the command."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    dataset, others = own_dataset(arguments)
    paths, methods, settings = _sorted_out(others, has_table=dataset is not None)
    console = wide_console()
    jobs = ranking_jobs([*paths, *methods], settings, None if dataset is None else [dataset])
    if methods:
        look_at_own_tables(jobs, console)
        result = rank_jobs(jobs, console, load="" if dataset is None else loading_call(dataset))
        console.print(result, crop=False)  # lines of code stay whole
        return 0 if (result.rows["status"] == "ok").all() else 1
    return _rank_among_stored(paths[0], jobs, console)


def look_at_own_tables(jobs: Sequence[JobConfig], console: Console) -> None:
    """Print and store the preflight of every dataset of the user's, before anything is fitted."""
    datasets = {job.dataset.name: job.dataset for job in jobs if not is_shipped(job.dataset)}
    for name, dataset in datasets.items():
        show_preflight(dataset, console, preflight_path(jobs[0].results_dir, RANKING_EXPERIMENT, name))


def _sorted_out(arguments: Sequence[str], *, has_table: bool) -> tuple[list[str], list[str], list[str]]:
    """Return the import paths of regressors, the methods beside them, and the settings of a command line."""
    paths = [word for word in arguments if "=" not in word]
    named = [word.partition("=")[2] for word in arguments if word.startswith("methods=")]
    settings = [word for word in arguments if "=" in word and not word.startswith("methods=")]
    wrong = next((path for path in paths if "." not in path), None)
    is_known = has_table or any(word.partition("=")[0] in ("dataset", "suite", "method.target") for word in settings)
    if wrong is not None or not (paths or named or is_known):
        raise UserError(
            "rank must be followed by the import path of a regressor, such as sklearn.linear_model.BayesianRidge, by "
            f"data= and target=, by dataset= or by methods=, received {wrong or ' '.join(settings) or 'nothing'}"
        )
    if named or has_table or not paths:
        return paths, method_names(named[-1] if named else DEFAULT_METHODS), settings
    if len(paths) > 1:
        return [], paths, settings
    return paths, [], settings


def method_names(wanted: str | Sequence[str]) -> list[str]:
    """Return the methods that `methods=` asks for: a list by its name (conf/methods), or names and import paths."""
    names = wanted.strip("[]").split(",") if isinstance(wanted, str) else list(wanted)
    lists = choices("methods")
    found: list[str] = []
    for name in filter(None, (name.strip() for name in names)):
        if name in lists:
            found += _list_of_methods(name)
        elif name in METHODS or "." in name:
            found.append(name)
        else:
            raise_unknown("method", name, [*lists, *METHODS, "package.module.Class"])
    if not found:
        raise UserError(f"methods must be {', '.join(lists)} or names of methods, received {wanted or 'nothing'}")
    return list(dict.fromkeys(found))


def _list_of_methods(name: str) -> list[str]:
    paths = [folder / "methods" / f"{name}.yaml" for folder in (Path("conf"), shipped("conf"))]
    content = yaml.safe_load(next(path for path in paths if path.is_file()).read_text(encoding="utf-8"))
    return [str(method) for method in content["methods"]]


def ranking_jobs(
    methods: Sequence[str], settings: Sequence[str], datasets: Sequence[DatasetInfo] | None = None
) -> list[JobConfig]:
    """Return the configurations of methods; `datasets` are used in place of those that the settings name."""
    stand_in = [] if datasets is None else ["dataset=boston"]
    jobs = []
    for method in methods:
        # The paper's recipe is compared with the anchor that its rows of protocol=clean have.
        anchor = ["anchor=trees"] if method == "anchormoe" else []
        mine = settings if "." in method else [item for item in settings if not item.startswith("method.params")]
        jobs += parse([f"experiment={RANKING_EXPERIMENT}", f"method={method}", *anchor, *mine, *stand_in])
    if datasets is None:
        return jobs
    return [dataclasses.replace(job, dataset=dataset) for dataset in datasets for job in jobs]


@dataclasses.dataclass(frozen=True)
class RankResult:
    """The answer: which method is best on each dataset.

    rankings: by dataset. rows: all splits behind them. code: the lines of Python that fit the winner on all rows.
    """

    rankings: tuple[Ranking, ...]
    rows: pd.DataFrame
    code: str

    @property
    def table(self) -> pd.DataFrame:
        """Return the table of all datasets, a row per method."""
        return pd.concat(
            [ranking.table.assign(dataset=ranking.dataset) for ranking in self.rankings], ignore_index=True
        )

    @property
    def recommendation(self) -> str:
        """Return the sentence that says which method to take; with several datasets, one sentence for each."""
        if len(self.rankings) == 1:
            return self.rankings[0].recommendation
        return "\n".join(f"{ranking.dataset}: {ranking.recommendation}" for ranking in self.rankings)

    def __rich_console__(self, console: Console, options: Any) -> Any:
        for ranking in self.rankings:
            yield ranking_text.to_rich(ranking, width=options.max_width)
        if len(self.rankings) > 1:
            yield ranking_text.averages_to_rich(self.rankings)
        if self.code:
            yield Text("\nFit it on all rows:\n")
            yield Text("\n".join(f"    {line}" for line in self.code.splitlines()), no_wrap=True, overflow="ignore")

    def __repr__(self) -> str:
        console = Console(width=100, file=io.StringIO(), color_system=None)
        with console.capture() as captured:
            console.print(self, crop=False)
        return captured.get().rstrip()

    def _repr_html_(self) -> str:
        parts = [ranking_text.to_html(ranking) for ranking in self.rankings]
        return "".join(parts) + (f"<pre>{html.escape(self.code)}</pre>" if self.code else "")


def rank_jobs(jobs: Sequence[JobConfig], console: Console, *, load: str | None = "") -> RankResult:
    """Run what is not stored yet and compare the methods of the jobs on each dataset.

    load: the call that returns X and y in the lines of Python; by default that of the dataset by its name.
    """
    for job in jobs:
        if len(job.dataset.choose_variant()[1].targets) > 1:
            raise UserError(
                f"rank needs a dataset of one target, received {job.dataset.name!r} with several: "
                "use anchormoe-bench experiment=several_targets"
            )
    known = _known_rows(jobs)
    rows = run_jobs(jobs, console, known=known, show_estimates=True)
    report_failures(rows, console, debug=jobs[0].debug)
    datasets = list(dict.fromkeys(job.dataset.name for job in jobs))
    rankings = tuple(rank_methods(rows, name, protocol=jobs[0].protocol.name, seed=jobs[0].seed) for name in datasets)
    code = ""
    if len(rankings) == 1 and rankings[0].best is not None:
        winner = rankings[0].best.method
        (job, *_) = [job for job in jobs if winner in (job.method.name, job.method.target)]
        load = f'anchormoe.load_dataset("{datasets[0]}")' if load == "" else load
        code = ranking_text.fit_code(winner, load, job.method.params)
    return RankResult(rankings, rows, code)


def rank_table(
    data: Any,
    y: Any,
    target: str | None,
    roles: dict[str, Any],
    methods: str | Sequence[str],
    settings: Sequence[str],
) -> RankResult:
    """Rank methods on what `anchormoe.rank` was given; docs of its arguments are there."""
    names, console = method_names(methods), Console()
    load: str | None = ""
    is_name = isinstance(data, str) and target is None
    if is_name or (isinstance(data, list | tuple) and data and all(isinstance(name, str) for name in data)):
        if y is not None or roles:
            raise UserError(f"y, groups, time, categorical and features need a table, received the dataset {data!r}")
        jobs = ranking_jobs(names, [f"dataset={data if is_name else ','.join(data)}", *settings])
    elif isinstance(data, str):
        dataset = described(data, str(target), **roles)
        jobs, load = ranking_jobs(names, settings, [dataset]), loading_call(dataset)
    else:
        folders = [setting.partition("=")[2] for setting in settings if setting.startswith("results_dir=")]
        local = [folder for folder in folders if "://" not in folder]  # a table is read from a file of this machine
        dataset = stored_frame(data, y, target=target, folder=Path(*local[-1:] or ["results"], "tables"), **roles)
        jobs, load = ranking_jobs(names, settings, [dataset]), None
    look_at_own_tables(jobs, console)
    return rank_jobs(jobs, console, load=load)


def _known_rows(jobs: Sequence[JobConfig]) -> list[dict[str, Any]]:
    """Return the shipped rows of the jobs' datasets, which need not be computed again."""
    from anchormoe.config.schema import EXTENDED_EXPERIMENT, TABLE_EXPERIMENTS
    from anchormoe.running import store

    names, experiments = {job.dataset.name for job in jobs}, (*TABLE_EXPERIMENTS, EXTENDED_EXPERIMENT)
    paths = [store.path_for(shipped("results"), experiment, name) for experiment in experiments for name in names]
    return [row for path in paths for row in store.read(path)]


def _rank_among_stored(path: str, jobs: Sequence[JobConfig], console: Console) -> int:
    """Run one regressor and rank it among all stored methods, on the splits that it has."""
    own = run_jobs(jobs, console)
    exit_code = report_failures(own, console, debug=jobs[0].debug)
    rows = comparison_rows(stored_rows(jobs[0].results_dir, beside_shipped=True))
    compared = comparison.Comparison(rows)
    means = {metric.name: compared.means(metric.name) for metric in compared.ranked()}
    splits = {job.dataset.name: job.split_numbers() for job in jobs}
    everything = set(splits) == set(published.DATASETS) and all(len(one) == NUM_SPLITS for one in splits.values())
    if everything and path in compared.means("nll_y"):
        ranks = {metric: of_methods.rank(axis=1) for metric, of_methods in means.items()}
        console.print(average_ranks(ranks, path))
        console.print(by_dataset(means, ranks, path))
        console.print("Standard errors and paired tests: anchormoe-bench tables form=comparison", highlight=False)
        return exit_code
    others = rows[rows["method"] != path]
    rankings = [_on_its_splits(name, path, own, others, jobs[0]) for name in splits]
    found = [ranking for ranking in rankings if ranking is not None]
    for ranking in found:
        console.print(ranking_text.to_rich(ranking, width=console.width, highlight=path))
        console.print()
    if len(found) > 1:
        console.print(ranking_text.averages_to_rich(found))
    count = sum(len(ranking.splits) for ranking in found)
    total = NUM_SPLITS * len(published.DATASETS)
    console.print(
        f"{path} is ranked on {count} split{'' if count == 1 else 's'} of {len(found)} "
        f"dataset{'' if len(found) == 1 else 's'}; the whole comparison has {total}: leave out splits= and dataset=",
        highlight=False,
    )
    return exit_code


def _on_its_splits(dataset: str, path: str, own: pd.DataFrame, others: pd.DataFrame, job: JobConfig) -> Ranking | None:
    """Rank a regressor on one dataset among the stored rows of the same data and the same splits."""
    mine = own[(own["dataset"] == dataset) & (own["status"] == "ok")]
    if mine.empty:
        return None
    same = others[(others["dataset"] == dataset) & (others["data_sha256"] == mine["data_sha256"].iloc[0])]
    same = same[same["variant"] == mine["variant"].iloc[0]]
    rows = pd.concat([part.dropna(axis=1, how="all") for part in (mine, same) if len(part)], ignore_index=True)
    splits = sorted(int(split) for split in mine["split"])
    return rank_methods(rows, dataset, splits=splits, protocol=job.protocol.name, seed=job.seed)


def average_ranks(ranks: dict[str, pd.DataFrame], path: str) -> Table:
    """Write the average ranks over the nine datasets."""
    average = pd.DataFrame({metric: of_datasets.mean() for metric, of_datasets in ranks.items()})
    table = Table(
        title=f"Average rank over {len(published.DATASETS)} datasets, 1 is best",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    table.add_column("method")
    for metric in ranks:
        table.add_column(METRICS[metric].label, justify="right")
    for method, values in average.loc[average.mean(axis=1).sort_values(kind="stable").index].iterrows():
        style = "bold" if method == path else ""
        table.add_row(comparison.heading(str(method)), *(f"{value:.1f}" for value in values), style=style)
    return table


def by_dataset(means: dict[str, pd.DataFrame], ranks: dict[str, pd.DataFrame], path: str) -> Table:
    """Write the means and ranks of one regressor, a line per dataset."""
    table = Table(title=f"{path}: mean in original units, rank", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("dataset")
    for metric in ranks:
        table.add_column(METRICS[metric].label, justify="right")
        table.add_column("rank", justify="right")
    for dataset in published.DATASETS:
        cells = [(f"{means[metric][path][dataset]:.4g}", f"{ranks[metric][path][dataset]:.0f}") for metric in ranks]
        table.add_row(dataset, *(text for pair in cells for text in pair))
    return table
