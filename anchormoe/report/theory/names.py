"""Names of objects and rules for readers."""

from __future__ import annotations

OBJECTS = {
    "truncated_spline": "constant experts on B-splines, renormalised at the boundary (A2)",
    "bump": "constant experts on a generic partition",
    "spline": "constant experts on B-splines with nodes at the boundary",
    "linear_experts": "local linear experts on a generic partition",
    "smoother": "quadratic B-splines, best K at every N",
    "scattered": "constant experts on bumps around points of the manifold",
    "network": "trained network, no anchor",
    "anchored_network": "trained Anchor-MoE",
}
SHORT = {
    "truncated_spline": "B-splines (A2)",
    "bump": "generic partition",
    "spline": "B-splines, nodes at boundary",
    "linear_experts": "local linear experts",
    "smoother": "best smoother",
    "scattered": "K by the rule",
    "network": "trained, no anchor",
    "anchored_network": "trained Anchor-MoE",
}
RULES = {
    "theory": "K by the rule",
    "fixed": "control: K fixed",
    "proportional": "control: K ~ N",
    "ambient": "control: rule of the ambient d",
    "oracle": "best K",
    "eight": "K = 8",
    "selected": "coordinates selected",
}
FACTORS = {
    "num_rows": "N",
    "num_experts": "K",
    "num_components": "M",
    "hidden_dim": "h",
    "router_dim": "P",
    "top_k": "k",
}


def number(value: float) -> str:
    """Write 0.5 and 2.0 as 0.5 and 2."""
    return f"{value:g}"
