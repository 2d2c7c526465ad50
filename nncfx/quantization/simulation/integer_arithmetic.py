"""Compute a quantized model like integer kernels, bitwise.

A simulation in float32 sums products of rounded numbers with small errors, and adds a bias that a
file stores as an integer. A sum close to the middle of two integers can then be rounded to the
wrong one; this affects about one element in some thousands. The next layer spreads the difference
to many elements, so after twenty layers one element in ten differs. Here results equal those of
the kernels bitwise.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary
from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.network import NNCFNetwork
from nncfx.operators import MOVEMENTS, functions_of, operation_kind
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.ranges.observation import quantizers_of
from nncfx.quantization.simulation.float_kernels import (
    average_pooled,
    channel_mean,
    hard_sigmoid,
    logistic,
    normalized,
    resized,
)
from nncfx.quantization.simulation.integer_sums import (
    BatchNorm,
    Lattice,
    Pending,
    Sums,
    added,
    multiplied,
    pooled,
)
from nncfx.quantization.simulation.kernel_calls import (
    RELUS,
    Call,
    clamp_bounds,
    is_choice,
    is_over_channels,
    is_whole_image,
    resizing,
)
from nncfx.tracing.calls.function_names import spelling

SIGMOID_STEPS: Final = 256
"""Steps between 0 and 1 of the sigmoid in SiLU."""

_MOST_BITS: Final = 8
_IMAGE_NDIM: Final = 4


@contextmanager
def integer_arithmetic(model: nn.Module) -> Iterator[None]:
    """Compute the quantized operations of `model` like integer kernels inside the block.

    Convolutions and linear layers whose input and weight are quantized to at most 8 bits sum
    products of integers exactly, with the bias rounded to an integer in their scale; batch norms,
    ReLUs and clamps after them are included. The sum is scaled once, in float32, and rounded half
    to even. Sums and products of two quantized tensors and means over a quantized image are
    computed from their integers. Other batch norms, sigmoids, bilinear resizing and means over
    channels are computed in float32 as in the runtime, SiLUs from the integers of their input and
    sigmoids in steps of 1/256. All other operations (softmax, layer norms, GELU, products of two
    activations) are not changed and can differ from the runtime in the last bit. This is for
    evaluation: gradients are disabled, and batch norms must have running statistics.

    The formulas are those of ONNX Runtime's CPU kernels on x86 with FMA.

    Raises:
        ArgumentError: `model` has no quantizers.

    Source: ONNX Runtime 1.31; Jacob et al., "Quantization and training of neural networks for
    efficient integer-arithmetic-only inference", 2018, section 2.
    """
    if not isinstance(model, NNCFNetwork) or not quantizers_of(model):
        raise ArgumentError(
            f"This {type(model).__name__} has no quantizers, so it computes nothing in integers. "
            "Pass what nncfx.quantize, or quantization by a config, has returned. A part of such "
            "a model has no quantizers of its own: pass the whole, and call the part in the block."
        )
    kernels = _Kernels()
    with ExitStack() as stack:
        for hook in quantizers_of(model).values():
            if hook.spec.is_integer and hook.spec.group is None:
                stack.enter_context(hook.register_forward_hook(kernels.quantize))
        stack.enter_context(torch.no_grad())
        stack.enter_context(kernels)
        yield


@final
class _Kernels(TorchFunctionMode):
    """Tracks which tensors represent integers, and computes with the integers where possible."""

    def __init__(self) -> None:
        super().__init__()
        self._lattices: MutableMapping[Tensor, Lattice] = WeakIdKeyDictionary()
        self._pending: MutableMapping[Tensor, Pending] = WeakIdKeyDictionary()
        self._sums: MutableMapping[Tensor, Sums] = WeakIdKeyDictionary()

    def quantize(
        self, hook: nn.Module, inputs: tuple[Tensor, ...], output: Tensor
    ) -> Tensor | None:
        """Forward hook of quantizers: return the output that a kernel computes."""
        assert isinstance(hook, Quantizer)  # noqa: S101 (no other has this hook)
        if not hook.is_active:
            return None
        (x,) = inputs
        spec, scale, zero = hook.spec, hook.scale, hook.zero_point
        if spec.axis is None and not isinstance(x, nn.Parameter):
            pending = self._pending.get(x)
            steps = torch.round(x / scale) if pending is None else pending(scale, zero)
            steps = steps.clamp(spec.quant_min - int(zero), spec.quant_max - int(zero))
            output = (steps * scale).to(output.dtype)
        self._lattices[output] = Lattice(
            scale=scale, zero_point=zero, axis=spec.axis, bits=spec.bits
        )
        return output

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = Call(func, args, kwargs or {})
        rule = _RULES.get(func)
        if rule is None and operation_kind(spelling(func)) in MOVEMENTS:
            rule = _Kernels.move
        if rule is not None:
            return rule(self, call)
        name = func.__name__
        is_changed = name.endswith("_") and not name.endswith("__")
        if args and (is_changed or name == "__setitem__" or call.kwargs.get("inplace")):
            self._forget(args[0])
        return call.run()

    def contract(self, call: Call) -> Tensor:
        """Return the result of a convolution or a linear layer."""
        named = call.named("input", "weight", "bias")
        x, weight, bias = named["input"], named["weight"], named.get("bias")
        read, factor = self._integers(x), self._integers(weight)
        if read is None or factor is None or read.axis is not None or factor.axis not in (None, 0):
            return self._plain(call)
        rest = {key: call.kwargs[key] for key in call.kwargs.keys() - {"input", "weight", "bias"}}
        total = call.func(read.steps(x), factor.steps(weight), None, *call.args[3:], **rest)
        is_linear = call.func is F.linear
        sums = Sums(
            total=total,
            input_scale=read.scale,
            weight_scale=factor.scale,
            bias=bias,
            axis=total.ndim - 1 if is_linear else total.ndim - weight.ndim + 1,
        )
        if is_linear and x.ndim > 2 and bias is not None:  # noqa: PLR2004 (a batch of matrices)
            # exported as MatMul and Add, with a float bias
            values: Tensor = replace(sums, bias=None).values() + bias
            return values.to(x.dtype)
        return self._summed(sums.values().to(x.dtype), sums)  # kernels return float32

    def norm(self, call: Call) -> Tensor:
        """Return the result of a batch norm."""
        constants, affine = ("running_mean", "running_var"), ("weight", "bias")
        # the two functions have different orders of arguments
        order = (*constants, *affine) if call.func is F.batch_norm else (*affine, *constants)
        named = call.named("input", *order, "training", "momentum", "eps")
        sums = self._sums.get(named["input"])
        result = self._plain(call)
        if named.get("training") or named["running_mean"] is None:
            return result
        norm = BatchNorm(
            mean=named["running_mean"],
            variance=named["running_var"],
            weight=named.get("weight"),
            bias=named.get("bias"),
            epsilon=named.get("eps", 1e-5),
        )
        if sums is None:
            is_float = result.dtype == torch.float32
            return normalized(named["input"], norm) if is_float else result
        return self._summed(result, sums.normed(norm))

    def clamp(self, call: Call) -> Tensor:
        """Return the result of a ReLU or another clamp to constants."""
        pending, bounds = self._pending.get(call.x), clamp_bounds(call)
        result = self._plain(call)
        if pending is None or bounds is None:
            return result

        def clamped(scale: Tensor, zero_point: Tensor) -> Tensor:
            low, high = (
                torch.round(torch.as_tensor(one, device=scale.device) / scale) for one in bounds
            )
            return torch.clamp(pending(scale, zero_point), low, high)

        return self._later(result, clamped)

    def move(self, call: Call) -> Any:  # noqa: ANN401 (a split returns several)
        """Return the result of a function that moves or selects elements."""
        if not isinstance(call.x, Tensor) or not is_choice(call):
            return self._plain(call)
        lattice, pending = self._lattices.get(call.x), self._pending.get(call.x)
        result = call.run()
        if result is call.x:
            return result
        if lattice is not None and lattice.axis is None:
            for one in (result,) if isinstance(result, Tensor) else result:
                self._lattices[one] = lattice
        elif pending is not None and isinstance(result, Tensor):
            # moving commutes with rounding
            return self._later(result, lambda *grid: call.on(pending(*grid)))
        return result

    def join(self, call: Call) -> Tensor:
        """Return the result of a concatenation."""
        parts = call.args[0] if call.args else call.kwargs["tensors"]
        lattices = [self._lattices.get(one) for one in parts]
        result = self._plain(call)
        first = lattices[0]
        if first is not None and all(one is not None and first.equals(one) for one in lattices):
            self._lattices[result] = first
        return result

    def add(self, call: Call) -> Tensor:
        """Return the sum of two tensors."""
        shapes = {one.shape for one in call.args if isinstance(one, Tensor)}
        return self._binary(call, added) if len(shapes) == 1 else self._plain(call)

    def multiply(self, call: Call) -> Tensor:
        """Return the product of two tensors, element by element."""
        return self._binary(call, multiplied)

    def _binary(
        self, call: Call, make: Callable[[Tensor, Lattice, Tensor, Lattice], Pending]
    ) -> Tensor:
        grids = [self._integers(one) for one in call.args]
        pending = None
        if len(grids) == 2 and not call.kwargs:  # noqa: PLR2004 (of x and y)
            left, right = grids
            if left is not None and right is not None:
                pending = make(call.args[0], left, call.args[1], right)
        result = self._plain(call)
        return result if pending is None else self._later(result, pending)

    def curve(self, call: Call) -> Tensor:
        """Return the result of a smooth elementwise function."""
        values = _CURVES[call.func](call.x) if call.x.dtype == torch.float32 else None
        result = self._plain(call)
        return result if values is None else result.copy_(values)  # the call may be in place

    def gate(self, call: Call) -> Tensor:
        """Return the product of each element and its sigmoid."""
        x, lattice = call.x, self._integers(call.x)
        if lattice is None or x.dtype != torch.float32:
            return self.curve(call)
        unit = torch.ones_like(lattice.scale)
        steps = Lattice(
            scale=unit / SIGMOID_STEPS,
            zero_point=torch.zeros_like(unit),
            axis=None,
            bits=_MOST_BITS,
        )
        sigmoid = (
            torch.round(logistic(x) * SIGMOID_STEPS).clamp(max=SIGMOID_STEPS - 1) / SIGMOID_STEPS
        )
        pending = multiplied(x, lattice, sigmoid, steps)  # before a call in place changes `x`
        return self._later(self.curve(call), pending)

    def average(self, call: Call) -> Tensor:
        """Return the means of windows of an image."""
        lattice = self._integers(call.x)
        result = self._plain(call)
        if lattice is None:
            return result
        if is_whole_image(call):
            return self._pooled(result, call.x, lattice)
        return self._later(result, average_pooled(result))

    def mean(self, call: Call) -> Tensor:
        """Return a mean."""
        x, lattice = call.x, self._integers(call.x)
        result = self._plain(call)
        is_image = isinstance(x, Tensor) and x.ndim == _IMAGE_NDIM
        if is_image and is_over_channels(call) and x.dtype == torch.float32:
            return channel_mean(x).reshape(result.shape)
        if lattice is None or not is_image or result.numel() != x.shape[0] * x.shape[1]:
            return result
        return self._pooled(result, x, lattice)

    def _pooled(self, result: Tensor, x: Tensor, lattice: Lattice) -> Tensor:
        total = lattice.steps(x).sum((2, 3)).reshape(result.shape)
        return self._later(result, pooled(total, x.shape[2] * x.shape[3], lattice.scale))

    def resize(self, call: Call) -> Tensor:
        """Return an image in another size."""
        result = self._plain(call)
        asked = resizing(call, result)
        if asked is None:
            return result
        scales, align_corners = asked
        size = result.shape[2], result.shape[3]
        return resized(call.x, size, scales, align_corners=align_corners)

    def _integers(self, x: object) -> Lattice | None:
        known = self._lattices.get(x) if isinstance(x, Tensor) else None
        return known if known is not None and known.bits <= _MOST_BITS else None

    def _plain(self, call: Call) -> Tensor:
        """Run the function and forget what is known of its result, which can be its input."""
        result: Tensor = call.run()
        self._forget(result)
        return result

    def _forget(self, x: object) -> None:
        for known in (self._lattices, self._pending, self._sums):
            if isinstance(x, Tensor) and x in known:
                del known[x]

    def _summed(self, result: Tensor, sums: Sums) -> Tensor:
        self._sums[result] = sums
        return self._later(result, sums.quantized)

    def _later(self, result: Tensor, pending: Pending) -> Tensor:
        self._pending[result] = pending
        return result


_CLAMPS: Final = (F.relu6, F.hardtanh, torch.clamp, torch.Tensor.clamp, torch.Tensor.clamp_)
_CHOICES: Final = (
    *(F.adaptive_max_pool2d, torch.amax, torch.Tensor.amax, torch.amin, torch.Tensor.amin),
    *(F.max_pool2d, torch.max_pool2d),
)
"""Functions that return elements of their input and are not listed as movements."""
_CURVES: Final[Mapping[Callable[..., Any], Callable[[Tensor], Tensor]]] = {
    **dict.fromkeys((torch.sigmoid, torch.Tensor.sigmoid, F.sigmoid), logistic),
    F.silu: lambda x: x * logistic(x),
    F.hardsigmoid: hard_sigmoid,
    F.hardswish: lambda x: x * hard_sigmoid(x),
}
_RULES: Final[Mapping[Callable[..., Any], Callable[[_Kernels, Call], Any]]] = {
    **{getattr(F, one): _Kernels.contract for one in functions_of("conv", "linear")},
    **dict.fromkeys((F.batch_norm, torch.batch_norm), _Kernels.norm),
    **dict.fromkeys((*RELUS, *_CLAMPS), _Kernels.clamp),
    **dict.fromkeys((torch.add, torch.Tensor.add, torch.Tensor.add_), _Kernels.add),
    **dict.fromkeys((torch.mul, torch.Tensor.mul, torch.Tensor.mul_), _Kernels.multiply),
    **dict.fromkeys(_CURVES, _Kernels.curve),
    F.silu: _Kernels.gate,
    F.avg_pool2d: _Kernels.average,
    F.interpolate: _Kernels.resize,
    **dict.fromkeys((F.adaptive_avg_pool2d, torch.mean, torch.Tensor.mean), _Kernels.mean),
    **dict.fromkeys(_CHOICES, _Kernels.move),
    **dict.fromkeys((torch.cat, torch.concat), _Kernels.join),
}
