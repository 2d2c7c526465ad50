"""Time wrapping, tracing and hooked forwards against nncf 3.4, interleaved in one process.

Identity hooks stand at the weight, the input and the output of every convolution and linear layer.
Times are CPU seconds of one thread, which other work on the machine hardly changes; ratios are
those of medians, the order changes from round to round. With --compiled, forwards under
torch.compile (Inductor) instead: raw, a second raw one, whose ratio shows the noise, and hooked;
all three hold the same parameters.

Needs torchvision, and nncf 3.4 for its columns (else they stay empty); on CPU builds of torch give
the folder of torchvision_on_cpu.py with --shim:

python benchmarks/hook_overhead.py --models resnet18 --sizes 32 --rounds 30
"""

import argparse
import copy
import importlib
import importlib.util
import itertools
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import torch
from torch import nn

from nncfx.network import wrap
from nncfx.tracing import Insertion, PostSite, PreSite, WeightSite

Times: TypeAlias = dict[str, list[float]]

MODELS: Final = ("resnet18", "resnet50", "mobilenet_v2", "vit_b_16")
LAYERS: Final = ("conv2d", "linear")
SIZES: Final = (224, 32)
HEADER: Final = """\
| model | size | wrap + trace ms | of nncf's | raw ms | wrapped | hooked | nncf hooked |
|---|---:|---:|---:|---:|---:|---:|---:|"""
COMPILED_HEADER: Final = """\
| model | size | raw ms | raw again | hooked | graph breaks |
|---|---:|---:|---:|---:|---:|"""


def built(name: str, size: int) -> nn.Module:
    """Return a model of torchvision for images of `size` pixels, weights at random."""
    package = importlib.import_module("torchvision.models")
    options = {"image_size": size} if name.startswith("vit") else {}
    model: nn.Module = package.get_model(name, **options)
    return model.eval()


def wrapped_ours(model: nn.Module, x: torch.Tensor) -> Any:  # noqa: ANN401 (of two classes)
    """Return the model wrapped and traced."""
    return wrap(model, x)


def hooked_ours(model: nn.Module, x: torch.Tensor) -> nn.Module:
    """Return the model with identity hooks."""
    wrapped = wrapped_ours(model, x)
    insertions = []
    for one in wrapped.nncf.graph.operations:
        if one.function in LAYERS:
            sites = [PreSite(one.address, 0), PostSite(one.address)]
            weights = [WeightSite.of(one.parameters[1])] if 1 in one.parameters else []
            insertions += [
                Insertion(site, nn.Identity(), 0, "identity") for site in (*sites, *weights)
            ]
    wrapped.nncf.register(insertions)
    wrapped.nncf.commit()
    hooked: nn.Module = wrapped
    return hooked


def wrapped_nncf(model: nn.Module, x: torch.Tensor) -> tuple[Any, Any]:
    """Return nncf's wrapped model and its graph."""
    hooks = importlib.import_module("nncf.torch.function_hook")
    builder = importlib.import_module("nncf.torch.function_hook.nncf_graph.nncf_graph_builder")
    wrapped = hooks.wrap_model(model)
    return wrapped, builder.build_nncf_graph(wrapped, x)


def hooked_nncf(model: nn.Module, x: torch.Tensor) -> nn.Module:
    """Return the model with identity hooks of nncf at the same places."""
    hooks = importlib.import_module("nncf.torch.function_hook")
    wrapped, graph = wrapped_nncf(model, x)
    for node in graph.get_all_nodes():
        if node.node_type in LAYERS:
            name = node.node_name
            hooks.register_pre_function_hook(wrapped, name, 0, nn.Identity())
            hooks.register_pre_function_hook(wrapped, name, 1, nn.Identity())
            hooks.register_post_function_hook(wrapped, name, 0, nn.Identity())
    hooked: nn.Module = wrapped
    return hooked


def interleaved(calls: Mapping[str, Callable[[], Callable[[], object]]], rounds: int) -> Times:
    """Return CPU seconds by name; every round calls all, each time in another order.

    What is timed is what each call returns: it prepares.
    """
    times: Times = {name: [] for name in calls}
    names = list(calls)
    for number in range(rounds + 2):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            prepared = calls[name]()
            start = time.thread_time()
            prepared()
            if number > 1:  # the first two warm up
                times[name].append(time.thread_time() - start)
    return times


def row(name: str, size: int, rounds: int, others: Mapping[str, Any]) -> str:
    """Return the row of one model at one size."""
    model, x = built(name, size), torch.rand(1, 3, size, size)
    wrappers = {"ours": wrapped_ours, **{key: one[0] for key, one in others.items()}}
    preparing = {key: partial(on_copy, one, model, x) for key, one in wrappers.items()}
    prepared = medians(interleaved(preparing, max(rounds // 3, 5)))
    forwards: dict[str, nn.Module] = {
        "raw": model,
        "wrapped": wrapped_ours(copy.deepcopy(model), x),
        "hooked": hooked_ours(copy.deepcopy(model), x),
        **{key: one[1](copy.deepcopy(model), x) for key, one in others.items()},
    }
    with torch.no_grad():
        calls = {key: partial(partial, one, x) for key, one in forwards.items()}
        times = medians(interleaved(calls, rounds))
    ours = prepared["ours"]
    ratio = f"{ours / prepared['nncf']:.2f}" if others else ""
    theirs = f"{times['nncf'] / times['raw']:.3f}" if others else ""
    return (
        f"| {name} | {size} | {ours * 1e3:.0f} | {ratio} | {times['raw'] * 1e3:.2f} "
        f"| {times['wrapped'] / times['raw']:.3f} | {times['hooked'] / times['raw']:.3f} "
        f"| {theirs} |"
    )


def compiled_row(name: str, size: int, rounds: int) -> str:
    """Return the row of one model at one size under torch.compile."""
    model, x = built(name, size), torch.rand(1, 3, size, size)
    forwards = {"raw": model, "again": sharing(model), "hooked": hooked_ours(sharing(model), x)}
    breaks = torch._dynamo.explain(forwards["hooked"])(x).graph_break_count  # noqa: SLF001 (torch's documented name)
    calls = {}
    with torch.no_grad():
        for key, one in forwards.items():
            calls[key] = partial(warmed, torch.compile(one, fullgraph=True), x)
        times = medians(interleaved(calls, rounds))
    again, hooked = (times[key] / times["raw"] for key in ("again", "hooked"))
    return (
        f"| {name} | {size} | {times['raw'] * 1e3:.2f} | {again:.3f} | {hooked:.3f} | {breaks} |"
    )


def warmed(model: Callable[..., object], x: torch.Tensor) -> Callable[[], object]:
    """Return the call of a compiled model, after one that brings its code to the front.

    The models share one forward, whose compiled versions torch tries last used first.
    """
    model(x)
    return partial(model, x)


def sharing(model: nn.Module) -> nn.Module:
    """Return a copy of `model` with the same parameters and buffers, at the same addresses."""
    tensors = (*model.parameters(), *model.buffers())
    return copy.deepcopy(model, {id(one): one for one in tensors})


def on_copy(
    function: Callable[[nn.Module, torch.Tensor], object], model: nn.Module, x: torch.Tensor
) -> Callable[[], object]:
    """Return the call of `function` on a copy of `model`."""
    return partial(function, copy.deepcopy(model), x)


def medians(times: Times) -> dict[str, float]:
    """Return the median of each."""
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--compiled", action="store_true", help="under torch.compile")
    parser.add_argument("--shim", help="folder of torchvision_on_cpu.py")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if chosen.shim:
        sys.path.insert(0, chosen.shim)
        importlib.import_module("torchvision_on_cpu")
    found = importlib.util.find_spec("nncf") is not None
    others = {"nncf": (wrapped_nncf, hooked_nncf)} if found else {}
    sys.stdout.write(f"{COMPILED_HEADER if chosen.compiled else HEADER}\n")
    for size, name in itertools.product(chosen.sizes, chosen.models):
        made = (
            compiled_row(name, size, chosen.rounds)
            if chosen.compiled
            else row(name, size, chosen.rounds, others)
        )
        sys.stdout.write(f"{made}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
