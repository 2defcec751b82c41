"""The plan of the lab: every simulation of every study, from the values of conf/theory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anchormoe.errors import UserError
from anchormoe.paths import shipped
from anchormoe.theory.simulations import MEASURES, Simulation

STUDIES = tuple(MEASURES)
_CONTROLS = ("fixed", "proportional")
_CLAIMED = ("theory", "selected")  # rules of the claims; all others are controls
_MOST_CONTROL_ROWS = 2**14  # controls have every second number of rows up to here

_COST_DIMENSION = {"curve": 1.0, "sphere": 3.0}
Values = dict[Any, Any]


def sizes() -> list[str]:
    """Return the names of the plans."""
    return sorted(path.stem for path in (shipped("conf") / "theory").glob("*.yaml"))


def read_plan(size: str) -> Values:
    """Return the values of a plan."""
    from omegaconf import OmegaConf

    if size not in sizes():
        raise UserError(f"size must be one of {', '.join(sizes())}, received {size}")
    values: Any = OmegaConf.to_container(OmegaConf.load(shipped("conf") / "theory" / f"{size}.yaml"))
    return values


def simulations(plan: Values, studies: tuple[str, ...] = STUDIES) -> list[Simulation]:
    """Return the simulations of some studies."""
    for study in studies:
        if study not in STUDIES:
            raise UserError(f"study must be one of {', '.join(STUDIES)}, received {study}")
    return [
        Simulation(study, {**settings, "data": _described(settings)}, replicates, int(plan["seed"]), seconds)
        for study in studies
        for settings, replicates, seconds in _CELLS[study](plan, plan[study])
    ]


Cells = Iterator[tuple[Values, int, float]]  # settings, replicates, a guess of the seconds


def _described(settings: Values) -> str:
    names = ("problem", "table", "smoothness", "dimension", "relevant", "varied", "value", "experts", "num_rows")
    return " ".join(f"{name}={settings[name]}" for name in names if name in settings)


def _problem(plan: Values, problem: str, smoothness: float, dimension: int) -> Values:
    noise = float(plan["noise"][smoothness])
    cube = {"problem": problem, "smoothness": smoothness, "dimension": dimension}
    return {**cube, "noise": noise, "grid": int(plan["grid"])}


def _doubled(bounds: list[int]) -> list[int]:
    """Return the powers of 2 between two exponents."""
    return [2**exponent for exponent in range(bounds[0], bounds[1] + 1)]


def _curve(problem: Values, values: Values, kind: str, rule: str) -> Cells:
    """Yield a learning curve of arm 1, one cell for each number of rows.

    The guess of the seconds is the same for all estimators, so that those of the same rows follow one another.
    """
    count = int(values["replicates"])
    dimension = float(problem.get("lattice") or problem.get("relevant") or problem["dimension"])
    dimension = _COST_DIMENSION.get(problem["problem"], dimension)
    sizes = _doubled(values["rows"])
    for num_rows in sizes if rule in _CLAIMED else [size for size in sizes[::2] if size <= _MOST_CONTROL_ROWS]:
        seconds = count * (0.02 * dimension + num_rows / 200_000 * dimension**1.5)
        yield {**problem, "object": kind, "rule": rule, "num_rows": num_rows}, count, seconds


def _rates(plan: Values, values: Values) -> Cells:
    for smoothness in values["smoothness"]:
        rough = smoothness <= 1
        kinds = ("truncated_spline", "bump") if rough else ("truncated_spline", "bump", "spline", "linear_experts")
        controlled = ("truncated_spline",) if rough else ("spline", "linear_experts")
        for dimension in values["dimensions"]:
            problem = _problem(plan, "cube", smoothness, dimension)
            for kind in kinds:
                yield from _curve(problem, values, kind, "theory")
            for kind in controlled:
                for rule in _CONTROLS:
                    yield from _curve(problem, values, kind, rule)
            yield from _curve(problem, values, "smoother", "oracle")


def _lemmas(plan: Values, values: Values) -> Cells:
    count = int(values["replicates"])
    for dimension in values["dimensions"]:
        for experts in _doubled(values["experts"]):
            for smoothness in values["smoothness"]:
                for kind in ("truncated_spline", "bump", "spline"):
                    problem = _problem(plan, "cube", smoothness, dimension)
                    yield {**problem, "object": kind, "rule": "interpolation", "experts": experts}, count, 0.05 * count
            problem = _problem(plan, "cube", values["smoothness"][0], dimension)
            for kind in ("truncated_spline", "linear_experts"):
                yield {**problem, "object": kind, "rule": "estimation", "experts": experts}, count, 0.1 * count


def _manifold(plan: Values, values: Values) -> Cells:
    for smoothness in values["smoothness"]:
        for name in ("curve", "sphere"):
            dimensions = values[name]
            for dimension in dimensions:
                problem = _problem(plan, name, smoothness, dimension)
                yield from _curve({**problem}, values, "scattered", "theory")
            for rule in ("ambient", "fixed"):
                yield from _curve(_problem(plan, name, smoothness, max(dimensions)), values, "scattered", rule)


def _sparse(plan: Values, values: Values) -> Cells:
    for smoothness in values["smoothness"]:
        for relevant in values["relevant"]:
            for dimension in values["dimensions"]:
                problem = {**_problem(plan, "cube", smoothness, dimension), "relevant": relevant}
                yield from _curve(problem, values, "truncated_spline", "theory")
            smallest = min(values["dimensions"])
            # The control does not know that most coordinates do not matter.
            problem = {**_problem(plan, "cube", smoothness, smallest), "relevant": relevant, "lattice": smallest}
            yield from _curve(problem, values, "truncated_spline", "ambient")


def _selection(plan: Values, values: Values) -> Cells:
    for relevant in values["relevant"]:
        for dimension in values["dimensions"]:
            problem = _problem(plan, "cube", values["smoothness"], dimension)
            problem |= {"relevant": relevant, "noise": float(values["noise"])}
            yield from _curve(problem, values, "truncated_spline", "selected")


def _change_of_variables(plan: Values, values: Values) -> Cells:
    for smoothness in values["smoothness"]:
        for dimension in values["dimensions"]:
            for name in ("cube", "bi_lipschitz"):
                yield from _curve(_problem(plan, name, smoothness, dimension), values, "truncated_spline", "theory")
    # The control is not Lipschitz.
    yield from _curve(_problem(plan, "rough", max(values["smoothness"]), 1), values, "truncated_spline", "theory")


def _trained(plan: Values, values: Values) -> Cells:
    for smoothness, dimension in values["problems"]:
        problem = _problem(plan, "cube", smoothness, dimension)
        kinds = [("network", "eight"), ("network", "theory")]
        kinds += [("anchored_network", "eight")] if [smoothness, dimension] in values["anchored"] else []
        for exponent in range(values["rows"][0], values["rows"][1] + 1):
            count, num_rows = int(values["replicates"][exponent]), 2**exponent
            for kind, rule in kinds:
                settings = {**problem, "object": kind, "rule": rule, "num_rows": num_rows}
                yield settings, count, count * num_rows / 400


def _gap(plan: Values, values: Values) -> Cells:
    base, count, points = dict(values["base"]), int(values["replicates"]), int(values["points"])
    for varied in ("num_rows", "num_experts", "num_components", "hidden_dim", "router_dim", "top_k"):
        fixed = {**base, "num_experts": int(values["top_k_experts"])} if varied == "top_k" else base
        for value in values[varied]:
            settings = {**fixed, varied: value, "object": "network", "rule": varied, "varied": varied, "value": value}
            yield {**settings, "points": points}, count, count * settings["num_rows"] / 800
    for value in values["num_rows"]:
        settings = {"object": "memoriser", "rule": "num_rows", "varied": "num_rows", "value": value, "num_rows": value}
        yield {**settings, "points": points}, count, 1.0


def _link(plan: Values, values: Values) -> Cells:
    lowest, highest = values["scales"]
    fixed = {"smoothness": float(values["smoothness"]), "dimension": 1, "lowest": lowest, "highest": highest}
    for kind in ("gaussian", "known_scale", "overconfident", "network"):
        network = kind == "network"
        count = int(values["network_replicates" if network else "replicates"])
        for num_rows in _doubled(values["network_rows" if network else "rows"]):
            settings = {**fixed, "object": kind, "rule": "eight" if network else "theory", "num_rows": num_rows}
            yield {**settings, "grid": int(plan["grid"])}, count, count * num_rows / (400 if network else 20_000)


def _experts(plan: Values, values: Values) -> Cells:
    for table in values["tables"]:
        for rule in values["rules"]:
            settings = {"table": table, "object": "anchored_network", "rule": rule, "anchor": "xgboost"}
            count = int(values["splits"])
            yield {**settings, "most_rows": int(values["most_rows"])}, count, count * 4.0


_CELLS = {
    "rates": _rates,
    "lemmas": _lemmas,
    "manifold": _manifold,
    "sparse": _sparse,
    "selection": _selection,
    "change_of_variables": _change_of_variables,
    "trained": _trained,
    "gap": _gap,
    "link": _link,
    "experts": _experts,
}
