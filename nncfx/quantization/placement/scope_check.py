"""Scopes that select nothing are refused: they would be ignored silently."""

from collections.abc import Iterable

from nncfx.errors import GraphError, did_you_mean
from nncfx.graph import NNCFGraph

__all__ = ["check_scopes"]


def check_scopes(graph: NNCFGraph, scopes: Iterable[str], place: str) -> None:
    """Refuse the first of `scopes`, given as `place`, that no operation of `graph` matches.

    Raises:
        GraphError: there is one; it names the nearest address, scope or function.
    """
    for scope in graph.unmatched(scopes):
        raise GraphError(
            f"'{scope}' of {place} matches no operation of the model, so it would change nothing."
            f"{_nearest(graph, scope)} 'model.nncf.graph.addresses' lists all.",
        )


def _nearest(graph: NNCFGraph, scope: str) -> str:
    # the bare name of a function is far from what it should be by the letters
    name = scope.removeprefix("{function}").strip("{}")
    functions = sorted({one.function for one in graph.operations})
    if name in functions or scope.startswith("{function}"):
        return did_you_mean("{function}" + name, [f"{{function}}{one}" for one in functions])
    scopes = dict.fromkeys(one.scope for one in graph.operations)
    return did_you_mean(scope, [*graph.addresses, *scopes])
