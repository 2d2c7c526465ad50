"""Resolves the scopes of a config on the graph of a model."""

import dataclasses

from nncfx.config import AlgorithmConfig, Fault, NNCFConfig, config_error
from nncfx.config.faults import join
from nncfx.config.section import ScopeResolver, as_in_torch, with_scopes
from nncfx.errors import GraphError
from nncfx.graph import NNCFGraph


def configs_in_scope(config: NNCFConfig, graph: NNCFGraph) -> list[AlgorithmConfig]:
    """Return the algorithms' configs with the scopes of the whole config merged in.

    Operations ignored by either are ignored; an algorithm without targets uses those of the whole
    config.

    Raises:
        ConfigError: a scope matches no operation, or is not a valid regular expression.
    """
    faults: list[Fault] = []
    whole = with_scopes(config, "", _resolver("", config, graph, faults))
    merged = []
    for index, one in enumerate(config.compression):
        own = one.with_scopes(_resolver(f"compression[{index}]", one, graph, faults))
        if not one.has_scopes:
            merged.append(own)
            continue
        scoped = dataclasses.replace(
            own,
            ignored_scopes=(*whole.ignored_scopes, *own.ignored_scopes),
            target_scopes=whole.target_scopes if own.target_scopes is None else own.target_scopes,
        )
        merged.append(scoped.within(config.target_device, config.compression_lr_multiplier))
    if faults:
        raise config_error(faults)
    return merged


def _resolver(
    path: str, scoped: NNCFConfig | AlgorithmConfig, graph: NNCFGraph, faults: list[Fault]
) -> ScopeResolver:
    """Return a resolver of the scopes of `scoped`, which is at `path`; it appends `faults`."""

    def resolve(key: str, scope: str) -> str | None:
        plain = as_in_torch(scope)
        try:
            is_missed = bool(graph.unmatched([plain]))
        except GraphError as error:
            faults.append(Fault(path=join(path, key), problem=str(error)))
            return None
        if is_missed and scoped.validate_scopes:
            faults.append(Fault(path=join(path, key), problem=_missed(scope, graph)))
        return None if is_missed else plain

    return resolve


def _missed(scope: str, graph: NNCFGraph) -> str:
    pattern = "" if "{re}" in scope else " A pattern begins with '{re}'."
    return (
        f"'{scope}' matches no operation of the model, so it would change nothing."
        f"{graph.hint(scope)}{pattern} 'model.nncf.graph.addresses' lists all; "
        "'validate_scopes': false allows such a scope."
    )
