"""PQ-trees, which represent all orders that keep given sets contiguous.

A family has the consecutive-ones property if some order of all elements makes every set of the
family contiguous. A PQ-tree represents all such orders: the parts below a group (P-node) can be
in any order, those below a rigid node (Q-node) only in the given order or its mirror.

Sets are bit sets: Python integers whose bit `e` says that element `e` is in the set. The single
elements below a group are one bit set too, so the tree of `k` sets has at most about `2 k` nodes,
however many elements there are. Trees are immutable: `restricted` returns a new tree.

Source: K. S. Booth and G. S. Lueker, "Testing for the consecutive ones property, interval graphs,
and graph planarity using PQ-tree algorithms", J. Computer and System Sciences 13 (1976), 335-379.
The templates are theirs, applied from the top; groups of single elements as bit sets are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nncfx.errors import ArgumentError


class PQTree(NamedTuple):
    """A node with its subtree; create trees with `universal` and `restricted`."""

    elements: int
    """Bit set of every element at or below this node."""

    single: int
    """Bit set of the elements directly below this node; 0 for a rigid node."""

    children: tuple[PQTree, ...]
    """The other parts; below a group, each has at least two elements."""

    is_rigid: bool
    """Whether the children can only be in this order or its mirror (a Q-node)."""


class _Parts(NamedTuple):
    """The children of a node, partitioned by a bit set."""

    outside: list[PQTree]
    partial: list[PQTree]
    inside: list[PQTree]


def universal(elements: int) -> PQTree:
    """Return the tree of all orders of the bit set `elements`."""
    return PQTree(elements, elements, (), is_rigid=False)


def restricted(tree: PQTree, chosen: int) -> PQTree | None:
    """Return the tree of those orders of `tree` in which the bit set `chosen` is contiguous.

    None if there is no such order. `chosen` must be a subset of the tree's elements. The empty
    set, a single element and the set of all elements restrict nothing.
    """
    trail: list[tuple[PQTree, int]] = []
    node = tree
    while (below := _sole_holder(node, chosen)) is not None:
        trail.append((node, below))
        node = node.children[below]
    if not chosen & (chosen - 1) or not node.elements & ~chosen:
        return tree
    new = _restricted_rigid(node, chosen) if node.is_rigid else _restricted_group(node, chosen)
    if new is None:
        return None
    for parent, below in reversed(trail):
        children = (*parent.children[:below], new, *parent.children[below + 1 :])
        new = parent._replace(children=children)
    return new


def frontier(tree: PQTree) -> list[int]:
    """Return one order of the tree, the ascending one if the tree allows it.

    Parts of a group are sorted by their smallest element, and a rigid node begins at the end with
    the smaller one. So the order is ascending exactly if the ascending order is admissible.
    """
    order: list[int] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        if node.children:
            # The stack pops the last part first.
            stack.extend(reversed(_parts_in_order(node)))
        else:
            order.extend(elements_of(node.single))
    return order


def contiguous_tree(elements: int, sets: Sequence[int]) -> PQTree:
    """Return the tree of the orders of the bit set `elements` that keep every set contiguous.

    Raises:
        ArgumentError: there is no such order.

    >>> frontier(contiguous_tree(0b1111, [0b0011, 0b1011, 0b0101]))
    [2, 0, 1, 3]
    """
    tree = universal(elements)
    for position, members in enumerate(sets):
        narrower = restricted(tree, members)
        if narrower is None:
            message = (
                f"No order keeps sets 0 ... {position} contiguous together: they lack the "
                f"consecutive-ones property. Leave out set {position} ({members:#b}), or let "
                "contiguous_subset choose which to leave out."
            )
            raise ArgumentError(message)
        tree = narrower
    return tree


def elements_of(members: int) -> Iterator[int]:
    """Yield the elements of a bit set, ascending."""
    while members:
        lowest = members & -members
        yield lowest.bit_length() - 1
        members ^= lowest


def _sole_holder(node: PQTree, chosen: int) -> int | None:
    """Return the index of the child that holds all of `chosen`, or None if there is none."""
    for index, child in enumerate(node.children):
        if child.elements & chosen:
            return None if chosen & ~child.elements else index
    return None


def _group(single: int, children: Sequence[PQTree]) -> PQTree:
    """Return the parts as a group; a lone child is its own group."""
    if not single and len(children) == 1:
        return children[0]
    elements = single
    for child in children:
        elements |= child.elements
    return PQTree(elements, single, tuple(children), is_rigid=False)


def _groups_of(single: int, children: list[PQTree]) -> list[PQTree]:
    """Return a list of one group of the parts, or an empty list if there are no parts."""
    return [_group(single, children)] if single or children else []


def _with_part(single: int, children: list[PQTree], part: PQTree) -> PQTree:
    """Return a group of the given parts and `part`, which can be a single element."""
    if part.single == part.elements and not part.single & (part.single - 1):
        return _group(single | part.single, children)
    return _group(single, [*children, part])


def _told_apart(node: PQTree, chosen: int) -> _Parts:
    """Return the node's children outside, partly inside and inside `chosen`."""
    parts = _Parts([], [], [])
    for child in node.children:
        if not child.elements & chosen:
            parts.outside.append(child)
        elif child.elements & ~chosen:
            parts.partial.append(child)
        else:
            parts.inside.append(child)
    return parts


def _restricted_group(node: PQTree, chosen: int) -> PQTree | None:
    """Return the group with `chosen` contiguous (templates P2, P4 and P6)."""
    parts = _told_apart(node, chosen)
    if len(parts.partial) > 2:  # noqa: PLR2004 (a run has two ends)
        return None
    inside = _groups_of(node.single & chosen, parts.inside)
    single = node.single & ~chosen
    if not parts.partial:
        return _with_part(single, parts.outside, inside[0])
    left = _row(parts.partial[0], chosen)
    right = _row(parts.partial[1], chosen) if len(parts.partial) > 1 else []
    if left is None or right is None:
        return None
    rigid = _rigid([*left, *inside, *reversed(right)])
    return _with_part(single, parts.outside, rigid)


def _restricted_rigid(node: PQTree, chosen: int) -> PQTree | None:
    """Return the rigid node with `chosen` contiguous (templates Q2 and Q3)."""
    touched = [i for i, child in enumerate(node.children) if child.elements & chosen]
    first, last = touched[0], touched[-1]
    between = node.children[first + 1 : last]
    if any(child.elements & ~chosen for child in between):
        return None
    left = _row(node.children[first], chosen)
    right = _row(node.children[last], chosen)
    if left is None or right is None:
        return None
    before, after = node.children[:first], node.children[last + 1 :]
    return _rigid([*before, *left, *between, *reversed(right), *after])


def _row(node: PQTree, chosen: int) -> list[PQTree] | None:
    """Return the node's parts in a row, those outside `chosen` first, or None if impossible.

    A node wholly inside is a row of one (templates P3, P5 and Q2, down to the last partial node).
    """
    outside: list[PQTree] = []
    inside: list[PQTree] = []
    current: PQTree | None = node
    while current is not None:
        if not current.elements & ~chosen:
            return [*outside, current, *inside]
        step = _rigid_step(current, chosen) if current.is_rigid else _group_step(current, chosen)
        if step is None or len(step.partial) > 1:
            return None
        outside += step.outside
        inside = step.inside + inside
        current = step.partial[0] if step.partial else None
    return [*outside, *inside]


def _group_step(node: PQTree, chosen: int) -> _Parts:
    """Return the group's parts, with those outside and those inside each as one group."""
    parts = _told_apart(node, chosen)
    return _Parts(
        _groups_of(node.single & ~chosen, parts.outside),
        parts.partial,
        _groups_of(node.single & chosen, parts.inside),
    )


def _rigid_step(node: PQTree, chosen: int) -> _Parts | None:
    """Return the rigid node's parts, oriented with those outside first, or None."""
    children = node.children
    begins_inside = not children[0].elements & ~chosen
    ends_outside = not children[-1].elements & chosen
    if begins_inside or ends_outside:
        children = children[::-1]
    parts = _Parts([], [], [])
    for child in children:
        is_outside = not child.elements & chosen
        if is_outside and (parts.partial or parts.inside):
            return None
        if is_outside:
            parts.outside.append(child)
        elif not child.elements & ~chosen:
            parts.inside.append(child)
        elif parts.partial or parts.inside:
            return None
        else:
            parts.partial.append(child)
    return parts


def _rigid(children: Sequence[PQTree]) -> PQTree:
    """Return the parts as a rigid node."""
    elements = 0
    for child in children:
        elements |= child.elements
    return PQTree(elements, 0, tuple(children), is_rigid=True)


def _parts_in_order(node: PQTree) -> list[PQTree]:
    """Return the parts of a node in the order of `frontier`."""
    children = list(node.children)
    if node.is_rigid:
        turned = _smallest(children[-1]) < _smallest(children[0])
        return children[::-1] if turned else children
    children += [universal(1 << element) for element in elements_of(node.single)]
    return sorted(children, key=_smallest)


def _smallest(node: PQTree) -> int:
    """Return the smallest element of a node, as a bit set of one."""
    return node.elements & -node.elements
