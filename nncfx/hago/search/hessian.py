"""Estimates the sensitivity of edges to fewer bits from the trace of the Hessian."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from nncfx.errors import ArgumentError
from nncfx.hago.search.evaluation import Evaluator
from nncfx.hago.search.rounding_errors import EdgeWatch, watched_model
from nncfx.hago.strategy.choice_space import Choices
from nncfx.narration import tracked
from nncfx.tracing import run
from nncfx.tracing.calls.tensors import tensors_in


def hessian_sensitivities(
    evaluator: Evaluator, choices: Choices, probes: int = 4, seed: int = 0
) -> list[dict[int, float]]:
    """Return the expected divergence of each choice of bits at each edge, alone.

    That is half the mean eigenvalue of the Hessian with respect to the values on the edge, times
    the squared error of rounding them, which is assumed to have no preferred direction. The
    Hessian is that of the divergence from the float model, which needs no labels; its trace is
    estimated by Hutchinson's method with random signs at the logits. It costs `probes` backward
    passes over the data, for any number of edges and choices, and is comparable to the
    measurements of `edge_sensitivities`. An edge with one choice has 0.

    Args:
        evaluator: Its model's first output is n x classes.
        choices: The bits of every edge.
        probes: Random vectors per batch; more give a more precise estimate.
        seed: Of the signs.

    Raises:
        ArgumentError: `probes` is below 1.

    Source: Dong et al., HAWQ-V2, 2020, equation 2; Hutchinson 1989.
    """
    if probes < 1:
        raise ArgumentError(f"{probes} probes estimate nothing. Give at least 1.")
    model, hooks = watched_model(evaluator, choices)
    generator = torch.Generator().manual_seed(seed)
    table = [dict.fromkeys(one, 0.0) for one in choices]
    samples = 0
    for inputs, labels in tracked(evaluator.batches, "Hessian"):
        with torch.enable_grad():
            logits = tensors_in(run(model, inputs))[0]
        samples += len(labels)
        for edge, trace in _traces(logits, hooks, probes, generator).items():
            curvature = trace / hooks[edge].zeros.numel()
            for bits, error in hooks[edge].errors.items():
                table[edge][bits] += curvature * error / 2
    return [{bits: harm / samples for bits, harm in one.items()} for one in table]


def _traces(
    logits: Tensor, hooks: Mapping[int, EdgeWatch], probes: int, generator: torch.Generator
) -> dict[int, float]:
    """Return the trace of the Hessian of the summed divergence with respect to each hook's values.

    If logits f have probabilities p, the Hessian with respect to f is `diag(p) - p p^T = B B^T`
    with `B = diag(sqrt(p)) - p sqrt(p)^T`. With J the derivative of f with respect to the values
    of an edge and v random signs, the expected squared length of `J^T B v` is the trace of `J^T B
    B^T J`.
    """
    leaves: Sequence[Tensor] = [one.zeros for one in hooks.values()]
    p = logits.detach().softmax(1)
    found = dict.fromkeys(hooks, 0.0)
    for _ in range(probes):
        signs = torch.randint(0, 2, p.shape, generator=generator, device="cpu") * 2.0 - 1
        weighted = p.sqrt() * signs
        weighted = weighted - p * weighted.sum(1, keepdim=True)
        gradients = torch.autograd.grad(logits, leaves, weighted, retain_graph=True)
        for edge, gradient in zip(hooks, gradients, strict=True):
            found[edge] += float(gradient.square().sum()) / probes
    return found
