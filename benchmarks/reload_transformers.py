"""Save and load small transformers, thinned and quantized, and print which compute the same.

Each model of trace_transformers.py, random weights: half of its channel groups are set to zero
and thinned away; weights are quantized to 8 bits, and to 4. `save_pretrained` writes a folder,
`from_pretrained` reads it, and every output has to be equal, bit for bit.

    python benchmarks/reload_transformers.py --table reload.md
"""

import argparse
import os
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from thin_coverage import EXPERTS, brief, scattered
from torch import nn
from trace_transformers import TRANSFORMERS, make_transformers

from nncfx.errors import machine_fault
from nncfx.integrations.pretrained import from_pretrained, save_pretrained
from nncfx.quantization.weight_only import quantize_weights
from nncfx.schemes import group_scores, keep_groups, zero_groups
from nncfx.thinning import prunable_channels, thin
from nncfx.tracing import run
from nncfx.tracing.calls.tensors import tensors_in

HEADER: Final = "| model | thinned | 8 bits | 4 bits |\n|---|---|---|---|"
EQUAL: Final = "equal"


def thinned(model: nn.Module, inputs: Any) -> nn.Module:  # noqa: ANN401 (as models take them)
    """Return `model` without half of its channel groups."""
    channels = prunable_channels(model, inputs)
    weights = dict(model.named_parameters(remove_duplicate=False))
    keep = keep_groups(group_scores(channels, weights, "l1norm", normalize=True), 0.5)
    zero_groups(channels, keep, weights)
    result = thin(model, inputs, channels=channels)
    before, after = result.parameters
    if after == before:
        raise AssertionError("nothing was removed")
    return result.model


WAYS: Final = {
    "thinned": thinned,
    "8 bits": lambda model, inputs: quantize_weights(model, example_inputs=inputs, bits=8),
    "4 bits": lambda model, inputs: quantize_weights(model, example_inputs=inputs, bits=4),
}


def check(name: str, way: str) -> str:
    """Return what became of one model."""
    torch.manual_seed(0)
    model, inputs = make_transformers(name)
    model = scattered(model).eval()
    if name in EXPERTS:
        model.set_experts_implementation("eager")
    small = WAYS[way](model, inputs).eval()
    with tempfile.TemporaryDirectory() as folder:
        file = save_pretrained(small, folder, example_inputs=inputs)
        again = from_pretrained(folder)
    if name in EXPERTS:
        again.set_experts_implementation("eager")
    with torch.no_grad():
        expected, found = (tensors_in(seeded(one, inputs)) for one in (small, again))
    equal = [
        torch.equal(*pair) or bool(torch.isnan(pair[0]).all())
        for pair in zip(expected, found, strict=True)
    ]
    form = "" if file.name == "nncfx.safetensors" else " (widths in the config)"
    return EQUAL + form if all(equal) else f"{equal.count(False)} outputs of {len(equal)} differ"


def seeded(model: nn.Module, inputs: Any) -> Any:  # noqa: ANN401 (as models give them)
    """Return what `model` computes; some, such as ViTMAE, draw at random."""
    torch.manual_seed(0)
    return run(model, inputs)


def row(name: str) -> str:
    """Return the line of one model."""
    cells = []
    for way in WAYS:
        try:
            cells.append(check(name, way))
        except Exception as error:
            if machine_fault(error) is not None:
                raise
            cells.append(f"FAIL: {brief(error)}")
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table, and how many come back equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="names of models")
    parser.add_argument("--table", type=Path, help="file of rows; models in it are not run again")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    there = options.table is not None and options.table.exists()
    rows = options.table.read_text().splitlines()[2:] if there else []
    done = {one.split("|")[1].strip() for one in rows}
    with (options.table or Path(os.devnull)).open("a") as table:
        if not there:
            print(HEADER, file=table)
        for name in TRANSFORMERS:
            if name in done or (options.only and name not in options.only):
                continue
            rows.append(row(name))
            print(rows[-1], flush=True)
            print(rows[-1], file=table, flush=True)
    for column, way in enumerate(WAYS, start=2):
        counts = Counter(one.split("|")[column].strip().partition(":")[0] for one in rows)
        print(f"{way}: " + ", ".join(f"{count} {word}" for word, count in counts.items()))


if __name__ == "__main__":
    main()
