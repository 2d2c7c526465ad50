"""How much each edge suffers from fewer bits, by the trace of the Hessian: no trial per choice."""

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
    """Return the divergence that each choice of bits at each edge is expected to bring, alone.

    That is half the mean eigenvalue of the Hessian, by the values on the edge, times the squared
    error of rounding them, as if that had no preferred direction. The Hessian is that of
    the divergence from the model in floats, which needs no labels; its trace is estimated by
    Hutchinson's method with random signs at the logits. It costs `probes` backward passes over
    the data in all, however many edges and choices there are, and compares with what
    `edge_sensitivities` measures. An edge with one choice has 0.

    Args:
        evaluator: Its model's first output is n x classes.
        choices: The bits of every edge.
        probes: Random vectors for each batch; more make the estimate surer.
        seed: Of the signs.

    Raises:
        ArgumentError: there is no probe.

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
    """Return the trace of the Hessian of the summed divergence, by what each hook has seen.

    Where logits f have probabilities p, the Hessian by f is `diag(p) - p p^T = B B^T` with
    `B = diag(sqrt(p)) - p sqrt(p)^T`. With J the derivative of f by the values of an edge and v
    random signs, the squared length of `J^T B v` is the trace of `J^T B B^T J` on average.
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
