"""A reproducible UCI benchmark harness for probabilistic regression around the Anchor-MoE paper."""

__version__ = "0.1.0"
