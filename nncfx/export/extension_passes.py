"""Export passes that other packages add.

A package declares its passes by an entry point of the group `nncfx.export_passes` whose value is
a module that registers them on import::

    [project.entry-points."nncfx.export_passes"]
    my_pass = "my_package.my_pass"
"""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Final

from nncfx.errors import ArgumentError, ExportError
from nncfx.export.ir.export_pass import ExportPass
from nncfx.export.ir.graph_properties import GRAPH_PROPERTIES
from nncfx.export.pipeline import PASSES

GROUP: Final = "nncfx.export_passes"
_registered: dict[str, tuple[ExportPass, str]] = {}


def register_export_pass(export_pass: ExportPass, *, before: str) -> None:
    """Run `export_pass` in every export from now on.

    Args:
        export_pass: the pass; it replaces a registered pass of the same name.
        before: the name of the pass in `nncfx.export.PASSES` before which it runs.

    Raises:
        ArgumentError: `before`, or a property that the pass names, does not exist, or nncfx has
            a pass of that name.
    """
    places = [one.name for one in PASSES]
    if before not in places:
        raise ArgumentError(
            f"The export pass '{export_pass.name}' is to run before '{before}', which is not a "
            f"pass. Passes are {', '.join(places)}."
        )
    if export_pass.name in places:
        raise ArgumentError(
            f"The export has a pass '{export_pass.name}' already. Give yours another name."
        )
    _check_properties(export_pass)
    _registered[export_pass.name] = (export_pass, before)


def unregister_export_pass(name: str) -> None:
    """Remove the registered pass of that name; do nothing if there is none."""
    _registered.pop(name, None)


def with_added(passes: Sequence[ExportPass]) -> tuple[ExportPass, ...]:
    """Return `passes` with the passes of other packages inserted in their places.

    Raises:
        ExportError: the passes of an installed package cannot be imported.
    """
    find_passes()
    added = list(_registered.values())
    return tuple(
        one
        for place in passes
        for one in (*(extra for extra, before in added if before == place.name), place)
    )


@cache
def find_passes() -> None:
    """Import, once, the modules that register the passes of installed packages.

    Raises:
        ExportError: a module cannot be imported; without its pass, files would differ.
    """
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            home = entry.dist.name if entry.dist else "a package without a name"
            raise ExportError(
                f"The export pass '{entry.name}' of the installed package {home} cannot be used: "
                f"importing '{entry.value}' raised {type(error).__name__}: "
                f"{str(error).rstrip('.')}. Fix, upgrade or uninstall {home}."
            ) from error


def _check_properties(export_pass: ExportPass) -> None:
    named = {*export_pass.requires, *export_pass.ensures}
    if unknown := sorted(named - set(GRAPH_PROPERTIES)):
        raise ArgumentError(
            f"The export pass '{export_pass.name}' names the property '{unknown[0]}', which does "
            f"not exist. Properties are {', '.join(GRAPH_PROPERTIES)}."
        )
