"""What must be the same for a journal to continue; else its trials mean something else."""

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
        settings: of a compressor, by the names of its attributes.
        model: what is compressed.
        division: how the validation data are divided; empty where they are not.
    """
    objective = settings["objective"]
    # that of a ready one is known from its name
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
        # absent where off: as in the journals of earlier versions
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
    """Return what tells other data from the data of a run.

    How validation data is divided into minibatches does not count, so that a run that memory did
    not suffice for can continue with smaller ones; unless a part of them, `chooses`, is all that
    the search may see, and would become another part.
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
