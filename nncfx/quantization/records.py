"""Quantizers as plain values, so that a file can bring them back."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from nncfx.errors import StorageError
from nncfx.quantization.quantizer import Quantizer
from nncfx.quantization.spec import QuantizerSpec
from nncfx.tracing import Insertion, NNCFNetwork, PostSite, PreSite, Site, WeightSite

__all__ = ["insertions_from", "quantizer_records"]

_SITES: dict[str, type[Site]] = {"weight": WeightSite, "pre": PreSite, "post": PostSite}


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
                "spec": dataclasses.asdict(hook.spec),
                "shape": list(hook.step.shape),
                "learned": [name for name, _ in hook.named_parameters()],
                "sites": [],
            },
        )
        record["sites"].append(_site_record(one.site))
    return list(records.values())


def _site_record(site: Site) -> list[Any]:
    kind = next(name for name, cls in _SITES.items() if isinstance(site, cls))
    return [kind, *dataclasses.astuple(site)]


def insertions_from(records: Sequence[dict[str, Any]]) -> list[Insertion]:
    """Return the insertions that `quantizer_records` described; their tensors come from a file.

    Raises:
        StorageError: a record is damaged.
    """
    insertions = []
    for record in records:
        try:
            hook = Quantizer(QuantizerSpec(**record["spec"]), tuple(record["shape"]))
            if record["learned"]:
                hook.learn(logarithmic="log2_peak" in record["learned"])
            insertions += [
                Insertion(_SITES[kind](*place), hook, record["priority"], record["algorithm"])
                for kind, *place in record["sites"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(
                f"A quantizer in the file is damaged ({error}). Write the file again.",
            ) from error
    return insertions
