"""`torch.compile`, on the device of the model."""

from typing import Final

import torch
from torch import nn
from typing_extensions import override

from nncfx.errors import RuntimeFailure, require_known
from nncfx.runtimes.protocol.module_session import Arguments, Forward, ModuleSession, module_of
from nncfx.runtimes.protocol.runtime import BuildOptions, ModelSource, Runtime

_SETTINGS: Final = ("mode", "backend")
# Instances of one class share torch's count of compilations, and a search has many.
_COMPILATIONS: Final = 256


class TorchCompile(Runtime):
    """PyTorch compiled by Inductor; takes modules.

    Compiles in `bind`, for the shapes of the inputs, so no timed call compiles. Settings:
    `mode` and `backend`, as `torch.compile` takes them.
    """

    name = "torch_compile"
    reads_modules = True

    @override
    def build(self, source: ModelSource, options: BuildOptions) -> ModuleSession:
        model = module_of(source, self.name)
        settings = dict(options.settings)
        for name in settings:
            require_known(f"{self.name} setting", name, _SETTINGS, error=RuntimeFailure)
        if options.profile:
            raise RuntimeFailure(f"Runtime '{self.name}' keeps no profile; leave it out.")

        def prepare(module: nn.Module, arguments: Arguments) -> Forward:
            return _compiled(module, arguments, settings)

        return ModuleSession(model, options, prepare)

    @override
    def version(self) -> str:
        return torch.__version__


def _compiled(module: nn.Module, arguments: Arguments, settings: dict[str, str]) -> Forward:
    from torch._dynamo import config

    compiled: Forward = torch.compile(
        module,
        dynamic=False,
        mode=settings.get("mode"),
        backend=settings.get("backend", "inductor"),
    )
    args, kwargs = arguments
    module(*args, **kwargs)  # if the model fails, eager errors are clearer
    # At its limit torch would silently run the module eagerly, which must not be timed.
    limits = {
        "recompile_limit": _COMPILATIONS,
        "accumulated_recompile_limit": _COMPILATIONS,
        "fail_on_recompile_limit_hit": True,
    }
    with config.patch(limits):
        compiled(*args, **kwargs)
    return compiled
