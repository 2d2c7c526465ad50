"""The header of a journal: facts that must match for a run to continue from it."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from nncfx.compressor.build_evidence import fingerprint
from nncfx.compressor.evaluation.metrics import metric_name
from nncfx.evidence.formatting import spelt
from nncfx.lc.data_fingerprint import data_fingerprint
from nncfx.objectives.ready import ready_objective
from nncfx.schemes.code_digest import code_digest
from nncfx.search import JSONValue

_WITH_CODE = ("scheme", "optimizer", "objective", "metric", "criterion")


def journal_header(
    settings: Mapping[str, Any], model: nn.Module, division: Mapping[str, JSONValue]
) -> dict[str, JSONValue]:
    """Return the header of the journal of a run.

    Args:
        settings: of a compressor, by attribute name.
        model: the model to compress.
        division: how the validation data are divided; empty if they are not.
    """
    objective = settings["objective"]
    # the unit of a ready objective follows from its name
    unit = "" if ready_objective(objective.name) is not None else objective.unit
    code = code_digest(*(settings[name] for name in _WITH_CODE))
    return {
        "objective": objective.name,
        "scheme": spelt(settings["scheme"]),
        "optimizer": spelt(settings["optimizer"]),
        "metric": metric_name(settings["metric"]),
        "eps": settings["eps"],
        "margin": settings["margin"],
        "runtime": settings["runtime"],
        "model": fingerprint(model),
        # absent if empty, as in the journals of earlier versions
        **({"code of functions": code} if code else {}),
        **({"unit": unit} if unit else {}),
        **division,
        **({"threads": settings["threads"]} if settings["threads"] else {}),
        **({"warm_start": True} if settings["warm_start"] else {}),
        **({"stop_hopeless": True} if settings["stop_hopeless"] else {}),
    }


def data_facts(
    trainloader: Iterable[Any] | None,
    valloader: Iterable[Any],
    chooses: Iterable[Any] | None = None,
) -> dict[str, JSONValue]:
    """Return facts that distinguish the data of a run from other data.

    The size of validation minibatches does not count, so a run that ran out of memory can continue
    with smaller ones, unless the search sees only a part of them, `chooses`, which would then
    change.
    """
    train = {} if trainloader is None else data_fingerprint(trainloader)
    judged = data_fingerprint(valloader)
    judged.pop("batches", None)
    part = {} if chooses is None else data_fingerprint(chooses)
    part = {name: value for name, value in part.items() if name == "content"}
    return {
        f"{fact} of {name}": value
        for name, facts in (("trainloader", train), ("valloader", judged), ("what chooses", part))
        for fact, value in facts.items()
    }
