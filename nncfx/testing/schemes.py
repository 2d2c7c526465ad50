"""The promises of every scheme, for schemes of other packages and for nncfx's own.

Each promise is a function of a `SchemeSubject` that raises `AssertionError` if it is broken.
"""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError
from nncfx.network import unwrap, wrap
from nncfx.schemes import Scheme
from nncfx.testing.models import ConvAttentionNet, example_inputs
from nncfx.testing.other_device import checked_device
from nncfx.testing.refusals import check_refused

__all__ = ["SCHEME_PROMISES", "SchemeSubject"]


@dataclass(frozen=True, kw_only=True)
class SchemeSubject:
    """A scheme, and the meaning of its level.

    Attributes:
        scheme: The scheme.
        reads_level: Whether the level has an effect; level 0 then changes nothing.
        zeroes: Whether the level is the fraction of zero weights.
        rounding: How much a second projection may change weights, relative to the largest weight.
        bound: Whether the scheme is bound to the channels of the model before use.
    """

    scheme: Scheme
    reads_level: bool = True
    zeroes: bool = True
    rounding: float = 0.0
    bound: bool = False

    def compressed(self, level: float) -> ConvAttentionNet:
        """Return the suite's model, compressed at `level` and decompressed again."""
        model = ConvAttentionNet.fresh()
        self.compress(model, level)
        return model

    def compress(self, model: nn.Module, level: float) -> None:
        """Compress `model`, and decompress it."""
        scheme = self.ready(model)
        scheme.compress(model, level)
        scheme.decompress(model)

    def ready(self, model: nn.Module) -> Scheme:
        """Return the scheme, bound to `model` if `bound`."""
        if not self.bound:
            return self.scheme
        wrapped = wrap(copy.deepcopy(model), example_inputs())
        channels = wrapped.nncf.channels
        unwrap(wrapped)
        return self.scheme.bind(channels)


def level_zero_is_the_identity_bitwise(subject: SchemeSubject) -> None:
    """Negative zeros and the smallest numbers do not change either."""
    if not subject.reads_level:
        return
    model = ConvAttentionNet.fresh()
    with torch.no_grad():
        model.fc1.weight[0, :3] = torch.tensor([-0.0, 0.0, 1e-40])
    before = copy.deepcopy(model)
    subject.compress(model, 0.0)
    _check_equal(model, before)


def projecting_twice_is_projecting_once(subject: SchemeSubject) -> None:
    once = subject.compressed(0.5)
    twice = copy.deepcopy(once)
    subject.compress(twice, 0.5)
    if not subject.rounding:
        _check_equal(twice, once)
    for one, other in zip(twice.parameters(), once.parameters(), strict=True):
        limit = subject.rounding * float(other.detach().abs().max())
        torch.testing.assert_close(one, other, rtol=0, atol=limit)


def only_the_parameters_it_names_change(subject: SchemeSubject) -> None:
    before = dict(ConvAttentionNet.fresh().named_parameters())
    model = subject.compressed(0.5)
    named = subject.ready(ConvAttentionNet.fresh()).parameters(ConvAttentionNet.fresh())
    assert named <= before.keys(), f"no parameters: {sorted(named - before.keys())}"
    changed = {name for name, one in model.named_parameters() if not _same(one, before[name])}
    assert changed, "level 0.5 changes nothing"
    assert changed <= named, f"changed, but not named: {sorted(changed - named)}"


def a_higher_level_leaves_fewer_weights(subject: SchemeSubject) -> None:
    if not subject.zeroes:
        return
    counts = [
        sum(int(one.count_nonzero()) for one in subject.compressed(level).parameters())
        for level in (0.0, 0.25, 0.5, 0.75)
    ]
    assert all(more > fewer for more, fewer in pairwise(counts)), counts


def a_percentage_is_refused(subject: SchemeSubject) -> None:
    scheme, model = subject.ready(ConvAttentionNet.fresh()), ConvAttentionNet.fresh()
    check_refused(lambda: scheme.compress(model, 30), ArgumentError, "30")
    _check_equal(model, ConvAttentionNet.fresh())


def it_holds_settings_only(subject: SchemeSubject) -> None:
    """Compressing one model does not affect how it compresses the next."""
    again = pickle.loads(pickle.dumps(subject.scheme))  # noqa: S301 (pickled in this line)
    assert again == subject.scheme, "a pickled copy differs"
    first = subject.compressed(0.5)
    subject.compressed(0.75)
    _check_equal(subject.compressed(0.5), first)


def parameters_stay_themselves(subject: SchemeSubject) -> None:
    """Objects, shapes, dtypes and `requires_grad` do not change; autograd records nothing."""
    model = ConvAttentionNet.fresh()
    model.stem.weight.requires_grad_(False)
    before = {
        name: (one, one.shape, one.dtype, one.requires_grad)
        for name, one in model.named_parameters()
    }
    subject.compress(model, 0.5)
    for name, one in model.named_parameters():
        parameter, *rest = before[name]
        assert one is parameter, f"'{name}' is another object"
        assert [one.shape, one.dtype, one.requires_grad] == rest, name
        assert one.grad_fn is None, f"autograd has seen what was done to '{name}'"


def another_device_gives_the_same_weights(subject: SchemeSubject) -> None:
    """Tensors computed besides the weights, such as masks or codebooks, are on their device."""
    expected = subject.compressed(0.5)
    for float64 in (True, False):
        with checked_device(float64=float64) as device:
            model = ConvAttentionNet.fresh().to(device)
            scheme = subject.ready(ConvAttentionNet.fresh())
            scheme.compress(model, 0.5)
            scheme.decompress(model)
            model.cpu()
        _check_equal(model, expected)


SCHEME_PROMISES: Final[tuple[Callable[[SchemeSubject], None], ...]] = (
    level_zero_is_the_identity_bitwise,
    projecting_twice_is_projecting_once,
    only_the_parameters_it_names_change,
    a_higher_level_leaves_fewer_weights,
    a_percentage_is_refused,
    it_holds_settings_only,
    parameters_stay_themselves,
    another_device_gives_the_same_weights,
)
"""All promises; each is named after what it promises."""


def _same(one: Tensor, other: Tensor) -> bool:
    same_type = one.dtype == other.dtype == torch.float32
    return same_type and torch.equal(one.view(torch.int32), other.view(torch.int32))


def _check_equal(model: nn.Module, expected: nn.Module) -> None:
    others = dict(expected.named_parameters())
    differ = [name for name, one in model.named_parameters() if not _same(one, others[name])]
    assert not differ, f"these differ: {differ}"
