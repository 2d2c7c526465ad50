"""Support averages of weights; the state of hooks cannot be averaged, so it is copied."""

from torch import nn

from nncfx.errors import ArgumentError
from nncfx.network import NNCFNetwork


def keep_hooks(averaged: nn.Module, model: nn.Module) -> None:
    """Copy the state of the hooks of `model` (masks, codes, flags) to those of `averaged`.

    An average of masks removes nothing, and an average of codes has no meaning. Call this after
    averaging and before `averaged` is evaluated, stripped or saved, however the average was made.
    Parameters, including those of hooks, stay averages, and so do the model's own buffers.

    Args:
        averaged: A copy of `model`, such as the `module` of torch's `AveragedModel`.
        model: The wrapped model that is trained.

    Raises:
        ArgumentError: one of them is not wrapped, their hooks stand at different sites, or some
            return compressed values of the model's own weights (`lc`) instead of the average's.

    >>> import torch, nncfx
    >>> from torch.optim.swa_utils import AveragedModel
    >>> made = {"compression": {"algorithm": "magnitude_sparsity"}}
    >>> controller, model = nncfx.create_compressed_model(
    ...     torch.nn.Linear(4, 4), made, torch.ones(1, 4)
    ... )
    >>> average = AveragedModel(model, use_buffers=True)
    >>> controller.level = 0.5
    >>> average.update_parameters(model)
    >>> keep_hooks(average.module, model)
    >>> int((nncfx.strip(average.module.eval()).weight == 0).sum())
    8
    """
    theirs, ours = _hooks(model, "model"), _hooks(averaged, "averaged")
    if list(ours) != list(theirs):
        differing = sorted(set(ours) ^ set(theirs)) or ["their order"]
        raise ArgumentError(
            f"The average is not of this model: their hooks differ at {differing[0]}. Make the "
            "average after create_compressed_model, from the model that it returned."
        )
    for key, hook in theirs.items():
        if getattr(hook, "is_of_weight", False):
            raise ArgumentError(
                f"The hook at {key} gives the compressed value of the model's own weight, which "
                "the average would return instead of its own. Load the average and compress it: "
                "model.load_state_dict(averaged.state_dict()), then controller.compress() or "
                "controller.strip()."
            )
    for key, hook in ours.items():
        source = theirs[key]
        # Python numbers are not part of a state_dict
        for name, value in vars(source).items():
            if isinstance(value, bool | int | float | str) and name != "training":
                setattr(hook, name, value)
        hook.load_state_dict(source.state_dict() | dict(hook.named_parameters()))


def _hooks(model: nn.Module, name: str) -> dict[str, nn.Module]:
    """Return the hooks by site and algorithm, with a number if several have the same."""
    if not isinstance(model, NNCFNetwork):
        raise ArgumentError(
            f"'{name}' is a {type(model).__name__} and carries no hooks. Pass the wrapped model "
            "itself: of an AveragedModel, its .module."
        )
    found: dict[str, nn.Module] = {}
    for insertion in model.nncf.hooks:
        key = f"'{insertion.site}' of '{insertion.algorithm}'"
        number = sum(one == key or one.startswith(f"{key} #") for one in found)
        found[f"{key} #{number + 1}" if number else key] = insertion.hook
    return found
