"""Checks that the parts of a loaded regressor fit together.

Compiled kernels take the widths of tables and the indices of columns on trust. Everything else that does not fit would
be an ordinary error of Python at the first prediction.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anchormoe.data.columns import Columns
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.distributions.recalibrated import Recalibrated
from anchormoe.estimator.saving import lightgbm_model, xgboost_model
from anchormoe.estimator.saving.errors import refused, require
from anchormoe.estimator.saving.trees import require_features
from anchormoe.model.anchors.boosted import ExactTrees, LightGBMTrees, SklearnTrees, XGBoostTrees
from anchormoe.model.anchors.exact_trees import BoostedTrees
from anchormoe.model.anchors.fitted import ConstantAnchor, RegressorAnchor, StackedAnchor, StagedAnchor
from anchormoe.model.anchors.kernel_machine import KernelMachine
from anchormoe.model.crossfit import FittedCrossfit, MeanOf, Member
from anchormoe.model.encoding import MOST_INDICATORS, Encoder, IndicatorColumn, MeanColumn, NumericColumn
from anchormoe.model.held_out import HeldOut
from anchormoe.model.joint import FittedJoint, JointAnchor
from anchormoe.model.joint_network import JointAnchorMoE
from anchormoe.model.latent_rows import LatentRows
from anchormoe.model.paper import FittedNetwork, FittedPaper

_LONGEST_NESTING = 8  # anchors within anchors


def require_consistent(attributes: dict[str, Any]) -> None:
    """Check the fitted attributes of a regressor."""
    columns, fitted = attributes["columns_"], attributes["fitted_"]
    require(type(columns) is Columns, "columns_ to be Columns", type(columns))
    kinds = (FittedCrossfit, FittedPaper, FittedJoint)
    require(type(fitted) in kinds, "fitted_ to be of a recipe", type(fitted))
    require(isinstance(attributes["diagnostics_"], dict), "diagnostics_ to be a dict", type(attributes["diagnostics_"]))
    num_columns = len(columns.columns)
    stated, names = attributes["n_features_in_"], attributes.get("feature_names_in_")
    require(type(stated) is int and stated == num_columns > 0, f"n_features_in_ to be {num_columns}", stated)
    fits = names is None or (isinstance(names, np.ndarray) and names.shape == (num_columns,))
    require(fits, f"{num_columns} names of columns", names)
    require(len(fitted.networks) > 0, "at least one network", "none")
    for network in fitted.networks:
        _require_network(network, num_columns, 0, num_targets=len(fitted.targets) if several(fitted) else None)
    if several(fitted):
        _require_joint(fitted)
    else:
        _require_held_out(fitted.held_out)
    if type(fitted) is FittedCrossfit:
        factors = fitted.spread.held_out, fitted.spread.of_all
        require(all(0 < factor < math.inf for factor in factors), "factors of the spread above 0 and finite", factors)
    if fitted.latent is not None:
        _require_latent_rows(fitted.latent, sum(network.model.config.latent_dim for network in fitted.networks))


def several(fitted: Any) -> bool:
    """Tell whether a fit is one of several targets."""
    return type(fitted) is FittedJoint


def _require_held_out(held_out: HeldOut) -> None:
    densities: Any = held_out.densities.base if isinstance(held_out.densities, Recalibrated) else held_out.densities
    require(type(densities) is GaussianMixture, "held-out densities that are mixtures", type(densities))
    shape = densities.means.shape
    mixture = (densities.log_weights, densities.scales)
    alike = len(shape) == 2 and all(array.shape == shape for array in mixture) and held_out.y.shape == shape[:1]
    require(alike, "held-out densities and targets of the same rows", shape)


def _require_joint(fitted: FittedJoint) -> None:
    """Check the parts that a fit of several targets has for each of them."""
    count, held_out = len(fitted.targets), fitted.held_out
    require(count > 1, "several targets", count)
    for name, parts in (("anchors", fitted.anchors), ("scores", held_out.scores)):
        require(len(parts) == count, f"{name} of {count} targets", len(parts))
    require(len(fitted.linear_maps) in (0, count), f"linear maps of {count} targets", len(fitted.linear_maps))
    named = len(fitted.names) in (0, count) and all(isinstance(name, str) for name in fitted.names)
    require(named, f"names of {count} targets", fitted.names)
    shape = (*held_out.densities.log_weights.shape[:1], held_out.densities.num_targets)
    require(held_out.y.shape == shape == (*shape[:1], count), "held-out densities and targets of the same rows", shape)


def _require_latent_rows(latent: LatentRows, width: int) -> None:
    rows = latent.positions.shape[:1]
    shapes = latent.center.shape, latent.spread.shape, latent.positions.shape[1:]
    require(set(shapes) == {(width,)}, f"places of {width} latent dimensions", shapes)
    require(latent.distances.shape == rows and rows > (0,), "a distance of each place", latent.distances.shape)


def _require_network(
    network: Member | FittedNetwork, num_columns: int, depth: int, *, num_targets: int | None = None
) -> None:
    """Check one network, of several targets if `num_targets` says so."""
    scaling, model = network.scaling, network.model
    found = model.num_targets if type(model) is JointAnchorMoE else None
    require(found == num_targets, f"a network of {num_targets or 'one'} targets", found)
    units = np.shape(scaling.y_mean), np.shape(scaling.y_std)
    require(set(units) == {() if num_targets is None else (num_targets,)}, "units of the targets", units)
    width = _width(network.encoder, num_columns) + int(scaling.anchor_column) * (num_targets or 1)
    for name, statistics in (
        *(("means", scaling.column_mean), ("deviations", scaling.column_std)),
        *(() if scaling.column_limit is None else (("limits", scaling.column_limit),)),
    ):
        require(statistics.shape == (width,), f"{name} of {width} columns", statistics.shape)
    input_dim = network.model.experts.input_dim
    require(input_dim == width, f"a network of {width} inputs", input_dim)
    anchor: Any = network.anchor.predict if isinstance(network, FittedNetwork) else network.anchor
    if num_targets is not None:
        fits = type(anchor) is JointAnchor and len(anchor.parts) == num_targets
        require(fits, f"anchors of {num_targets} targets", type(anchor))
    for part in (anchor,) if num_targets is None else anchor.parts:
        _require_anchor(part, num_columns, depth)


def _require_anchor(anchor: Any, num_columns: int, depth: int) -> None:
    require(depth < _LONGEST_NESTING, f"fewer than {_LONGEST_NESTING} anchors within each other", "more")
    if type(anchor) is ConstantAnchor:
        return
    if type(anchor) is MeanOf:
        _require_network(anchor.member, num_columns, depth + 1)
    elif type(anchor) is StackedAnchor:
        require(anchor.weights.shape == (len(anchor.parts),), f"{len(anchor.parts)} weights", anchor.weights.shape)
        for part in anchor.parts:
            _require_anchor(part, num_columns, depth + 1)
    elif type(anchor) is RegressorAnchor:
        require(hasattr(anchor.model, "predict"), "a regressor with predict", type(anchor.model))
        width = _width(anchor.encoder, num_columns)
        if type(anchor.model) is KernelMachine:
            _require_kernel_machine(anchor.model, width)
    elif type(anchor) is StagedAnchor:
        require(anchor.stage >= 1, "a stage from 1", anchor.stage)
        _require_trees(anchor.model, _width(anchor.encoder, num_columns))
    else:
        raise refused("an anchor", type(anchor))


def _require_kernel_machine(machine: KernelMachine, width: int) -> None:
    require(hasattr(machine, "kernel") and hasattr(machine, "weights"), "a fitted kernel machine", "an unfitted one")
    shapes = machine.kernel.center.shape, machine.kernel.rates.shape, machine.centers.shape[1:]
    require(set(shapes) == {(width,)}, f"a kernel of {width} columns", shapes)
    require(machine.weights.shape == machine.centers.shape[:1], "a weight for each center", machine.weights.shape)


def _require_trees(model: Any, width: int) -> None:
    trees = model.model
    if type(model) is ExactTrees:
        require(type(trees) is BoostedTrees, "trees of ExactTrees", type(trees))
        _require_own_trees(trees, width)
    elif type(model) is XGBoostTrees:
        fits = xgboost_model.is_its(trees) and trees.num_features() == width
        require(fits, f"trees of XGBoost on {width} columns", type(trees))
        kinds = model.feature_types
        require(kinds is None or len(kinds) == width, f"kinds of {width} columns", kinds)
    elif type(model) is LightGBMTrees:
        fits = lightgbm_model.is_its(trees) and trees.num_feature() == width
        require(fits, f"trees of LightGBM on {width} columns", type(trees))
    else:
        require(type(model) is SklearnTrees and hasattr(trees, "predict"), "boosted trees", type(model))


def _require_own_trees(trees: BoostedTrees, width: int) -> None:
    inner, leaves = trees.threshold.shape, trees.leaf.shape
    shapes = len(inner) == len(leaves) == 2 and inner[0] == leaves[0] and inner[1] == leaves[1] - 1
    require(shapes and trees.feature.shape == inner, "complete binary trees of one depth", (inner, leaves))
    complete = leaves[1] & (leaves[1] - 1) == 0
    require(complete, "a number of leaves that is a power of two", leaves[1])
    kinds = trees.feature.dtype.kind, trees.threshold.dtype, trees.leaf.dtype
    require(kinds == ("i", np.float64, np.float64), "whole numbers of features, and thresholds and leaves", kinds)
    require_features(trees.feature, width)


def _width(encoder: Encoder, num_columns: int) -> int:
    """Return the number of encoded columns."""
    if encoder.columns is None:
        return num_columns
    width = 0
    for column in encoder.columns:
        require(0 <= column.position < num_columns, f"a column below {num_columns}", column.position)
        if isinstance(column, IndicatorColumn):
            levels = column.num_levels
            require(0 <= levels <= MOST_INDICATORS, f"at most {MOST_INDICATORS} levels", levels)
            width += levels + 1
        else:
            if isinstance(column, MeanColumn):
                fits = column.means.ndim == 1 and len(column.means) >= 2
                require(fits, "means of levels, of unknown ones and of gaps", column.means.shape)
            width += 2 if isinstance(column, NumericColumn) and column.had_gaps else 1
    plain = not encoder.keeps_plain_rows or width == num_columns
    require(plain, f"{num_columns} encoded columns where complete rows stay as they are", width)
    return width
