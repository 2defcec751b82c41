"""The help page of anchormoe-bench and its shell completion; neither needs Hydra."""

from __future__ import annotations

from anchormoe.config.compose import GROUPS, choices, schema_keys
from anchormoe.config.schema import JobConfig

_HELP = """anchormoe-bench: probabilistic regression of tables, around the Anchor-MoE paper

Ask it
  Does the paper hold?             anchormoe-bench check           (make reproduce-tables runs everything anew)
  Which component matters?         anchormoe-bench dataset=boston ablation=no_router
  Is my regressor better?          anchormoe-bench rank mypackage.MyRegressor
  Which methods lead?              anchormoe-bench tables form=comparison
  Can I look at it, and send it?   anchormoe-bench report          (one HTML file that needs no network)
  Which method for my table?       anchormoe-bench rank data=houses.csv target=price
  Which data, from where?          anchormoe-bench data
  What exactly is computed?        anchormoe-bench dataset=boston --cfg job

Commands
  anchormoe-bench [key=value ...]  run splits and show them beside the published ones (the default)
  anchormoe-bench rank CLASS       a regressor of yours on all nine datasets, among all methods (rank --help)
  anchormoe-bench rank dataset=X   several methods on one dataset: which to take, and how sure that is
  anchormoe-bench tables           the paper's tables and the comparison, from stored rows (tables --help)
  anchormoe-bench figures          all figures as SVG and PNG (figures --help)
  anchormoe-bench report           one HTML file with answers, figures, tables and all rows (report --help)
  anchormoe-bench check            compare stored rows with the published numbers (check --help)
  anchormoe-bench theory           simulate what the paper's theory claims, and say what holds (theory --help)
  anchormoe-bench data [add]       the datasets: where from, verified, hazards; a table of yours (data --help)

Examples
  anchormoe-bench dataset=wine anchor=gbdt splits=7
  anchormoe-bench dataset=boston,yacht ablation=full,no_router protocol=clean      (a comma runs every combination)
  anchormoe-bench dataset=boston method=anchormoe_fast protocol=clean
  anchormoe-bench dataset=boston method=sklearn.linear_model.Ridge method.params.alpha=3
  anchormoe-bench experiment=tables
  anchormoe-bench suite=extended method=xgboost_normal protocol=clean              (all datasets of a suite)

Choices
{choices}

Other keys
  splits=1-20     which splits: 7, 1-5 or 1,3,8-10
  seed=1          of every stream: outer and inner splits, initial weights, anchor
  predictions=on  keep what is predicted for every test row, as Parquet beside the rows (default: of your own data)
  workers=auto    processes of one thread each on this machine
  engine=dask engine.address=tcp://host:8786    a cluster computes: dask, ray or slurm (docs/scaling-out.md)
  limit.seconds=60  limit.memory_gb=4    what one fit may take on this machine; debug=on shows tracebacks
  results_dir=results  experiment_name=runs    where rows go: results/runs/<dataset>.jsonl
  model.*  train.*  anchor.*  crossfit.*  data.*  engine.*    see --cfg job

Shell completion: eval "$(anchormoe-bench completion)" (bash, or zsh after bashcompinit)"""

COMPLETION_SCRIPT = """_anchormoe_bench() {
  local IFS=$'\\n'
  COMP_WORDBREAKS=${COMP_WORDBREAKS//=/}
  COMPREPLY=($(anchormoe-bench completion "${COMP_WORDS[@]:1:COMP_CWORD}"))
  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -F _anchormoe_bench anchormoe-bench"""


def help_text() -> str:
    """Return the help page with the present choices of every config group."""
    lines = [f"  {group}: {', '.join(choices(group))}" for group in (*GROUPS, "suite")]
    return _HELP.replace("{choices}", "\n".join(lines))


def completions(words: list[str], commands: list[str], options: dict[str, list[str]]) -> list[str]:
    """Return the completions of the last word: commands, keys with their =, or values of a config group.

    `options` are the keys that a command takes; a command without keys of its own takes those of a run.
    """
    word = words[-1] if words else ""
    key, equals, value = word.partition("=")
    if equals:
        before, comma, last = value.rpartition(",")
        known = choices(key) if key in (*GROUPS, "suite") else []
        return [f"{key}={before}{comma}{choice}" for choice in known if choice.startswith(last)]
    keys = options.get(words[0], []) if len(words) > 1 else []
    if not keys:
        keys = [f"{name}=" for name in (*GROUPS, "suite", *schema_keys(JobConfig)) if name != "sweep"]
    first = commands if len(words) <= 1 else []
    return [candidate for candidate in (*first, *dict.fromkeys(keys)) if candidate.startswith(word)]
