"""All figures of the project by name, each with a caption that says how to read it.

They are drawn from stored rows and stored arrays. matplotlib comes with the extra `plots`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anchormoe.errors import UserError
from anchormoe.report import figure_data, published
from anchormoe.report.cells import StoredRuns
from anchormoe.report.check import check
from anchormoe.report.comparison import heading
from anchormoe.report.figures import across, dataset, paper, published_numbers, resolution, theory
from anchormoe.report.figures.style import house_style, require_libraries
from anchormoe.report.selection import Selection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Drawn",
    "across_figures",
    "answer_figures",
    "dataset_figures",
    "house_style",
    "paper_figures",
    "theory_figures",
]


@dataclass(frozen=True)
class Drawn:
    """A figure with its name (a path below the output folder, without suffix), title and caption."""

    name: str
    title: str
    caption: str
    figure: Figure


def answer_figures(selection: Selection) -> Iterator[Drawn]:
    """Draw the three pictures that answer first: for the paper's rows reproduction, units and gain, else ranks."""
    require_libraries()
    if selection.paper:
        yield Drawn(
            "reproduction",
            "What reproduces",
            "Each mark is one published mean (NLL or RMSE of one run on one dataset). Inside the grey band ours "
            "differs by less than one published standard error; marks at the edge are further away than three. A mean "
            "further out agrees if its splits scatter so much around the published ones that a paired test cannot tell "
            "the two apart.",
            published_numbers.reproduction(check(selection.table_rows)),
        )
        yield Drawn(
            "units",
            "What the units hide",
            "The paper subtracts an NLL of the z-scored target from an NLL in original units (squares). In one "
            "unit (circles) the "
            "large wins vanish. ¹ The paper’s Kin8nm row is a mixture of kernel ridge regressions, not Anchor-MoE.",
            published_numbers.units(),
        )
    yield from _if_possible(
        "skill",
        "What the leading recipe gains",
        "Gain over the single baseline with the best average rank. Grey ticks: the best baseline of each dataset, "
        "chosen "
        "with hindsight. The NLL axis is linear up to 1 and logarithmic beyond.",
        lambda: across.skill(selection.compared),
    )


def across_figures(selection: Selection) -> Iterator[Drawn]:
    """Draw the figures across datasets that the rows allow."""
    require_libraries()
    for metric in selection.compared.ranked():
        yield from _if_possible(
            f"ranks_{metric.name}",
            f"Average ranks by {metric.label}",
            "Critical-difference diagram: dot = average rank, ticks = ranks on single datasets, bar = Nemenyi's "
            "critical "
            "distance. Bars that do not overlap are told apart at 5%; the band marks what is not told from the "
            "leader.",
            functools.partial(across.critical_difference, selection.compared, metric.name),
        )
    for metric in selection.compared.ranked():
        yield from _if_possible(
            f"heat_map_{metric.name}",
            f"Ranks by {metric.label} on every dataset",
            "Dark is good. Methods in the order of their average rank, which stands behind the name.",
            functools.partial(across.rank_heat_map, selection.compared, metric.name),
        )
    yield from _if_possible(
        "accuracy_and_time",
        "Accuracy and cost",
        "Seconds are those stored with the rows, wall-clock times of busy cores: they compare roughly."
        if selection.paper
        else "Seconds are those stored with the rows.",
        lambda: across.accuracy_and_time(selection.compared),
    )
    if selection.compared.methods:
        counted = across.most_counted(selection.compared)
        yield from _if_possible(
            "pit",
            f"Calibration of {heading(counted)}",
            "Where the test targets fall in their predicted distributions, each row once. Flat is calibrated: a hump "
            "means too wide, a bowl too narrow, a slope biased.",
            lambda: across.pit_histograms(selection.compared, counted),
        )
    if selection.paper:
        yield Drawn(
            "resolution",
            "What a target recorded in steps can tell",
            "Left: two densities of a whole grade, and the cell that this grade stands for. Right: the NLL falls "
            "without end as the density narrows, the NLL at the data's resolution stops at the logarithm of the step.",
            resolution.resolution(),
        )
    if (selection.rows["experiment"] == "ingredients").any():
        yield Drawn(
            "ingredients",
            "What each ingredient buys",
            "NLL in original units after each step from the published recipe to the cross-fitted one, mean ± "
            "standard error "
            "over the splits that all steps have.",
            across.what_ingredients_buy(selection.ingredient_rows),
        )


def theory_figures(selection: Selection) -> Iterator[Drawn]:
    """Draw what the simulations of the theory found, one figure for each theorem."""
    require_libraries()
    for name, title, caption, draw in theory.drawings(selection.theory):
        yield Drawn(name, title, caption, draw())


def paper_figures() -> Iterator[Drawn]:
    """Draw the paper's four figures, those of them whose arrays are stored."""
    require_libraries()
    yield Drawn(
        "paper/1_architecture",
        "Figure 1: the architecture",
        "The published runs choose experts in a latent plane by the product of windows and router. The anchor is "
        "also a "
        "column of x. Training uses the NLL, never the CRPS that the paper's picture names beside it.",
        paper.architecture(),
    )
    drawings = (
        (
            "interval",
            "2_interval",
            "Figure 2: one-dimensional toy",
            "Data, predicted mean and 95% band. The authors' x values are lost: here 330 evenly spaced points on "
            "[-2, 2], which "
            "give as many points in view and the same range of targets as their picture. All other constants are "
            "theirs.",
            paper.interval,
        ),
        (
            "field",
            "3_gradient_field",
            "Figure 3: scoring rules and their gradients",
            "Mean score of one Normal for 700 toy points (dark is low, star = minimum) and minus its gradient; "
            "arrow lengths are "
            "square roots. The CRPS arrows use the right derivative, 2φ(z) − 1/√π; the authors' cell also subtracts "
            "z(2Φ(z) − 1). Rows differ, although the paper's caption calls the landscapes identical.",
            paper.gradient_field,
        ),
        (
            "dynamics",
            "4_learning_dynamics",
            "Figure 4: learning dynamics",
            "Mean and 95% band at 0, 33, 67 and 100% of 300 epochs. At 0% the lower line shows the anchored "
            "model's own initial "
            "state, which already follows the anchor; the authors drew the upper panel twice.",
            paper.dynamics,
        ),
    )
    for name, place, title, caption, draw in drawings:
        arrays = figure_data.load(name)
        if arrays is not None:
            yield Drawn(f"paper/{place}", title, caption, draw(arrays))


def dataset_figures(selection: Selection, name: str) -> Iterator[Drawn]:
    """Draw the figures of one dataset: from stored fits if it has some, else what its rows alone allow."""
    require_libraries()
    arrays = figure_data.load(name) if selection.paper and name in published.DATASETS else None
    if arrays is not None:
        pooled = int(arrays["num_splits"])
        rows = f"{len(arrays['y'])} test rows of {'1 split' if pooled == 1 else f'{pooled} splits'}"
        yield _of(
            name,
            "predicted",
            "Predicted against actual",
            f"{heading(dataset.LEADING)}: some of {rows}. Bars are 90% intervals.",
            dataset.predicted(arrays),
        )
    yield from _pit(selection, name)
    if arrays is not None:
        yield _of(
            name,
            "reliability",
            "Reliability",
            f"Nominal against observed coverage of central intervals, {rows}.",
            dataset.reliability(arrays),
        )
        yield _of(
            name,
            "width",
            "Coverage against width",
            f"Narrower for the same coverage is better; {rows}.",
            dataset.width(arrays),
        )
    yield from _splits(selection, name)
    if arrays is not None:
        inside = "Paper's recipe, split 1 of protocol=clean."
        yield _of(
            name,
            "router",
            "Router map",
            f"{inside} Latent plane: colour = leading expert, numbers and ellipses = centres and scales of the "
            "windows.",
            dataset.router(arrays),
        )
        yield _of(
            name,
            "training",
            "Training curves",
            f"{inside} The objective adds penalties to the NLL.",
            dataset.training(arrays),
        )
        yield _of(
            name,
            "calibration",
            "Calibration line",
            f"{inside} The reported mean is the line's value; the density is left as it is.",
            dataset.calibration(arrays),
        )
        yield _of(
            name,
            "densities",
            "Three test rows",
            "Predicted densities: easy = narrowest with its target in the middle half, hard = widest that holds "
            "its target, "
            "wrong = the target furthest out, all by the cross-fitted recipe.",
            dataset.densities(arrays),
        )


def _pit(selection: Selection, name: str) -> Iterator[Drawn]:
    """Draw the PIT counts of the first method that has some."""
    compared = selection.compared
    for method in compared.methods:
        counts = compared.pit_counts(method, name)
        if counts is not None:
            yield _of(
                name,
                "pit",
                "PIT histogram",
                f"{heading(method)}, test targets of all splits, each row once. A hump means too wide, a bowl too "
                "narrow, a slope biased.",
                dataset.pit(counts),
            )
            return


def _splits(selection: Selection, name: str) -> Iterator[Drawn]:
    """Draw the NLL of every split: published beside ours, or the methods of the user's own data."""
    if selection.paper and name in published.DATASETS:
        figure = dataset.splits(StoredRuns(selection.table_rows), name)
        other = " The published run is a kernel-ridge mixture, and so is ours." if name == "kin8nm" else ""
        if figure is not None:
            caption = f"NLL per split, protocol=published, published beside ours.{other}"
            yield _of(name, "splits", "Split by split", caption, figure)
        return
    compared, nll = selection.compared, selection.compared.nll()
    values = {method: list(compared.values(nll.name, method, name).values()) for method in compared.methods}
    values = {method: numbers for method, numbers in values.items() if numbers}
    if values:
        yield _of(
            name,
            "splits",
            "Split by split",
            "NLL of every split, the best method first.",
            dataset.nll_by_split(values, nll.title),
        )


def _of(name: str, place: str, title: str, caption: str, figure: Figure) -> Drawn:
    return Drawn(f"{name}/{place}", title, caption, figure)


def _if_possible(name: str, title: str, caption: str, draw: Callable[[], Figure]) -> Iterator[Drawn]:
    """Draw a figure unless the rows have too few methods or datasets for it."""
    try:
        figure = draw()
    except UserError:
        return
    yield Drawn(name, title, caption, figure)
