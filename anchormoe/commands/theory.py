"""The command `anchormoe-bench theory`: simulate what the paper's theory claims, and say what holds."""

from __future__ import annotations

import pandas as pd

from anchormoe.commands.options import wide_console
from anchormoe.commands.run import Circumstances, report_failures, run_tasks
from anchormoe.errors import UserError

HELP = """anchormoe-bench theory [study=NAME,...] [size=full|quick] [results_dir=FOLDER] [workers=auto] [engine=NAME]

Tests the paper's rates, the K they suggest, the CRPS gap and the NLL-L2 link by simulation, and prints the verdicts.
Rows go to results_dir/theory; what is stored is not computed again, and Ctrl-C stops. size=full takes about an hour and
a half on two cores, size=quick two minutes. engine= and its keys are those of a run."""

_OWN = ("study", "size")
_OF_A_RUN = ("results_dir", "workers", "engine")


def main(arguments: list[str]) -> int:
    """Run the command."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    from anchormoe.config.compose import jobs
    from anchormoe.config.schema import THEORY_EXPERIMENT
    from anchormoe.report.theory import terminal
    from anchormoe.running import store
    from anchormoe.running.driver import StoredTask
    from anchormoe.theory import plan
    from anchormoe.theory.simulations import evaluate

    own, of_a_run = _parted(arguments)
    (job,) = jobs(of_a_run)
    studies = tuple(own["study"].split(",")) if "study" in own else plan.STUDIES
    wanted = plan.simulations(plan.read_plan(own.get("size", "full")), studies)
    tasks = [StoredTask(task, store.path_for(job.results_dir, THEORY_EXPERIMENT, task.study)) for task in wanted]
    console = wide_console()
    rows = pd.DataFrame(run_tasks(tasks, evaluate, Circumstances(job.engine, job.num_workers()), console))
    console.print(terminal(rows[rows["status"] == "ok"]))
    return report_failures(rows, console)


def _parted(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the command's own options, and those that it has in common with a run."""
    own, of_a_run = {}, []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key in _OWN:
            own[key] = value
        elif equals and key.split(".")[0] in _OF_A_RUN:
            of_a_run.append(argument)
        else:
            names = ", ".join(f"{name}=" for name in (*_OWN, *_OF_A_RUN))
            raise UserError(f"options must be among {names}, received {argument}")
    return own, of_a_run
