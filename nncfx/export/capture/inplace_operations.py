"""Replace the in-place operations of a program where no view observes the change."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree


def replace_inplace_operations(graph: fx.Graph) -> bool:
    """Replace in-place operations, such as `relu_` by `relu`; return whether none is left.

    `graph` is left unchanged if one of them has no other form, changes an input of the program,
    or changes data that is read later under another name.

    Args:
        graph: of a captured program; the value of each node is its `meta["val"]`.
    """
    changes = [node for node in graph.nodes if is_inplace(node)]
    if not changes:
        return True
    order = {node: place for place, node in enumerate(graph.nodes)}
    names: dict[int, list[fx.Node]] = {}
    for node in order:
        for storage in _storages(node):
            names.setdefault(storage, []).append(node)
    if not all(_is_unseen(node, names, order) for node in changes):
        return False
    for node in changes:
        place = order[node]
        node.target = _functional(node.target)
        node.args[0].replace_all_uses_with(
            node, delete_user_cb=lambda user, place=place: order[user] > place
        )
    return True


def is_inplace(node: fx.Node) -> bool:
    """Return whether `node` changes one of its inputs."""
    return isinstance(node.target, OpOverload) and _schema(node.target).is_mutable


def _functional(operator: object) -> OpOverload | None:
    """Return the operator that computes the same without changing its argument."""
    if not isinstance(operator, OpOverload) or operator.namespace != "aten":
        return None
    _, name, overload = str(operator).split(".")
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    found = getattr(packet, overload, None)
    if not isinstance(found, OpOverload) or _schema(found).is_mutable:
        return None
    own, other = _schema(operator).arguments, _schema(found).arguments
    changed = [one.name for one in own if one.alias_info is not None]
    names = [one.name for one in own]
    return found if names == [one.name for one in other] and changed == names[:1] else None


def _schema(operator: OpOverload) -> Any:  # noqa: ANN401 (torch has no type for it)
    return operator._schema  # noqa: SLF001 (no public way)


def _is_unseen(node: fx.Node, names: dict[int, list[fx.Node]], order: dict[fx.Node, int]) -> bool:
    """Return whether no later node reads, under another name, the data that `node` changes."""
    changed = node.args[0]
    if _functional(node.target) is None or not isinstance(changed, fx.Node):
        return False
    storages = _storages(changed)
    if len(storages) != 1 or _storages(node) != storages:
        return False
    values = [one.meta["val"] for one in (node, *node.all_input_nodes)]
    if len({one.dtype for one in values if isinstance(one, torch.Tensor)}) > 1:
        return False
    place = order[node]
    others = [one for one in names[next(iter(storages))] if one is not changed]
    return changed.op == "call_function" and all(
        one.op == "call_function"
        and (order[one] >= place or all(order[user] <= place for user in one.users))
        for one in others
    )


def _storages(node: fx.Node) -> set[int]:
    found: Sequence[object] = pytree.tree_leaves(node.meta.get("val"))
    tensors = (_unwrapped(one) for one in found if isinstance(one, torch.Tensor))
    return {StorageWeakRef(one.untyped_storage()).cdata for one in tensors}  # type: ignore[no-untyped-call]  # torch leaves it so


def _unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that has the storage: inside vmap, it is wrapped."""
    while is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
    return tensor
