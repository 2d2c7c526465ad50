"""Answer before_and_after.py for the checkout on PYTHONPATH: hashes of files, costs of steps."""

import copy
import gc
import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import numpy_helper
from trace_transformers import TRANSFORMERS, make_transformers
from trace_zoos import make_pytorchcv

import nncfx
from nncfx.channels import analyze_channels
from nncfx.quantization import QuantizeOptions, RangeRequest, quantize_weights
from nncfx.schemes import group_scores, keep_groups, zero_groups
from nncfx.thinning import thin


def network(name: str) -> tuple[Any, Any]:
    """Return a network of a zoo in evaluation mode, always the same weights, and its inputs."""
    torch.manual_seed(0)
    model, inputs = make_transformers(name) if name in TRANSFORMERS else make_pytorchcv(name)
    return model.eval(), inputs


def quantized(model: Any, inputs: Any, target: str) -> Any:  # noqa: ANN401
    """Return an int8 copy whose ranges are those of some random examples."""
    ends = RangeRequest(method="min_max")
    plain = QuantizeOptions(
        activation_range=ends,
        weight_range=ends,
        equalize=False,
        rounding="nearest",
        correct_biases=False,
    )
    return nncfx.quantize(model, [inputs], target=target, samples=4, options=plain)


def exported(name: str, kind: str) -> dict[str, Any]:
    """Return a hash of what a network's file computes, and how often each operator occurs."""
    model, inputs = network(name)
    target = kind.rsplit(maxsplit=1)[-1] if kind.startswith("int8") else "onnxruntime"
    if kind.startswith("int8"):
        model = quantized(model, inputs, target)
    elif kind == "w8":
        model = quantize_weights(model, example_inputs=inputs, bits=8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        nncfx.export_onnx(model, path, inputs, target=target)
        graph = onnx.load(path).graph
    return {
        "hash": outputs_hash(graph),
        "operators": dict(Counter(node.op_type for node in graph.node)),
        "constants": sorted(constant_hash(one) for one in graph.initializer),
    }


def constant_hash(tensor: Any) -> str:  # noqa: ANN401 (onnx.TensorProto)
    """Return a hash of type, shape and numbers of a constant."""
    numbers = numpy_helper.to_array(tensor)
    head = f"{tensor.data_type} {list(tensor.dims)}".encode()
    return hashlib.sha256(head + numbers.tobytes()).hexdigest()[:16]


def outputs_hash(graph: Any) -> str:  # noqa: ANN401 (onnx.GraphProto)
    """Return a hash of how the outputs of a file are computed, whatever its values are called."""
    known = {one.name: constant_hash(one) for one in graph.initializer}
    known |= {one.name: f"input {n}" for n, one in enumerate(graph.input)}
    known[""] = "none"
    for node in graph.node:  # in the order of the computation, as ONNX asks for
        attributes = sorted(one.SerializeToString(deterministic=True) for one in node.attribute)
        inputs = " ".join(known[one] for one in node.input)
        text = f"{node.domain} {node.op_type} {attributes} {inputs}".encode()
        found = hashlib.sha256(text).hexdigest()
        known |= {one: f"{found} {n}" for n, one in enumerate(node.output) if one}
    outputs = " ".join(known[one.name] for one in graph.output)
    return hashlib.sha256(outputs.encode()).hexdigest()[:16]


@contextmanager
def prepared(name: str, step: str) -> Iterator[Callable[[], object]]:
    """Yield one step of work on a network, which can be repeated."""
    model, inputs = network(name)
    channels = None
    if step == "thin":
        channels = analyze_channels(model, inputs)
        weights = dict(model.named_parameters(remove_duplicate=False))
        keep = keep_groups(group_scores(channels, weights, "l1norm", normalize=True), 0.5)
        zero_groups(channels, keep, weights)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        work: dict[str, Callable[[], object]] = {
            "wrap": lambda: nncfx.wrap(copy.deepcopy(model), inputs),
            "channels": lambda: analyze_channels(model, inputs),
            "thin": lambda: thin(model, inputs, channels=channels),
            "quantize": lambda: quantized(model, inputs, "onnxruntime"),
            "export": lambda: nncfx.export_onnx(model, path, inputs, target="onnxruntime"),
        }
        yield work[step]


def timed(name: str, step: str) -> dict[str, Any]:
    """Return the CPU seconds of one step on a network."""
    with prepared(name, step) as work:
        began = time.process_time()
        work()
        return {"seconds": time.process_time() - began}


def counted(name: str, step: str) -> dict[str, Any]:
    """Return the instructions of one step on a network.

    This process runs under callgrind, which writes to the folder that its argument names.
    """
    with prepared(name, step) as work:
        for _ in range(3):  # Python rewrites code that runs often
            work()
        gc.collect()
        control("--zero")
        control("--instr=on")
        work()
        control("--instr=off")
    folder = Path(sys.argv[1])
    for old in folder.iterdir():
        old.unlink()
    control("--dump")
    (total,) = [
        line.split()[1]
        for one in folder.iterdir()
        for line in one.read_text().splitlines()
        if line.startswith("totals:")
    ]
    return {"instructions": int(total)}


def control(option: str) -> None:
    """Give an option to the callgrind that runs this process."""
    command = ["callgrind_control", option, str(os.getpid())]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 (ours)


ASKS = {"files": exported, "times": timed, "instructions": counted}


def serve() -> None:
    """Answer requests, one JSON line each; what others print goes to the other stream."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for line in sys.stdin:
        ask, name, what = json.loads(line)
        try:
            found = ASKS[ask](name, what)
        except Exception as error:  # noqa: BLE001 (a refusal is a result: compared as well)
            found = {"error": f"{type(error).__name__}: {error!s:.300}"}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    serve()
