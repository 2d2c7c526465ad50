"""Accuracy after quantization of the pretrained CIFAR-10 and MNIST networks, and of peers.

All files run in ONNX Runtime on the full test set; calibration sees the first 300 training
images. "simulated" is the same model in torch, "fitted" has GPTQ and bias correction, "trained" a
few hundred steps of quantization-aware training on top. Ranges of activations have the least
squared error (`mse`, the default) everywhere. nncf needs an environment of its own. A call goes on
where another one with the same journal was ended:

    python benchmarks/ptq_accuracy.py --data ../shared/data --journal accuracy.jsonl \
        [--only resnet20-A] [--rows "nncfx W8A8"] [--nncf-python /path/to/python]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from packaged import PACKAGED
from pretrained import PRETRAINED, named
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn
from torch.nn import functional as F

import nncfx
from nncfx.quantization import QuantizeOptions, quantize
from nncfx.quantization.ranges.observation import quantizers_of
from nncfx.runtimes import exact_byte_sums

CALIBRATION_IMAGES = 300
FITTED = QuantizeOptions(rounding="gptq", correct_biases=True)


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--journal", type=Path, required=True, help="keeps results, line by line")
    parser.add_argument("--only", nargs="+", default=list(PRETRAINED), choices=list(PRETRAINED))
    parser.add_argument("--nncf-python", help="a Python that has nncf 3.4")
    parser.add_argument(
        "--steps", type=int, default=300, help="of quantization-aware training; 0: none"
    )
    parser.add_argument("--rows", nargs="+", help="only what has one of these labels")
    parser.add_argument("--quick", action="store_true", help="nothing that runs in torch")
    parser.add_argument("--images", type=int, default=10_000, help="of the test set")
    return parser.parse_args()


class Subject:
    """One network with its data; measures what others make of it."""

    def __init__(self, name: str, options: argparse.Namespace, folder: Path) -> None:
        """Load it, and export it in float to `folder`."""
        self.name, self.options, self.folder = name, options, folder
        self.source = PACKAGED.get(name) or named(name)
        self.images, self.labels = self.source.test(options.data, options.images)
        self.calibration = self.source.train(options.data, CALIBRATION_IMAGES)[0]
        self.float_file = folder / f"{name}.onnx"
        nncfx.export_onnx(self.model(), self.float_file, self.images[:1])

    def model(self) -> nn.Module:
        """Return the network in float."""
        return self.source.load(self.options.data)

    def simulated(self, model: nn.Module) -> float:
        """Return the accuracy of a torch model, in percent."""
        with torch.no_grad():
            found = torch.cat([model(one).argmax(1) for one in self.images.split(250)])
        return (found == self.labels).double().mean().item() * 100

    def executed(self, file: Path) -> float:
        """Return the accuracy of a file in ONNX Runtime, in percent."""
        return float((self.logits(file).argmax(1) == self.labels).double().mean()) * 100

    def logits(self, file: Path) -> Tensor:
        """Return what a file returns for the test images in ONNX Runtime, n x 10."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        for entry in exact_byte_sums().items():
            options.add_session_config_entry(*entry)
        session = onnxruntime.InferenceSession(str(file), options)
        name = session.get_inputs()[0].name
        found = [session.run(None, {name: one.numpy()})[0] for one in self.images.split(250)]
        return torch.from_numpy(np.concatenate(found))

    def exported(self, model: nn.Module) -> Path:
        """Return the file of a quantized model."""
        file = self.folder / f"{self.name}-nncfx.onnx"
        nncfx.export_onnx(model, file, self.images[:1])
        return file


def nearest(subject: Subject, weight_bits: int = 8, activation_bits: int = 8) -> nn.Module:
    """Quantize with the defaults."""
    return quantize(
        subject.model(),
        subject.calibration.split(50),
        weight_bits=weight_bits,
        activation_bits=activation_bits,
    )


def without_vnni(subject: Subject) -> nn.Module:
    """Quantize with weights of 7 bits, for a processor without VNNI."""
    batches = subject.calibration.split(50)
    return quantize(subject.model(), batches, target="onnxruntime-avx2")


def fitted(subject: Subject, weight_bits: int, activation_bits: int) -> nn.Module:
    """Quantize to fewer bits, with rounding and biases fitted to the calibration images."""
    return quantize(
        subject.model(),
        subject.calibration.split(50),
        weight_bits=weight_bits,
        activation_bits=activation_bits,
        options=FITTED,
    )


def trained(subject: Subject, weight_bits: int, activation_bits: int) -> nn.Module:
    """Quantize, then train weights and grids a little to do what the network did in float."""
    model, teacher = fitted(subject, weight_bits, activation_bits), subject.model()
    for quantizer in quantizers_of(model).values():
        quantizer.learn()
    steps, batches = subject.options.steps, _batches(subject)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for images in _shown(batches, steps, f"{subject.name}: training"):
        with torch.no_grad():
            target = teacher(images).log_softmax(1)
        loss = F.kl_div(
            model(images).log_softmax(1), target, log_target=True, reduction="batchmean"
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    for quantizer in quantizers_of(model).values():
        quantizer.freeze()
    return model.eval()


def _shown(batches: Iterator[Tensor], count: int, title: str) -> Iterator[Tensor]:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for _ in progress.track(range(count), description=title):
            yield next(batches)


def _batches(subject: Subject) -> Iterator[Tensor]:
    """Yield random training images without end, shifted and mirrored if they are photographs."""
    images, _ = subject.source.train(subject.options.data)
    generator = torch.Generator().manual_seed(0)
    while True:
        batch = images[torch.randint(len(images), (64,), generator=generator)]
        if subject.source.is_cifar:
            left, up = torch.randint(0, 9, (2,), generator=generator).tolist()
            batch = F.pad(batch, (4, 4, 4, 4))[..., up : up + 32, left : left + 32]
            if torch.rand((), generator=generator) < 0.5:  # noqa: PLR2004 (a half)
                batch = batch.flip(-1)
        yield batch


class Reader(CalibrationDataReader):
    """Feeds the calibration images to ONNX Runtime's quantizer."""

    def __init__(self, name: str, images: Tensor) -> None:
        """Take the name of the model's input."""
        self._batches = iter({name: one.numpy()} for one in images.split(50))

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next batch, at the end nothing."""
        return next(self._batches, None)


def onnxruntime_file(
    subject: Subject, method: CalibrationMethod = CalibrationMethod.MinMax
) -> Path:
    """Quantize with ONNX Runtime's static quantizer: QDQ, u8 activations, s8 per channel."""
    prepared, file = (subject.folder / f"{subject.name}-ort-{one}.onnx" for one in ("fp", "q"))
    # of recurrent layers and conformers its symbolic shapes end in a TypeError
    is_packaged = subject.name in PACKAGED
    quant_pre_process(subject.float_file, prepared, skip_symbolic_shape=is_packaged)
    quantize_static(
        prepared,
        file,
        Reader(_input_name(prepared), subject.calibration),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=method,
    )
    return file


NNCF = """
import sys, numpy, nncf, onnx
source, images, name, file = sys.argv[1:]
data = nncf.Dataset([{name: one[None]} for one in numpy.load(images)])
model = nncf.quantize(onnx.load(source), data, subset_size=300)
onnx.save(model, file)
"""


def nncf_file(subject: Subject) -> Path:
    """Quantize with nncf, in the Python given for it.

    From opset 21 on it writes files that ONNX Runtime refuses, so it is given one of opset 17.
    """
    images, file = subject.folder / "images.npy", subject.folder / f"{subject.name}-nncf.onnx"
    source = subject.folder / f"{subject.name}-17.onnx"
    np.save(images, subject.calibration.numpy())
    torch.onnx.export(
        subject.model(),
        (subject.images[:1],),
        source,
        dynamo=False,
        opset_version=17,
        input_names=["x"],
        dynamic_axes={"x": {0: "batch"}},
    )
    command = [subject.options.nncf_python, "-c", NNCF, source, images, "x", file]
    subprocess.run([str(one) for one in command], check=True, stdout=sys.stderr)  # noqa: S603 (ours)
    return file


def _input_name(file: Path) -> str:
    return str(onnx.load(file).graph.input[0].name)


def rows(subject: Subject) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield what is measured, and how."""
    yield "float", lambda: subject.executed(subject.float_file)
    yield "nncfx W8A8", lambda: subject.executed(subject.exported(nearest(subject)))
    yield "nncfx W8A8, fitted", lambda: subject.executed(subject.exported(fitted(subject, 8, 8)))
    yield "nncfx W8A8, avx2", lambda: subject.executed(subject.exported(without_vnni(subject)))
    yield "ONNX Runtime W8A8", lambda: subject.executed(onnxruntime_file(subject))
    if subject.options.nncf_python:
        yield "nncf 3.4 W8A8", lambda: subject.executed(nncf_file(subject))
    yield "nncfx W4A8", lambda: subject.executed(subject.exported(nearest(subject, 4, 8)))
    yield "nncfx W4A8, fitted", lambda: subject.executed(subject.exported(fitted(subject, 4, 8)))
    if subject.options.steps:
        yield (
            "nncfx W4A8, trained",
            lambda: subject.executed(subject.exported(trained(subject, 4, 8))),
        )
    if not subject.options.quick:
        yield "nncfx W8A8, simulated", lambda: subject.simulated(nearest(subject))
        yield "nncfx W4A4, fitted, simulated", lambda: subject.simulated(fitted(subject, 4, 4))
        if subject.options.steps:
            yield (
                "nncfx W4A4, trained, simulated",
                lambda: subject.simulated(trained(subject, 4, 4)),
            )


def main() -> None:
    """Measure what the journal has not yet, and print a table of what it has."""
    options = arguments()
    found = journaled(options.journal)
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            for label, measure in rows(Subject(name, options, Path(folder))):
                is_asked = options.rows is None or label in options.rows
                if is_asked and (name, label) not in found:
                    found[name, label] = measure()
                    with options.journal.open("a") as file:
                        file.write(json.dumps([name, label, found[name, label]]) + "\n")
    labels = list(dict.fromkeys(label for _, label in found))
    print(f"| network | {' | '.join(labels)} |\n|---{'|---:' * len(labels)}|")
    for name in dict.fromkeys(one for one, _ in found):
        cells = [f"{found.get((name, label), float('nan')):.2f}" for label in labels]
        print(f"| {name} | {' | '.join(cells)} |")


def journaled(journal: Path) -> dict[tuple[str, str], float]:
    """Return the top-1 accuracies of a journal, by network and model."""
    if not journal.exists():
        return {}
    lines = [json.loads(one) for one in journal.read_text().splitlines()]
    return {(name, label): accuracy for name, label, accuracy in lines}


if __name__ == "__main__":
    main()
