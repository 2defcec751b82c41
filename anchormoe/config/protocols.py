"""The protocols of `conf/protocol/` as objects: the data and the method behind every result.

This module reads the YAML files without Hydra, so that reports can use them and still start quickly.
"""

from __future__ import annotations

import functools

from omegaconf import OmegaConf

from anchormoe.config.schema import ABLATIONS, ProtocolConfig, RunRules
from anchormoe.data import catalogue
from anchormoe.errors import UserError
from anchormoe.paths import shipped


@functools.cache
def load_protocol(name: str) -> ProtocolConfig:
    """Read `conf/protocol/<name>.yaml` and check it against the schema."""
    folder = shipped("conf") / "protocol"
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        raise UserError(f"protocol must be one of {', '.join(known)}, received {name}")
    merged = OmegaConf.merge(OmegaConf.structured(ProtocolConfig), OmegaConf.load(folder / f"{name}.yaml"))
    protocol = OmegaConf.to_object(merged)
    assert isinstance(protocol, ProtocolConfig)
    return protocol


def rules(protocol: str, ablation: str) -> RunRules:
    """Return what a protocol decides for one ablation."""
    if ablation not in ABLATIONS:
        raise UserError(f"ablation must be one of {', '.join(ABLATIONS)}, received {ablation}")
    return getattr(load_protocol(protocol), ablation)


def method_behind(dataset: str, ablation: str, protocol: str) -> str:
    """Return the method that a protocol runs as Anchor-MoE; it is another one only for the published Kin8nm."""
    return rules(protocol, ablation).methods.get(dataset, "anchormoe")


def variant_behind(dataset: str, ablation: str, protocol: str) -> str | None:
    """Return the target and feature set that a protocol uses: its own choice, else the dataset's first variant.

    The result is None for a dataset that is not in the catalogue; then any variant is accepted.
    """
    chosen = rules(protocol, ablation).variants.get(dataset)
    if chosen is not None:
        return chosen
    try:
        return catalogue.info(dataset).default_variant
    except UserError:
        return None
