"""Converts the section `search` of a config to the arguments of a compressor."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from nncfx.compressor.space_config import SchemeOfCandidate, space_of
from nncfx.config import AnyConfig, Fault, NNCFConfig, SearchConfig, config_error
from nncfx.errors import ArgumentError
from nncfx.lc import ADMM, DC, LC, DCFineTuned, Recovery
from nncfx.objectives import Objective, file_size, footprint, latency, macs, parameters, throughput
from nncfx.runtimes.predict.latency_table import predicted_latency
from nncfx.runtimes.predict.measured_table import read_table
from nncfx.schemes.from_config import scheme_faults, schemes_from
from nncfx.search import SearchSettings, SpaceSettings
from nncfx.storage.formats.whole_file import read_text
from nncfx.tracing import ExampleInputs

_OBJECTIVES: Final[Mapping[str, Objective]] = MappingProxyType(
    {
        "file_size": file_size,
        "footprint": footprint,
        "latency": latency,
        "macs": macs,
        "parameters": parameters,
        "throughput": throughput,
    }
)
_RECOVERIES: Final[Mapping[str, Any]] = MappingProxyType(
    {one.__name__: one for one in (ADMM, DC, DCFineTuned, LC)}
)
_SETTINGS: Final = ("tolerance", "max_evaluations", "upper", "seed")
_OF_LOOPS: Final = ("accuracy_aware_training", "ignored_scopes", "target_scopes")
_PASSED_ON: Final = (
    *("eps", "margin", "held_out", "warm_start", "stop_hopeless"),
    *("runtime", "threads", "folder", "name", "title"),
)


def arguments_from(
    config: AnyConfig, example_inputs: ExampleInputs | None = None
) -> dict[str, Any]:
    """Return the settings of the section `search` of `config`, by compressor argument.

    An objective that names code is left out: only a task runs code named in a file.
    `example_inputs` is used only by the objective "predicted", which traces candidates on it.

    Raises:
        StorageError: the latency table cannot be read.
        ConfigError: `config` has faults, no section `search`, what a training loop needs, or a
            scheme that its class refuses.
        ArgumentError: the runtime is unknown, or `example_inputs` is missing.
    """
    config = NNCFConfig.of(config)
    search = config.search
    faults = _faults(config)
    if search is None or faults:
        raise config_error(faults)
    return {
        **({} if search.is_own else {"objective": _objective(search, example_inputs)}),
        "optimizer": _recovery(search),
        **(_of_space(search) if search.is_space else _of_level(search)),
        **{name: getattr(search, name) for name in _PASSED_ON},
    }


def _of_level(search: SearchConfig) -> dict[str, Any]:
    settings = SearchSettings(**{name: getattr(search, name) for name in _SETTINGS})
    return {"scheme": schemes_from(search.schemes), "settings": settings}


def _of_space(search: SearchConfig) -> dict[str, Any]:
    return {
        "scheme": SchemeOfCandidate(search.schemes),
        "space": space_of(search.schemes, search.upper),
        "settings": SpaceSettings(max_evaluations=search.max_evaluations, seed=search.seed),
    }


def _objective(search: SearchConfig, example_inputs: ExampleInputs | None) -> Objective:
    if search.latency_table is None:
        return _OBJECTIVES[search.objective]
    if example_inputs is None:
        raise ArgumentError(
            "objective 'predicted' needs the inputs that the table was measured on. Pass "
            "example_inputs to Compressor.from_config."
        )
    table = read_table(read_text(search.latency_table))
    return predicted_latency(table, example_inputs)


def _recovery(search: SearchConfig) -> Recovery:
    recovery: Recovery = _RECOVERIES[search.optimizer.algorithm](**search.optimizer.settings)
    return recovery


def _faults(config: NNCFConfig) -> list[Fault]:
    faults = []
    if config.search is None:
        faults.append(
            Fault(
                path="search",
                problem="the section is missing, so there is nothing to search. Add it, with at "
                "least 'objective' and 'schemes'.",
            )
        )
    else:
        faults += scheme_faults(config.search.schemes, "search.schemes")
    if config.compression:
        faults.append(
            Fault(
                path="compression",
                problem="its algorithms are for a training loop of your own, and a search has "
                "none. Put schemes into 'search', or use create_compressed_model.",
            )
        )
    return faults + [
        Fault(
            path=name,
            problem="is for algorithms in a training loop of your own; a search does not look at "
            "it. Take it out; to leave layers alone, give a scheme 'ignored': "
            '{"name": "Prune", "ignored": "{re}stem"}.',
        )
        for name in _OF_LOOPS
        if getattr(config, name)
    ]
