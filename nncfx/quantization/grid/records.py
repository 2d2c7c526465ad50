"""Quantizers as plain values, so that a file can bring them back."""

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any, Final

from nncfx.errors import NNCFXError, StorageError
from nncfx.json_codec import decode, encode
from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.tracing import Insertion, PostSite, PreSite, Site, WeightSite

__all__ = ["insertions_from", "quantizer_records"]

_SITES: dict[str, type[Site]] = {"weight": WeightSite, "pre": PreSite, "post": PostSite}
_MOST: Final = 2**31
"""Scales of all quantizers; a file that asks for more is damaged."""


def quantizer_records(
    model: NNCFNetwork, *, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return what JSON needs to hold of the quantizers of `model`: all but their tensors.

    Args:
        model: Wrapped.
        without: Algorithms whose quantizers are left out.
    """
    records: dict[int, dict[str, Any]] = {}
    for one in model.nncf.hooks:
        hook = one.hook
        if not isinstance(hook, Quantizer) or one.algorithm in without:
            continue
        record = records.setdefault(
            id(hook),
            {
                "algorithm": one.algorithm,
                "priority": int(one.priority),
                "spec": encode(hook.spec, omit="defaults"),
                "shape": list(hook.step.shape),
                "sites": [],
            }
            | ({"learned": list(hook._parameters)} if hook.is_learned else {})  # noqa: SLF001 (names alone)
            | ({} if hook.is_active else {"active": False}),
        )
        record["sites"].append(_site_record(one.site))
    return list(records.values())


def _site_record(site: Site) -> list[Any]:
    kind = next(name for name, cls in _SITES.items() if isinstance(site, cls))
    return [kind, *dataclasses.astuple(site)]


def insertions_from(records: Sequence[Any], *, most: int = _MOST) -> list[Insertion]:
    """Return the insertions that `quantizer_records` described; their tensors come from a file.

    Args:
        records: As JSON gives them back.
        most: So many scales may the quantizers have in all; a file that asks for more is damaged.

    Raises:
        StorageError: a record is damaged.
    """
    insertions = []
    for record in records:
        try:
            shape = tuple(map(int, record["shape"]))
            if math.prod(shape) > most:
                raise StorageError(f"its scales have the shape {shape}")
            hook = Quantizer(decode(QuantizerSpec, record["spec"]), shape)
            if record.get("learned"):
                hook.learn(logarithmic="log2_peak" in record["learned"])
            hook.is_active = bool(record.get("active", True))
            insertions += [
                Insertion(_site(*site), hook, int(record["priority"]), str(record["algorithm"]))
                for site in record["sites"]
            ]
        except (
            *(KeyError, TypeError, ValueError, OverflowError),
            *(RuntimeError, NNCFXError),
        ) as error:
            raise StorageError(
                f"A quantizer in the file is damaged ({error}). Write the file again.",
            ) from error
    return insertions


def _site(kind: str, *place: Any) -> Site:  # noqa: ANN401 (as JSON gives it)
    made = _SITES[kind](*place)
    for field, value in zip(dataclasses.fields(made), place, strict=False):
        if not isinstance(value, int if field.name == "port" else str):
            raise TypeError(f"{field.name} is {value!r}")
    return made
