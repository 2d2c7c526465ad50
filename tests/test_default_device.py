"""What torch makes by default elsewhere (a GPU; here a device without values) changes nothing."""

import ast
import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._device import _device_constructors

import nncfx
from nncfx.quantization import quantize_weights
from nncfx.search import find_level

CONSTRUCTORS = {one.__name__ for one in _device_constructors()}
IMAGES = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
OF_USERS = {"tasks", "testing"}
"""What makes models and data, as users do."""


def dense() -> nn.Module:
    torch.manual_seed(0)
    convolutions = (nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3))
    return nn.Sequential(*convolutions, nn.ReLU(), nn.Flatten(), nn.Linear(128, 4))


@contextmanager
def bfloat16_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def compressed(algorithm: str) -> Callable[[nn.Module], nn.Module]:
    def made(model: nn.Module) -> nn.Module:
        config: dict[str, Any] = {"compression": {"algorithm": algorithm}}
        controller, network = nncfx.create_compressed_model(model, config, IMAGES)
        controller.level = 0.5
        (network.train()(IMAGES).sum() + controller.loss()).backward()
        network.load_state_dict(network.state_dict())
        return nncfx.thin(network, IMAGES).model

    return made


@pytest.mark.parametrize(
    "compress",
    [
        compressed("filter_pruning"),
        compressed("magnitude_sparsity"),
        compressed("rb_sparsity"),
        compressed("weight_clustering"),
        compressed("entropy_constraint"),
        lambda model: nncfx.quantize(model, [IMAGES]),
        lambda model: quantize_weights(model, example_inputs=IMAGES, bits=4),
    ],
)
@pytest.mark.parametrize("elsewhere", [lambda: torch.device("meta"), bfloat16_by_default])
def test_what_is_made_is_the_same(
    compress: Callable[[nn.Module], nn.Module],
    elsewhere: Callable[[], AbstractContextManager[object]],
) -> None:
    model = dense().eval()
    made: list[Tensor] = []
    for place in (nullcontext, elsewhere):
        with place():
            torch.manual_seed(0)
            found = compress(copy.deepcopy(model)).eval()
        made.append(found(IMAGES))
    assert torch.equal(*made)


def test_what_is_found_is_the_same() -> None:
    def level() -> float:
        return find_level(lambda one: 0.9 - 0.5 * one**3, 0.88, max_evaluations=5).level

    expected = level()
    with torch.device("meta"):
        assert level() == expected


def test_every_tensor_is_made_on_a_device_that_is_named(pytestconfig: pytest.Config) -> None:
    root = pytestconfig.rootpath / "nncfx"
    found = [
        f"{path}:{call.lineno}"
        for path in root.rglob("*.py")
        if path.relative_to(root).parts[0] not in OF_USERS
        for call in _unnamed(path)
    ]
    assert found == []


def _unnamed(path: Path) -> list[ast.Call]:
    """Return calls of torch's constructors without a device, outside of contexts that name one."""
    tree = ast.parse(path.read_text())
    within = {
        id(inner)
        for block in ast.walk(tree)
        if isinstance(block, ast.With)
        and any(ast.unparse(item).startswith("torch.device(") for item in block.items)
        for inner in ast.walk(block)
    }
    return [
        one
        for one in ast.walk(tree)
        if isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr in CONSTRUCTORS
        and ast.unparse(one.func.value) == "torch"
        and "device" not in {each.arg for each in one.keywords}
        and id(one) not in within
    ]
