"""AOTInductor: a module compiled ahead of time into a package that needs no Python."""

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from typing_extensions import override

from nncfx.errors import RuntimeFailure
from nncfx.runtimes.protocol.engine_cache import kept_engine, processor_digest
from nncfx.runtimes.protocol.module_session import Arguments, Forward, ModuleSession, module_of
from nncfx.runtimes.protocol.runtime import BuildOptions, ModelSource, Runtime


class AotInductor(Runtime):
    """A package of AOTInductor; takes modules, and compiles for the shapes of inputs in `bind`.

    Settings are Inductor's own options (`"max_autotune": "1"`), given as numbers or words. A
    package is compiled code, which loading executes: keep the cache where only you can write.
    """

    name = "aot_inductor"
    reads_modules = True

    @override
    def build(self, source: ModelSource, options: BuildOptions) -> ModuleSession:
        model = module_of(source, self.name)
        if options.profile:
            raise RuntimeFailure(f"Runtime '{self.name}' keeps no profile; leave it out.")
        settings = {name: _value(text) for name, text in options.settings}

        def prepare(module: nn.Module, arguments: Arguments) -> Forward:
            return _loaded(module, arguments, options.cache, settings)

        return ModuleSession(model, options, prepare)

    @override
    def version(self) -> str:
        return torch.__version__


def _loaded(
    module: nn.Module, arguments: Arguments, cache: Path | None, settings: dict[str, Any]
) -> Forward:
    from torch._inductor import aoti_load_package

    with torch.inference_mode(mode=False), torch.no_grad():
        program = torch.export.export(module, *arguments)
    facts = {
        "runtime": AotInductor.name,
        "version": torch.__version__,
        "model": _program_digest(program, arguments) if cache else "",
        "processor": processor_digest(),
        "settings": repr(sorted(settings.items())),
    }
    package, _ = kept_engine(cache, facts, lambda: _compiled(program, settings))
    with tempfile.TemporaryDirectory(prefix="nncfx-") as folder:
        path = Path(folder) / "model.pt2"
        path.write_bytes(package)
        loaded: Forward = aoti_load_package(str(path))
    return loaded


def _compiled(program: torch.export.ExportedProgram, settings: dict[str, Any]) -> bytes:
    from torch._inductor import aoti_compile_and_package

    with tempfile.TemporaryDirectory(prefix="nncfx-") as folder:
        path = Path(folder) / "model.pt2"
        aoti_compile_and_package(
            program, package_path=str(path), inductor_configs=settings or None
        )
        return path.read_bytes()


def _program_digest(program: torch.export.ExportedProgram, arguments: Arguments) -> str:
    """Return a digest of the graph, the weights and the shapes and dtypes of the inputs."""
    digest = hashlib.sha256(program.graph_module.code.encode())
    digest.update(repr(program.graph_signature).encode())
    tensors = [*program.state_dict.values(), *program.constants.values()]
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            flat = tensor.detach().cpu().contiguous().flatten()
            digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    for leaf in pytree.tree_leaves(arguments):
        told = (leaf.dtype, tuple(leaf.shape)) if isinstance(leaf, torch.Tensor) else leaf
        digest.update(repr(told).encode())
    return digest.hexdigest()


def _value(text: str) -> str | int:
    return int(text) if text.lstrip("-").isdecimal() else text
