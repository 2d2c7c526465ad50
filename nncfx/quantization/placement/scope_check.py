"""Reject scopes that match no operation, which would otherwise be ignored silently."""

from collections.abc import Iterable

from nncfx.errors import GraphError
from nncfx.graph import NNCFGraph


def check_scopes(graph: NNCFGraph, scopes: Iterable[str], place: str) -> None:
    """Check that each of `scopes`, passed as `place`, matches an operation of `graph`.

    Raises:
        GraphError: a scope matches nothing; the message names the closest match.
    """
    for scope in graph.unmatched(scopes):
        raise GraphError(
            f"'{scope}' of {place} matches no operation of the model, so it would change nothing."
            f"{graph.hint(scope)} 'model.nncf.graph.addresses' lists all."
        )
