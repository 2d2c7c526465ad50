"""The builder of knowledge distillation, which plans taps on outputs and copies the teacher."""

from collections.abc import Sequence
from typing import final

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from typing_extensions import override

from nncfx.algorithms.knowledge_distillation.config import KnowledgeDistillationConfig
from nncfx.algorithms.knowledge_distillation.controller import (
    ALGORITHM,
    KnowledgeDistillationController,
)
from nncfx.algorithms.knowledge_distillation.loss import DistillationLoss, Tap, Teacher
from nncfx.controllers import Builder, register_algorithm
from nncfx.errors import CompressionError
from nncfx.graph import NNCFGraph, output_address
from nncfx.network import NNCFNetwork, unwrap
from nncfx.tracing import Insertion, PostSite, as_call
from nncfx.tracing.calls.inputs import own_tensors as tensor_copies
from nncfx.tracing.calls.model_copy import copy_of

_LAST = 100
"""Priority of taps, which record outputs after all other hooks."""


@final
@register_algorithm(KnowledgeDistillationConfig)
class KnowledgeDistillationBuilder(Builder[KnowledgeDistillationConfig]):
    """Plans taps on the model's outputs; the last one carries the teacher."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        outputs = list(_output_sites(model.nncf.graph).values())
        if not outputs:
            raise CompressionError(
                "knowledge_distillation finds no floating-point output that an operation makes, "
                "so there is nothing to compare. Take the item out of the config."
            )
        teacher = Teacher(unwrap(copy_of(model)))
        _check_teacher(teacher, model)
        taps = [*(Tap() for _ in outputs[1:]), Tap(teacher)]
        return [
            Insertion(site, tap, _LAST, ALGORITHM) for site, tap in zip(outputs, taps, strict=True)
        ]

    @override
    def controller(
        self, model: NNCFNetwork, insertions: Sequence[Insertion]
    ) -> KnowledgeDistillationController:
        taps = {one.site: one.hook for one in insertions if isinstance(one.hook, Tap)}
        graph = model.nncf.graph
        outputs = {n: taps[site] for n, site in _output_sites(graph).items()}
        teacher = next(tap.teacher for tap in taps.values() if tap.teacher is not None)
        loss = DistillationLoss(self.config, teacher, outputs, len(graph.outputs))
        return KnowledgeDistillationController(model, self.config, loss)


def _check_teacher(teacher: Teacher, model: NNCFNetwork) -> None:
    """Raise an error if the copy runs the original model, which would then teach itself."""
    if not any("forward" in vars(one) for one in model.modules()):
        return
    names = {module: name for name, module in model.named_modules()}

    def refuse(module: nn.Module, _: object) -> None:
        if module in names:
            raise CompressionError(
                "knowledge_distillation would compare the model with itself: a forward that is "
                f"set on an instance calls '{names[module]}' of the model, in a copy as well, "
                "and the copy is the teacher. Define the forward in a subclass, or set it after "
                "create_compressed_model. TRL's SFTTrainer sets one: use transformers' Trainer."
            )

    args, kwargs = tensor_copies(as_call(model.nncf.example_inputs))
    with register_module_forward_pre_hook(refuse):
        teacher(*args, **kwargs)


def _output_sites(graph: NNCFGraph) -> dict[int, PostSite]:
    """Return the site of each floating-point output, by number.

    Inputs that are returned are left out, and so is a scalar among outputs with axes, which is
    the loss of labels passed with the inputs.
    """
    sites = {}
    operations = set(graph.addresses)
    floats = {
        number: info
        for number, info in enumerate(graph.outputs)
        if getattr(torch, info.dtype).is_floating_point
    }
    has_axes = any(info.shape for info in floats.values())
    for number, info in floats.items():
        for edge in graph.incoming(output_address(number)):
            if edge.source in operations and bool(info.shape) == has_axes:
                sites[number] = PostSite(edge.source, edge.source_port)
    return sites
