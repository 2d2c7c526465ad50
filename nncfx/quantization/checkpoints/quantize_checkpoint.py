"""Quantize a checkpoint from shards to shards, with one block of the model in memory."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Literal, final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from typing_extensions import override

from nncfx.errors import ArgumentError, StorageError, error_text, require_known
from nncfx.quantization.blocks.block_calls import BlockCall, find_blocks
from nncfx.quantization.blocks.block_engine import (
    WeightSettings,
    check_any_quantized,
    quantize_block,
    run_blocks,
)
from nncfx.quantization.blocks.weight_formats import WEIGHT_FORMATS
from nncfx.quantization.checkpoints.checkpoint_folder import IN_FLOAT, Shards, ShardWriter
from nncfx.quantization.packing.layouts import LAYOUTS, Layout, MatrixGrid, centred
from nncfx.quantization.packing.linear_layers import is_turned
from nncfx.quantization.packing.tensor_names import file_names
from nncfx.quantization.preparation.separate_experts import separate_experts
from nncfx.storage.checksum import crc32
from nncfx.storage.models.integer_tensor import IntegerTensor
from nncfx.tracing import ExampleInputs, as_call

_REST: Final = "rest"
"""The shard with all tensors outside of the blocks."""


def quantize_checkpoint(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    batches: Iterable[ExampleInputs],
    settings: WeightSettings | None = None,
    *,
    layout: Literal["compressed-tensors", "gptq"] = "compressed-tensors",
    blocks: str | None = None,
) -> Path:
    """Quantize the blocks of a transformers checkpoint into a folder that transformers reads.

    The model is built without its weights. Each block is read from the shards, quantized on the
    outputs of the quantized blocks before it, written, and freed. Tensors outside of the blocks
    are copied. A run that was killed continues after the last block on disk; finished blocks are
    read back with their rounded weights. Experts of a mixture are quantized one by one and keep
    their names in the files.

    Args:
        source: A folder with config.json and safetensors, as `save_pretrained` writes it.
        target: A folder without weights, or with shards of an earlier run with the same settings,
            model and batches, which is continued.
        batches: Inputs of the model, as in `quantize_blocks`.
        settings: Settings of the weights; defaults if None.
        layout: The format of the tensors: that of compressed-tensors (vLLM, transformers), or
            that of GPTQ, with scales in float16.
        blocks: The name of the list of blocks, if there are several candidates.

    Returns:
        `target`.

    Raises:
        ArgumentError: the layout does not support the format or groups of different sizes, the
            model has no blocks, or the blocks have no layer to quantize.
        StorageError: a file cannot be read or written, or `target` holds other weights.
        CompressionError: the input of a layer is not finite.
    """
    chosen = settings or WeightSettings()
    written = _layout(layout, chosen)
    chosen = dataclasses.replace(chosen, half_scales=chosen.half_scales or written.half_scales)
    own = Path(source)
    shards = Shards(own)
    model = empty_model(own)
    called = file_names(model)
    separate_experts(model)
    state = model.state_dict(keep_vars=True)
    shards.check({called.get(name, name): one for name, one in state.items()})
    names = find_blocks(model, blocks)
    loader = _Loader(model, shards, called)
    given = list(batches) if chosen.needs_data else None
    told = {"layout": layout, "blocks": names, "batches": _checksum(given or ())}
    writer = ShardWriter(target, shards, dataclasses.asdict(chosen) | told)
    prefixes = tuple(f"{name}." for name in names)
    if not writer.has(_REST):  # before the model holds these tensors as well
        inside = {called.get(name, name) for name in state if name.startswith(prefixes)}
        outside = [
            name for name in shards.names if not (name in inside or name.startswith(prefixes))
        ]
        writer.write(_REST, {name: shards.read(name) for name in outside})
    loader.load(lambda name: not name.startswith(prefixes))
    run = _Run(loader, writer, written, chosen)
    run_blocks(model, names, given, run.work, before=run.before, after=run.after)
    check_any_quantized(model, is_any=bool(run.grids))
    ignored = [
        name for name, one in model.named_modules() if _multiplies(one) and name not in run.grids
    ]
    by_grid: dict[MatrixGrid, list[str]] = {}
    for name, grid in sorted(run.grids.items(), key=itemgetter(0)):  # shards have another order
        by_grid.setdefault(grid, []).append(name)
    named = {grid: loader.all_names(names) for grid, names in by_grid.items()}
    writer.finish(written.config(named, loader.all_names(ignored)))
    return Path(target)


def _multiplies(module: nn.Module) -> bool:
    """Return whether programs can treat `module` as a linear layer, such as a router."""
    own = dict(module.named_parameters(recurse=False)).get("weight")
    return own is not None and own.ndim == 2 and not isinstance(module, nn.Embedding)  # noqa: PLR2004 (a matrix)


def _checksum(batches: Iterable[ExampleInputs]) -> str:
    """Return the checksum of all tensors in `batches`."""
    found = 0
    for one in pytree.tree_leaves([as_call(batch) for batch in batches]):
        if isinstance(one, Tensor):
            values = one.detach().cpu().reshape(-1)
            found = crc32(f"{one.dtype} {tuple(one.shape)}".encode(), found)
            found = crc32(values.view(torch.uint8).numpy(), found)
    return f"{found:08x}"


def _layout(name: str, settings: WeightSettings) -> Layout:
    require_known("layout", name, LAYOUTS)
    LAYOUTS[name].check(settings.weights, settings.group_size)
    return LAYOUTS[name]


@final
class _Run:
    """Reads, quantizes, writes and frees each block.

    Attributes:
        grids: Grids of the quantized matrices, by name.
    """

    def __init__(
        self, loader: "_Loader", writer: ShardWriter, layout: Layout, settings: WeightSettings
    ) -> None:
        self._loader, self._writer = loader, writer
        self._layout, self._settings = layout, settings
        self._present = ""
        self.grids: dict[str, MatrixGrid] = {}

    def before(self, name: str) -> None:
        self._present = name
        self._loader.load(lambda one: one.startswith(f"{name}."))

    def work(
        self,
        name: str,
        block: nn.Module,
        calls: Sequence[BlockCall],
        counted: Sequence[Tensor | None],
    ) -> None:
        if self._writer.has(name):
            tensors = self._loader.as_in_memory(name, self._writer.read(name))
            stored = _restore(block, tensors, self._layout)
            if WEIGHT_FORMATS[self._settings.weights].mode == "symmetric":
                stored = {own: centred(one) for own, one in stored.items()}
            self._note(name, stored)
            return
        stored = quantize_block(block, calls, counted, self._settings)
        turned = [own for own in stored if is_turned(block.get_submodule(own))]
        if turned:
            raise ArgumentError(
                f"'{name}.{turned[0]}' is a {type(block.get_submodule(turned[0])).__name__}; the "
                f"layout '{self._layout.name}' has a place for nn.Linear alone. Use "
                "quantize_blocks and export_onnx."
            )
        self._note(name, stored)
        self._writer.write(name, self._tensors(name, block, stored))

    def _note(self, name: str, stored: Mapping[str, IntegerTensor]) -> None:
        asked = WEIGHT_FORMATS[self._settings.weights].group or self._settings.group_size
        for own, one in stored.items():
            self.grids[f"{name}.{own}"] = MatrixGrid.of(one, asked)
            if self._layout.one_size and len(set(self.grids.values())) > 1:
                size = one.values.numel() // one.scale.numel()
                raise ArgumentError(
                    f"'{name}.{own}' has groups of {size}, and layers before it have others, as "
                    f"{asked} does not divide all widths; the layout '{self._layout.name}' has "
                    "one group_size. Pass one that divides all, or layout='compressed-tensors'."
                )

    def _tensors(
        self, name: str, block: nn.Module, stored: Mapping[str, IntegerTensor]
    ) -> dict[str, Tensor]:
        """Return the tensors of a block by their names in files."""
        loader = self._loader
        found = {
            loader.file_name(f"{name}.{own}"): one
            for own, one in block.state_dict().items()
            if not (own.endswith(".weight") and own.removesuffix(".weight") in stored)
        }
        for own, integers in stored.items():
            module = loader.file_module(f"{name}.{own}")
            parts = self._layout.tensors(integers)
            found |= {f"{module}.{part}": one for part, one in parts.items()}
        return found

    def after(self) -> None:
        self._loader.forget(f"{self._present}.")


def _restore(
    block: nn.Module, tensors: Mapping[str, Tensor], layout: Layout
) -> dict[str, IntegerTensor]:
    """Load a block from the tensors of its shard; return the quantized weights by name."""
    own = block.state_dict()
    state: dict[str, Tensor] = {}
    matrices: dict[str, dict[str, Tensor]] = {}
    for key, one in tensors.items():
        if key in own and one.dtype == own[key].dtype:
            state[key] = one
        else:
            module, _, part = key.rpartition(".")
            matrices.setdefault(module, {})[part] = one
    stored: dict[str, IntegerTensor] = {}
    for module, parts in matrices.items():
        like = own[f"{module}.weight"]
        stored[module] = layout.read(parts, (like.shape[0], like.shape[1]), like.dtype)
        state[f"{module}.weight"] = stored[module].dequantize()
    block.load_state_dict(state)
    return stored


@final
class _EmptyOnMeta(TorchFunctionMode):
    """Creates tensors of `torch.empty`, which parameters begin as, on the meta device."""

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if func is torch.empty:
            given["device"] = "meta"
        return func(*args, **given)


def empty_model(source: Path, **changes: int) -> nn.Module:
    """Return the model of a folder with its buffers, but without weights.

    `changes` are applied to its config.

    Raises:
        StorageError: the config is missing, damaged, or that of a quantized model.
    """
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(source)
    except Exception as error:  # each config raises its own errors
        raise StorageError(
            f"transformers cannot read '{source}/config.json' ({error_text(error)}). Copy it "
            "again."
        ) from error
    if quantized := getattr(config, "quantization_config", None):
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
        raise StorageError(
            f"'{source}' holds a quantized model ({method}), whose codes are not weights. "
            f"{IN_FLOAT}"
        )
    for name, value in changes.items():
        setattr(config, name, value)
    named = str(next(iter(config.architectures or ()), ""))
    make = getattr(getattr(transformers, named, None), "_from_config", None)
    dtype = config.dtype if isinstance(config.dtype, torch.dtype) else torch.float32
    try:
        with _EmptyOnMeta():
            model: nn.Module = (make or transformers.AutoModelForCausalLM.from_config)(
                config, dtype=dtype
            )
    except ValueError as error:  # the Auto class raises it for other models than language models
        raise StorageError(
            f"transformers cannot make the model of '{source}/config.json', of the class "
            f"'{named}'. Load it and use quantize_blocks."
        ) from error
    _empty(model)
    return model.eval()


def _empty(model: nn.Module) -> None:
    """Move parameters to the meta device that were created with values, such as norms."""
    filled = [one for one in model.parameters() if not one.is_meta]
    empty = {id(one): nn.Parameter(one.to("meta"), requires_grad=False) for one in filled}
    for module in model.modules():
        for name, one in module.named_parameters(recurse=False, remove_duplicate=False):
            if id(one) in empty:
                setattr(module, name, empty[id(one)])


@final
class _Loader:
    """Loads tensors of shards into the parameters of a model, and frees them again."""

    def __init__(self, model: nn.Module, shards: Shards, called: Mapping[str, str]) -> None:
        self._model, self._shards = model, shards
        self._held = frozenset(shards.names)
        self._called = called

    def file_name(self, name: str) -> str:
        """Return the name of a tensor of the model in files."""
        return self._called.get(name, name)

    def file_module(self, name: str) -> str:
        """Return the name of a module with a weight in files."""
        return self.file_name(f"{name}.weight").removesuffix(".weight")

    def all_names(self, modules: Sequence[str]) -> list[str]:
        """Return the names of modules in files, for vLLM, and in memory, for transformers."""
        files = [self.file_module(name) for name in modules]
        return list(dict.fromkeys([*files, *modules]))

    def as_in_memory(self, module: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors of files, or parts of quantized ones, by their names in `module`."""
        block = self._model.get_submodule(module)
        whole = {self.file_name(f"{module}.{name}"): name for name in block.state_dict()}
        bases = {
            known.removesuffix(".weight"): name.removesuffix(".weight")
            for known, name in whole.items()
            if name.endswith(".weight")
        }
        found = {}
        for name, one in tensors.items():
            base, _, part = name.rpartition(".")
            found[whole[name] if name in whole else f"{bases[base]}.{part}"] = one
        return found

    def load(self, is_asked: Callable[[str], bool]) -> None:
        """Read the parameters and buffers that are in the files and whose names are asked for."""
        tensors = self._model.state_dict(keep_vars=True)
        read = {
            id(one): self._read(name, one)
            for name, one in tensors.items()
            if is_asked(name) and self.file_name(name) in self._held
        }
        for name, one in tensors.items():
            if id(one) in read:
                self._put(name, read[id(one)])

    def _read(self, name: str, own: Tensor) -> Tensor:
        value = self._shards.read(self.file_name(name))
        if not isinstance(own, nn.Parameter):
            return value  # routers have biases in float32 whatever the model is
        return nn.Parameter(value.to(own.dtype), requires_grad=False)

    def forget(self, prefix: str) -> None:
        """Free the parameters whose names begin with `prefix`."""
        for name, parameter in list(self._model.named_parameters()):
            if name.startswith(prefix):
                self._put(name, nn.Parameter(parameter.to("meta"), requires_grad=False))

    def _put(self, name: str, tensor: Tensor) -> None:
        module, _, own = name.rpartition(".")
        setattr(self._model.get_submodule(module), own, tensor)
