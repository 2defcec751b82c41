"""The claims about densities: the CRPS gap, the link between NLL and L2, and the K that the theory suggests in use."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from anchormoe.report.theory.claims import Claim, Part
from anchormoe.report.theory.names import FACTORS
from anchormoe.report.theory.rates import chosen
from anchormoe.report.theory.slopes import Curve, Estimate, interval, mean_estimate


def gap_curve(rows: pd.DataFrame, kind: str, varied: str) -> Curve | None:
    """Return test CRPS minus training CRPS against one size, or None."""
    found = chosen(rows, study="gap", object=kind, varied=varied)
    return Curve.of_rows(found, "value", "test_crps", minus="train_crps") if len(found) > 1 else None


def bound_shape(rows: pd.DataFrame) -> np.ndarray:
    """Return sqrt((log(M h) + P + K) / N) for rows of networks."""
    size = np.log(rows["num_components"] * rows["hidden_dim"]) + rows["gate_parameters"] + rows["num_experts"]
    return np.sqrt(size.to_numpy(dtype=float) / rows["num_rows"].to_numpy(dtype=float))


def bound_slope(rows: pd.DataFrame, varied: str) -> float:
    """Return the slope of the bound's shape against one size, over the values that were tried."""
    found = chosen(rows, study="gap", object="network", varied=varied).sort_values("value")
    return float(np.polyfit(np.log(found["value"].astype(float)), np.log(bound_shape(found)), 1)[0])


def bound_constant(rows: pd.DataFrame) -> tuple[float, float]:
    """Return the constant C of gap = C sqrt((log(M h) + P + K) / N), fitted on the log scale, and the largest one."""
    found = chosen(rows, study="gap", object="network")
    gaps = [np.mean(test) - np.mean(train) for test, train in zip(found["test_crps"], found["train_crps"], strict=True)]
    ratios = np.array(gaps) / bound_shape(found)
    return float(np.exp(np.log(ratios).mean())), float(ratios.max())


def gap_claims(rows: pd.DataFrame) -> Iterator[Claim]:
    """Judge the gap against each size alone; the control memorises its rows, and its gap does not close."""
    memoriser = gap_curve(rows, "memoriser", "num_rows")
    controls = [] if memoriser is None else [Part("memoriser", -0.5, memoriser.slope(), at_most=True)]
    for varied in ("num_rows", "num_experts", "num_components", "hidden_dim", "router_dim"):
        curve = gap_curve(rows, "network", varied)
        if curve is not None:
            part = Part(FACTORS[varied], bound_slope(rows, varied), curve.slope(), at_most=True)
            claim = f"CRPS gap ≲ sqrt((log(Mh)+P+K)/N), slope in {FACTORS[varied]}"
            yield Claim("gap", claim, "trained network, no anchor", [part], controls)
    in_experts, in_width = (gap_curve(rows, "network", name) for name in ("num_experts", "hidden_dim"))
    in_top_k = gap_curve(rows, "network", "top_k")
    if in_experts is not None and in_width is not None and in_top_k is not None:
        # The width, which no top-k takes away, shows that the measurement would see a dependence.
        seen = [Part("h", 0.0, in_width.slope(), at_most=True)]
        parts = [Part("K at k = 2", 0.0, in_experts.slope(), at_most=True)]
        yield Claim("gap", "Top-k: the gap does not depend on K", "trained network, no anchor", parts, seen)
        parts = [Part("k at K = 16", 0.0, in_top_k.slope(), at_most=True)]
        yield Claim("gap", "Top-k: nor on k", "trained network, no anchor", parts, seen)


def link_constants(lowest: float, highest: float) -> tuple[float, float]:
    """Return c1 and c2 of the lemma for standard deviations within bounds.

    c1 = 1 / (2 lowest^2); c2 is the largest ratio of log(s / t) + t^2 / (2 s^2) - 1/2 to (s - t)^2.
    """
    s, t = np.meshgrid(np.linspace(lowest, highest, 601), np.linspace(lowest, highest, 601))
    apart = np.abs(s - t) > 1e-9
    s, t = s[apart], t[apart]
    return 1 / (2 * lowest**2), float(((np.log(s / t) + t**2 / (2 * s**2) - 0.5) / (s - t) ** 2).max())


def link_ratios(rows: pd.DataFrame, kind: str) -> np.ndarray:
    """Return excess NLL over c1 (mean error) + c2 (scale error), one number per fit; the lemma says at most 1."""
    bounds = chosen(rows, study="link", object=kind).iloc[0]
    first, second = link_constants(float(bounds["lowest"]), float(bounds["highest"]))
    bound = first * of_fits(rows, kind, "mean_error") + second * of_fits(rows, kind, "scale_error")
    return of_fits(rows, kind, "excess_nll") / bound


def link_claims(rows: pd.DataFrame) -> Iterator[Claim]:
    """Judge the lemma on every fit, and the equivalence of excess NLL and L2 error where the scale is the true one."""
    if not len(chosen(rows, study="link")):
        return
    controls = [Part("a tenth of the scale", 1.0, _largest(link_ratios(rows, "overconfident")), at_most=True)]
    for kind, name in (
        ("gaussian", "B-splines (A2), Gaussian with estimated scale"),
        ("network", "trained network, a mixture, no anchor"),
    ):
        part = Part("", 1.0, _largest(link_ratios(rows, kind)), at_most=True)
        claim = "NLL–L2 link: excess NLL over c₁·MSE + c₂·scale error, largest of all fits"
        yield Claim("link", claim, name, [part], controls)
    yield Claim(
        "link",
        "NLL–L2 link, true scale: excess NLL ~ MSE, slope on the log scale",
        "B-splines (A2), Gaussian",
        [Part("", 1.0, _log_slope(rows, "known_scale"))],
        [Part("mixture of the network", 1.0, _log_slope(rows, "network"))],
    )


def of_fits(rows: pd.DataFrame, kind: str, name: str) -> np.ndarray:
    """Return a column of the link's rows, one number per fit."""
    found = chosen(rows, study="link", object=kind)
    return np.concatenate([np.asarray(values, dtype=float) for values in found[name]])


def _largest(ratios: np.ndarray) -> Estimate:
    """Return the largest ratio, with the interval of the largest of fits drawn with replacement."""
    rng = np.random.default_rng(0)
    draws = ratios[rng.integers(0, len(ratios), size=(2000, len(ratios)))].max(axis=1)
    return Estimate(float(ratios.max()), *interval(draws))


def _log_slope(rows: pd.DataFrame, kind: str) -> Estimate:
    """Return the slope of log excess NLL against log mean squared error over fits; fits are drawn with replacement."""
    excess, error = (np.log(of_fits(rows, kind, name)) for name in ("excess_nll", "mean_error"))
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(error), size=(2000, len(error)))

    def slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        return (centred * y).sum(axis=-1) / (centred**2).sum(axis=-1)

    return Estimate(float(slope(error, excess)), *interval(slope(error[picks], excess[picks])))


def nll_by_rule(rows: pd.DataFrame) -> pd.DataFrame:
    """Return test NLL minus that of K = 8 by table and rule, arrays of one value per split.

    `validation` is the K with the lowest NLL on held-out rows, chosen for each split anew; `worst` has the highest.
    """
    found, lines = chosen(rows, study="experts"), []
    for table, group in found.groupby("table", sort=False) if len(found) else ():
        nll = {
            rule: np.asarray(values, dtype=float) for rule, values in zip(group["rule"], group["nll_y"], strict=True)
        }
        held_out = {r: np.asarray(v, dtype=float) for r, v in zip(group["rule"], group["held_out_nll"], strict=True)}
        tried = [rule for rule in nll if rule.isdigit()]
        if "8" not in nll:
            continue
        best = np.argmin(np.stack([held_out[rule] for rule in tried]), axis=0)
        worst = np.argmax(np.stack([held_out[rule] for rule in tried]), axis=0)
        splits = np.arange(len(best))
        stacked = np.stack([nll[rule] for rule in tried])
        nll |= {"validation": stacked[best, splits], "worst": stacked[worst, splits]}
        experts = dict(zip(group["rule"], group["experts"], strict=True))
        lines += [
            {"table": table, "rule": rule, "experts": experts.get(rule), "difference": values - nll["8"]}
            for rule, values in nll.items()
        ]
    return pd.DataFrame(lines, columns=["table", "rule", "experts", "difference"])


def expert_claims(rows: pd.DataFrame) -> Iterator[Claim]:
    """Judge whether the K that the theory suggests is at least as good as K = 8 on tables, in NLL."""
    compared = nll_by_rule(rows)

    def part(label: str, rule: str) -> Iterator[Part]:
        groups = compared[compared["rule"] == rule]["difference"].tolist()
        if groups:
            yield Part(label, 0.0, mean_estimate(groups), at_most=True)

    controls = [*part("K with the highest held-out NLL", "worst")]
    for rule, label in (
        ("theory", "K = n^(d/(2+d)), d features"),
        ("theory_latent", "K = n^(1/2), the latent plane"),
        ("validation", "K by held-out rows"),
    ):
        parts = [*part("", rule)]
        if parts:
            claim = f"{label}: mean test NLL no higher than with K = 8"
            yield Claim("experts", claim, "trained Anchor-MoE, paper's recipe", parts, controls)
