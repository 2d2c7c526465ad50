"""The loss that pulls outputs towards the teacher's, and the hooks that see both."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Self, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.algorithms.knowledge_distillation.config import KnowledgeDistillationConfig
from nncfx.controllers import CompressionLoss
from nncfx.errors import CompressionError
from nncfx.schemes.wide_floats import wide
from nncfx.storage.models.sharded_models import whole
from nncfx.tracing import ExampleInputs, as_call
from nncfx.tracing.calls.tensors import own_tensors, tensors_in

__all__ = ["DistillationLoss", "Tap", "Teacher", "squared_distance", "tempered_cross_entropy"]


def squared_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the mean squared difference of two tensors of one shape, a scalar."""
    return nn.functional.mse_loss(wide(student), wide(teacher))


def tempered_cross_entropy(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the cross-entropy of the softened outputs times T^2, the mean over the batch.

    Args:
        student: Logits, `n x c`.
        teacher: Logits, `n x c`.
        temperature: T, above 0.

    Raises:
        CompressionError: the logits are not `n x c`.
    """
    if student.ndim != 2:  # noqa: PLR2004 (a matrix)
        raise CompressionError(
            f"Distillation of type 'softmax' takes logits of n x c, but an output has the shape "
            f"{tuple(student.shape)}. Use type 'mse'.",
        )
    student, teacher = wide(student), wide(teacher)
    soft = torch.softmax(teacher / temperature, dim=1)
    per_example = -(torch.log_softmax(student / temperature, dim=1) * soft).sum(dim=1)
    return per_example.mean() * temperature**2


@final
class Teacher(nn.Module):
    """A frozen copy of the model before compression, always in evaluation mode.

    Its weights are buffers: they are saved with the model, so that training resumes under the
    same teacher, and no optimizer sees them.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.take_over(network)

    def take_over(self, network: nn.Module) -> None:
        """Teach by `network` from now on, whose parameters become buffers."""
        self.network = network
        frozen: dict[int, Tensor] = {}
        for module in list(network.modules()):
            for name, tensor in own_tensors(module).items():
                if isinstance(tensor, nn.Parameter):
                    delattr(module, name)
                    kept = frozen.setdefault(id(tensor), tensor.detach().clone())
                    module.register_buffer(name, kept)
        network.eval()

    @override
    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode, whatever `mode`."""
        return super().train(False)

    @override
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return self.network(*args, **kwargs)


@final
class Tap(nn.Identity):
    """Passes a tensor on, and in training mode keeps it until the next forward.

    Attributes:
        seen: The last tensor of training; not part of copies and files.
        copies: Whether to keep a copy, because the operation that follows writes over it.
    """

    seen: Tensor | None

    def __init__(self, *, copies: bool = False) -> None:
        super().__init__()
        self.seen = None
        self.copies = copies

    @override
    def forward(self, input: Tensor) -> Tensor:
        if self.training:
            self.seen = input.clone() if self.copies else input
        return input

    @override
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"seen": None}


@final
class DistillationLoss(CompressionLoss):
    """The distance between the outputs of the last forward in training mode and the teacher's.

    Attributes:
        config: The algorithm's config.
        teacher: The model before compression.
        inputs: The taps on the model's inputs, by number; an input that nothing reads has none.
        outputs: The taps on the model's floating-point outputs, by number.
        example_inputs: How the teacher is called; their tensors are replaced by those seen.
    """

    def __init__(
        self,
        config: KnowledgeDistillationConfig,
        teacher: Teacher,
        taps: tuple[Mapping[int, Tap], Mapping[int, Tap]],
        example_inputs: ExampleInputs,
    ) -> None:
        self.config = config
        self.teacher = teacher
        self.inputs, self.outputs = taps
        self.example_inputs = example_inputs

    @override
    def __call__(self) -> Tensor:
        """Return the scaled sum over all outputs; zero before any forward in training mode."""
        seen = {number: tap.seen for number, tap in self.outputs.items() if tap.seen is not None}
        if not seen:
            first = next(iter(self.teacher.buffers()))
            return torch.zeros((), device=first.device)
        expected = tensors_in(self._taught())
        losses = [self._distance(one, expected[number]) for number, one in seen.items()]
        return self.config.scale * torch.stack(losses).sum()

    def _taught(self) -> Any:  # noqa: ANN401 (what the model returns)
        args, kwargs = as_call(self.example_inputs)
        examples = tensors_in((args, kwargs))
        taps = (self.inputs.get(number) for number in range(len(examples)))
        pairs = zip(taps, examples, strict=True)
        actual = iter([example if tap is None else _seen(tap) for tap, example in pairs])
        args, kwargs = _rebuilt((args, kwargs), actual)
        return self.teacher(*args, **kwargs)

    def _distance(self, student: Tensor, teacher: Tensor) -> Tensor:
        if self.config.type == "mse":
            return squared_distance(whole(student), teacher)
        return tempered_cross_entropy(whole(student), teacher, self.config.temperature)


def _seen(tap: Tap) -> Tensor:
    assert tap.seen is not None  # noqa: S101 (an output was seen, so the inputs were before)
    return tap.seen.detach()


def _rebuilt(value: Any, tensors: Iterator[Tensor]) -> Any:  # noqa: ANN401 (any inputs)
    """Return `value` with its tensors replaced, in the order of `tensors_in`."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        return {key: _rebuilt(one, tensors) for key, one in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return dataclasses.replace(
            value,
            **{name: _rebuilt(getattr(value, name), tensors) for name in names},
        )
    if isinstance(value, list | tuple):
        parts = [_rebuilt(one, tensors) for one in value]
        if type(value) in {list, tuple}:
            return type(value)(parts)
        return type(value)(*parts)
    return value
