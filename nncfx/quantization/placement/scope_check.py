"""Scopes that select nothing are refused: they would be ignored silently."""

from collections.abc import Iterable

from nncfx.errors import GraphError
from nncfx.graph import NNCFGraph


def check_scopes(graph: NNCFGraph, scopes: Iterable[str], place: str) -> None:
    """Refuse the first of `scopes`, given as `place`, that no operation of `graph` matches.

    Raises:
        GraphError: there is one; it names the nearest address, scope or function.
    """
    for scope in graph.unmatched(scopes):
        raise GraphError(
            f"'{scope}' of {place} matches no operation of the model, so it would change nothing."
            f"{graph.hint(scope)} 'model.nncf.graph.addresses' lists all."
        )
