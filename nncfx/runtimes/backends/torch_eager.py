"""PyTorch itself, eager, on the device of the model."""

import torch
from typing_extensions import override

from nncfx.errors import RuntimeFailure
from nncfx.runtimes.protocol.module_session import ModuleSession, module_of
from nncfx.runtimes.protocol.runtime import BuildOptions, ModelSource, Runtime


class TorchEager(Runtime):
    """PyTorch in eager mode; takes modules."""

    name = "torch"
    reads_modules = True

    @override
    def build(self, source: ModelSource, options: BuildOptions) -> ModuleSession:
        model = module_of(source, self.name)
        if options.profile or options.settings:
            raise RuntimeFailure(
                "Runtime 'torch' has neither a profile nor settings of its own; leave them out."
            )
        return ModuleSession(model, options, lambda module, _: module)

    @override
    def version(self) -> str:
        return torch.__version__
