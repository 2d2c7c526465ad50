"""Knowledge distillation: taps on the inputs and outputs of the model."""

import copy
from collections.abc import Sequence
from typing import final

import torch
from typing_extensions import override

from nncfx.algorithms.knowledge_distillation.config import KnowledgeDistillationConfig
from nncfx.algorithms.knowledge_distillation.controller import (
    ALGORITHM,
    KnowledgeDistillationController,
)
from nncfx.algorithms.knowledge_distillation.loss import DistillationLoss, Tap, Teacher
from nncfx.controllers import Builder, register_algorithm
from nncfx.errors import CompressionError
from nncfx.graph import NNCFGraph, input_address, output_address
from nncfx.network import NNCFNetwork, unwrap
from nncfx.tracing import Insertion, PostSite, PreSite, Priority

__all__ = ["KnowledgeDistillationBuilder"]

_LAST = 100
"""Outputs are seen after every other hook has changed them."""


@final
@register_algorithm(KnowledgeDistillationConfig)
class KnowledgeDistillationBuilder(Builder[KnowledgeDistillationConfig]):
    """Plans taps on the model's inputs and outputs; the first output's tap carries the teacher."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        graph = model.nncf.graph
        outputs = _output_sites(graph)
        if not outputs:
            raise CompressionError(
                "knowledge_distillation finds no floating-point output that an operation makes, "
                "so there is nothing to compare. Take the item out of the config.",
            )
        sites: list[tuple[PreSite | PostSite, Tap]] = [
            (site, Tap(copies=graph.find(site.address).function.endswith("_")))
            for site in _input_sites(graph).values()
        ]
        sites += [(site, Tap()) for site in outputs.values()]
        teacher = Teacher(unwrap(copy.deepcopy(model)))
        sites[-1][1].add_module("teacher", teacher)
        return [
            Insertion(
                site,
                tap,
                Priority.DEFAULT if isinstance(site, PreSite) else _LAST,
                ALGORITHM,
            )
            for site, tap in sites
        ]

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> KnowledgeDistillationController:
        taps = {one.site: one.hook for one in insertions if isinstance(one.hook, Tap)}
        inputs = {n: taps[site] for n, site in _input_sites(model.nncf.graph).items()}
        outputs = {n: taps[site] for n, site in _output_sites(model.nncf.graph).items()}
        teacher = next(
            child
            for tap in taps.values()
            for child in tap.children()
            if isinstance(child, Teacher)
        )
        loss = DistillationLoss(
            self.config,
            teacher,
            (inputs, outputs),
            model.nncf.example_inputs,
        )
        return KnowledgeDistillationController(model, self.config, loss)


def _input_sites(graph: NNCFGraph) -> dict[int, PreSite]:
    """Return where each input is read first, by number; an input that nothing reads is absent."""
    sites = {}
    operations = set(graph.addresses)
    for number in range(len(graph.inputs)):
        readers = graph.outgoing(input_address(number))
        first = next((edge for edge in readers if edge.target in operations), None)
        if first is not None:
            sites[number] = PreSite(first.target, first.target_port)
    return sites


def _output_sites(graph: NNCFGraph) -> dict[int, PostSite]:
    """Return what makes each floating-point output, by number; inputs passed on are absent."""
    sites = {}
    operations = set(graph.addresses)
    for number, info in enumerate(graph.outputs):
        for edge in graph.incoming(output_address(number)):
            if edge.source in operations and getattr(torch, info.dtype).is_floating_point:
                sites[number] = PostSite(edge.source, edge.source_port)
    return sites
