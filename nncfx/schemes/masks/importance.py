"""Scores of channel groups that depend on more than the producers' weights.

Like `group_scores`, every function returns one score per group of each prunable set, in the
order of `channels.prunable`; pass the result to `keep_groups`.
"""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from nncfx.errors import CompressionError
from nncfx.float64 import in_float64
from nncfx.graph.channels import Channels, GroupSet, Role
from nncfx.schemes.masks.exact_masks import comparable, group_scores, named
from nncfx.schemes.wide_floats import wide

_PIXELS: Final = 2
"""Axes of one image."""


def taylor_scores(
    channels: Channels,
    weights: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    *,
    normalize: bool = True,
) -> list[Tensor]:
    """Return the first-order change of the loss if the weights of a group become zero.

    Args:
        channels: the channel analysis of the model.
        weights: parameters by dotted name (at least all producers).
        gradients: of the loss, by the same names; sums over many batches have less noise.
        normalize: divide by the mean of the set.

    Raises:
        GraphError: `weights` lacks a producer.
        CompressionError: `gradients` lacks a producer, or a score is NaN.

    Source: Molchanov et al., "Importance Estimation for Neural Network Pruning", 2019, eq. 8
    (its root).
    """
    products = _products(channels, weights, gradients)
    return group_scores(channels, products, lambda b: b.sum(dim=1).abs(), normalize=normalize)


def fisher_scores(
    channels: Channels,
    weights: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    *,
    normalize: bool = True,
) -> list[Tensor]:
    """Return half the sum of squared weights times squared gradients of each group.

    The squared gradient approximates the diagonal of the Hessian. Arguments and errors are those
    of `taylor_scores`.

    Source: LeCun et al., "Optimal Brain Damage", 1989, eq. 5, with the Fisher approximation.
    """
    products = _products(channels, weights, gradients)
    score = lambda blocks: blocks.square().sum(dim=1) / 2  # noqa: E731 (a formula)
    return group_scores(channels, products, score, normalize=normalize)


def norm_scale_scores(
    channels: Channels, weights: Mapping[str, Tensor], *, normalize: bool = True
) -> list[Tensor]:
    """Return the mean magnitude of the norms' scales of each group.

    A scale is a vector named `weight` that follows the channels, like that of a batch norm. Sets
    without a norm get the scores of their L2 norm, divided by its mean.

    Args:
        channels: the channel analysis of the model.
        weights: parameters by dotted name.
        normalize: divide by the mean of the set.

    Raises:
        GraphError: `weights` lacks a member.
        CompressionError: a score is NaN.

    Source: Liu et al., "Learning Efficient Convolutional Networks through Network Slimming", 2017.
    """
    norms = group_scores(channels, weights, "l2norm", normalize=True)
    scores = []
    for group_set, norm in zip(channels.prunable, norms, strict=True):
        scales = _scales(group_set, weights)
        values = torch.stack(scales).mean(dim=0) if scales else norm
        scores.append(comparable(group_set, values, normalize=normalize))
    return scores


def mean_magnitude(activation: Tensor, axis: int = 1) -> Tensor:
    """Return the mean magnitude of each channel of `activation`; channels lie along `axis`.

    >>> mean_magnitude(torch.tensor([[1.0, 0.0], [-3.0, 0.0]]))
    tensor([2., 0.])
    """
    return wide(activation.detach()).abs().movedim(axis, 0).flatten(1).mean(dim=1)


def nonzero_share(activation: Tensor, axis: int = 1) -> Tensor:
    """Return the fraction of non-zero entries of each channel: 1 minus the APoZ.

    Meant for outputs of a ReLU.

    Source: Hu et al., "Network Trimming", 2016, eq. 1 (average percentage of zeros).

    >>> nonzero_share(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    tensor([0.5000, 0.0000])
    """
    dtype = torch.promote_types(activation.dtype, torch.float32)
    found = activation.detach() != 0
    return in_float64(found.movedim(axis, 0).flatten(1)).mean(dim=1).to(activation.device, dtype)


def mean_rank(activation: Tensor, axis: int = 1) -> Tensor:
    """Return the mean rank of each channel's feature maps.

    Args:
        activation: images, `n x c x h x w` if `axis` is 1; the last two axes are pixels.
        axis: the axis of the channels; not one of the last two.

    Raises:
        CompressionError: the channels have no images: `activation` has fewer than three axes, or
            `axis` is among the last two.

    Source: Lin et al., "HRank: Filter Pruning using High-Rank Feature Map", 2020, eq. 4.

    >>> mean_rank(torch.stack([torch.eye(3), torch.ones(3, 3)])[None])
    tensor([3., 1.])
    """
    if activation.dim() <= _PIXELS or axis % activation.dim() >= activation.dim() - _PIXELS:
        raise CompressionError(
            f"An activation of the shape {tuple(activation.shape)} has no image for each index of "
            f"axis {axis}, so its channels have no rank. Pass what a convolution gives, "
            "n x c x h x w, or use mean_magnitude."
        )
    images = wide(activation.detach()).movedim(axis, 0).flatten(1, -3)
    ranks: Tensor = torch.linalg.matrix_rank(images)
    return ranks.to(images.dtype).mean(dim=1)


def activation_scores(
    channels: Channels, activity: Mapping[str, Tensor], *, normalize: bool = True
) -> list[Tensor]:
    """Return the mean activity of the channels of each group.

    Args:
        channels: the channel analysis of the model.
        activity: one number per output channel, by the dotted name of a producing weight, such as
            the mean over batches of `mean_magnitude`, `nonzero_share` or `mean_rank` of the
            layer's output. The producers of a set that are present count equally; one is enough.
        normalize: divide by the mean of the set.

    Raises:
        CompressionError: `activity` lacks all producers of a set, or contains NaN for one.
    """
    scores = []
    for group_set in channels.prunable:
        found = []
        for member in group_set.by_role(Role.PRODUCER):
            if member.parameter in activity:
                values = activity[member.parameter].detach().cpu()
                found.append(values[torch.from_numpy(member.indices.copy())].mean(dim=1))
        if not found:
            names = ", ".join(m.parameter for m in group_set.by_role(Role.PRODUCER))
            raise CompressionError(
                f"No activity is given for '{group_set.name}', so its groups have no score. Give "
                f"one number per channel for one of {names}."
            )
        values = torch.stack(found).mean(dim=0)
        scores.append(comparable(group_set, values, normalize=normalize))
    return scores


def _scales(group_set: GroupSet, weights: Mapping[str, Tensor]) -> list[Tensor]:
    found = []
    for member in group_set.by_role(Role.FOLLOWER):
        if member.is_buffer or member.parameter.rpartition(".")[2] != "weight":
            continue
        vector = named(weights, member.parameter).detach()
        if vector.ndim == 1:
            found.append(
                wide(vector).abs().cpu()[torch.from_numpy(member.indices.copy())].mean(dim=1)
            )
    return found


def _products(
    channels: Channels, weights: Mapping[str, Tensor], gradients: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    products = {}
    for group_set in channels.prunable:
        for member in group_set.by_role(Role.PRODUCER):
            name = member.parameter
            if member.is_buffer or name in products:
                continue
            if name not in gradients:
                raise CompressionError(
                    f"'{name}' has no gradient, from which the score of its channels is computed. "
                    "Run a backward pass of the loss, and pass the gradients by name."
                )
            products[name] = wide(named(weights, name).detach()) * wide(gradients[name].detach())
    return products
