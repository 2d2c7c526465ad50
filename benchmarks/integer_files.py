"""Bytes a parameter of quantized models: safetensors, `.nncfx` and ONNX of the same weights.

    python benchmarks/integer_files.py [--data ../shared/data]

int8 of convolutional networks by `nncfx.quantize`, int8 and int4 (groups of 32) of a BERT by
`quantize_weights`, all with initial weights. With the data come networks that are trained, in
int8, and with weights in 4 bits.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from pretrained import PRETRAINED
from torch import Tensor, nn

import nncfx
from nncfx.quantization.weight_only import quantize_weights
from nncfx.tracing import ExampleInputs

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
TOKENS = {"input_ids": torch.arange(32).reshape(2, 16)}


def resnet() -> nn.Module:
    """Return pytorchcv's ResNet-20 for CIFAR-10: 272,474 parameters."""
    from pytorchcv.models.resnet_cifar import resnet20_cifar10  # noqa: PLC0415 (of the row)

    return resnet20_cifar10().eval()


def mobilenet() -> nn.Module:
    """Return pytorchcv's MobileNetV2: 3,504,960 parameters."""
    from pytorchcv.models.mobilenetv2 import mobilenetv2_w1  # noqa: PLC0415 (of the row)

    return mobilenetv2_w1().eval()


def bert() -> nn.Module:
    """Return a BERT of four layers of 256: 11,170,560 parameters."""
    from transformers import BertConfig, BertModel  # noqa: PLC0415 (of the row)

    config = BertConfig(
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        return_dict=False,
    )
    return BertModel(config).eval()


def int8(make: Callable[[], nn.Module], inputs: ExampleInputs) -> nn.Module:
    """Return the model with weights and activations in 8 bits."""
    return nncfx.quantize(make(), [inputs])


def weights(bits: int) -> Callable[[Callable[[], nn.Module], ExampleInputs], nn.Module]:
    """Return what quantizes the weights of a model alone."""

    def quantized(make: Callable[[], nn.Module], inputs: ExampleInputs) -> nn.Module:
        return quantize_weights(make(), bits=bits, example_inputs=inputs)  # type: ignore[arg-type]

    return quantized


ROWS = {
    "ResNet-20, int8": (resnet, IMAGES, int8),
    "MobileNetV2, int8": (mobilenet, torch.randn(1, 3, 224, 224), int8),
    "BERT, weights int8": (bert, TOKENS, weights(8)),
    "BERT, weights int4": (bert, TOKENS, weights(4)),
}


def initial() -> Iterator[tuple[str, int, nn.Module, ExampleInputs]]:
    """Yield names, numbers of parameters, quantized models and inputs."""
    for name, (make, inputs, quantized) in ROWS.items():
        torch.manual_seed(0)
        model = quantized(make, inputs)
        yield name, sum(one.numel() for one in make().parameters()), model, inputs


def trained(data: Path) -> Iterator[tuple[str, int, nn.Module, Tensor]]:
    """Yield the same of trained networks."""
    for name, source in PRETRAINED.items():
        images, _ = source.train(data, 100)
        for bits in (8, 4):
            model = source.load(data)
            count = sum(one.numel() for one in model.parameters())
            model = nncfx.quantize(
                model, images.split(50), weight_bits=bits, activation_bits=8, inplace=True
            )
            yield f"{name}, W{bits}A8", count, model, images[:2]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with data/ and weights/")
    options = parser.parse_args()
    print("| model | parameters | safetensors | `.nncfx` | ONNX |", flush=True)
    print("|---|---:|---:|---:|---:|", flush=True)
    for name, count, model, inputs in trained(options.data) if options.data else initial():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            safetensors = nncfx.save(path / "a.safetensors", model).stat().st_size
            own = nncfx.storage.save(path / "a.nncfx", model).size_bytes
            nncfx.export_onnx(model, path / "a.onnx", inputs)
            onnx = sum(one.stat().st_size for one in path.glob("a.onnx*"))
        sizes = " | ".join(f"{one / count:.3f}" for one in (safetensors, own, onnx))
        print(f"| {name} | {count:,} | {sizes} |", flush=True)


if __name__ == "__main__":
    main()
