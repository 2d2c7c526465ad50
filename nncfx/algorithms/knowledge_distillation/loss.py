"""The loss of knowledge distillation, with its teacher and the taps that record outputs."""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from typing_extensions import override

from nncfx.algorithms.knowledge_distillation.config import KnowledgeDistillationConfig
from nncfx.controllers import CompressionLoss
from nncfx.errors import CompressionError
from nncfx.schemes.wide_floats import wide
from nncfx.storage.models.sharded_models import whole
from nncfx.tracing.calls.inputs import own_tensors as tensor_copies
from nncfx.tracing.calls.tensors import own_tensors, tensors_in
from nncfx.tracing.hooks.call_hooks import CallHook


def squared_distance(student: Tensor, teacher: Tensor, counted: Tensor | None = None) -> Tensor:
    """Return the mean squared difference of two tensors of one shape, a scalar.

    Args:
        student: An output.
        teacher: The teacher's output.
        counted: Mask `n x t` of the tokens of an output `n x t x c` that count; None for all.
    """
    student, teacher = wide(student), wide(teacher)
    if counted is not None and counted.shape == student.shape[:-1]:
        student, teacher = student[counted], teacher[counted]
    return _mean(nn.functional.mse_loss(student, teacher, reduction="none"))


def tempered_cross_entropy(
    student: Tensor,
    teacher: Tensor,
    temperature: float = 1.0,
    axis: int | None = None,
    counted: Tensor | None = None,
) -> Tensor:
    """Return the cross-entropy of the softened outputs times T^2, the mean over all but `axis`.

    Args:
        student: Logits, `n x c`, or with the classes along `axis`.
        teacher: Logits of the same shape.
        temperature: T, above 0.
        axis: Axis of the classes; None for axis 1 of `n x c`.
        counted: Mask `n x t` of the tokens of logits `n x t x c` that count; None for all.

    Raises:
        CompressionError: `axis` is None and the logits are not `n x c`, or they lack that axis.
    """
    rank = student.ndim
    if axis is None and rank == 2:  # noqa: PLR2004 (a matrix)
        axis = 1
    if axis is None or not -rank <= axis < rank:
        raise CompressionError(
            "Distillation of type 'softmax' takes logits of n x c, but an output has the shape "
            f"{tuple(student.shape)}, and class_axis is {axis}. Set 'class_axis' to the axis of "
            "the classes: 1 of images (n x c x h x w), -1 of tokens (n x t x c); or use type "
            "'mse'."
        )
    student, teacher = wide(student), wide(teacher)
    soft = torch.softmax(teacher / temperature, dim=axis)
    each = -(torch.log_softmax(student / temperature, dim=axis) * soft).sum(dim=axis)
    if counted is not None and counted.shape == each.shape:
        each = each[counted]
    return _mean(each) * temperature**2


def _mean(each: Tensor) -> Tensor:
    """Return the mean; zero if there are no elements, as in a batch that is all padding."""
    return each.mean() if each.numel() else each.sum()


@final
class Teacher(nn.Module):
    """A frozen copy of the model before compression, always in evaluation mode.

    Its weights are buffers, so they are saved with the model, training resumes with the same
    teacher, and optimizers ignore them.

    Attributes:
        call: Arguments of the student's last call in training mode; not part of copies and files.
    """

    call: tuple[tuple[Any, ...], dict[str, Any]] | None

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.call = None
        self.take_over(network)

    def take_over(self, network: nn.Module) -> None:
        """Use `network` as the teacher and turn its parameters into buffers."""
        self.network = network
        frozen: dict[int, Tensor] = {}
        for module in list(network.modules()):
            for name, tensor in own_tensors(module).items():
                if isinstance(tensor, nn.Parameter):
                    kept = frozen.setdefault(id(tensor), tensor.detach().clone())
                    # delattr fails on a weight with hooks, as in a quantized teacher
                    del module._parameters[name]  # noqa: SLF001 (as above)
                    module._buffers[name] = kept  # noqa: SLF001 (as above)
        network.eval()

    def taught(self) -> list[Tensor]:
        """Return the teacher's output tensors for the student's last call.

        Raises:
            CompressionError: the student was not called.
        """
        if self.call is None:
            raise CompressionError(
                "knowledge_distillation has seen outputs of the model but no call of it, so it "
                "cannot call the teacher with the same inputs. Call the wrapped model, not its "
                "parts."
            )
        args, kwargs = pytree.tree_map_only(Tensor, self._in_own_dtype, tensor_copies(self.call))
        # a forward that takes derivatives enables gradients itself
        return [one.detach() for one in tensors_in(self(*args, **kwargs))]

    def counted(self) -> Tensor | None:
        """Return the mask `n x t` of tokens of that call that are not padding; None if unknown."""
        names = inspect.signature(self.network.forward).parameters
        of_decoder = "decoder_attention_mask"  # its tokens are those of the outputs
        name = of_decoder if of_decoder in names else "attention_mask"
        mask = None if self.call is None else self.call[1].get(name)
        return mask.bool() if isinstance(mask, Tensor) else None

    def _in_own_dtype(self, given: Tensor) -> Tensor:
        """Return a half-precision input as float32 if all weights are float32.

        FSDP's mixed precision passes inputs and weights to the student in bfloat16.
        """
        own = {one.dtype for one in self.buffers() if one.is_floating_point()}
        is_half = given.dtype in (torch.float16, torch.bfloat16)
        return given.float() if is_half and own == {torch.float32} else given

    @override
    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode, whatever `mode`."""
        return super().train(False)

    @override
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return self.network(*args, **kwargs)

    @override
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"call": None}


@final
class Tap(CallHook, nn.Identity):
    """Passes an output of the model on, and in training mode keeps it until the next call.

    Attributes:
        seen: The output of the last call in training mode; not part of copies and files.
        teacher: The teacher to record calls for; only one of the taps has it.
    """

    seen: Tensor | None

    def __init__(self, teacher: Teacher | None = None) -> None:
        super().__init__()
        self.seen = None
        self.teacher = teacher

    @override
    def before_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not self.training:
            return
        self.seen = None
        if self.teacher is not None:
            # copy, because a forward may write to its inputs
            with torch.no_grad():
                self.teacher.call = tensor_copies((args, dict(kwargs)))

    @override
    def forward(self, input: Tensor) -> Tensor:
        if self.training:
            self.seen = input
        return input

    @override
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"seen": None}


@final
class DistillationLoss(CompressionLoss):
    """The distance between the outputs of the last call in training mode and the teacher's.

    Attributes:
        config: The algorithm's config.
        teacher: The model before compression.
        outputs: The taps on the model's floating-point outputs, by number.
        count: Number of tensors that the model returned when it was traced.
    """

    def __init__(
        self,
        config: KnowledgeDistillationConfig,
        teacher: Teacher,
        outputs: Mapping[int, Tap],
        count: int,
    ) -> None:
        self.config = config
        self.teacher = teacher
        self.outputs = outputs
        self.count = count

    @override
    def __call__(self) -> Tensor:
        """Return the scaled sum over all outputs; zero before any call in training mode.

        Raises:
            CompressionError: the last call returned no output to compare, or the teacher's
                outputs do not match.
        """
        seen = {n: whole(tap.seen) for n, tap in self.outputs.items() if tap.seen is not None}
        if not seen and self.teacher.call is not None:
            raise CompressionError(
                "The last call of the model in training mode made none of the outputs that "
                "knowledge_distillation compares, so it would add nothing. Some trainers, such "
                "as TRL's SFTTrainer, fuse the head into the loss and make no logits: train "
                "with one that makes them, or take the item out of the config."
            )
        if not seen:
            first = next(iter(self.teacher.buffers()))
            return torch.zeros((), device=first.device)
        taught = self.teacher.taught()
        if len(taught) == self.count:
            taught = [taught[number] for number in seen]
        counted = self.teacher.counted()
        losses = [self._distance(*pair, counted) for pair in _pairs(seen.values(), taught)]
        return self.config.scale * torch.stack(losses).sum()

    def _distance(self, student: Tensor, teacher: Tensor, counted: Tensor | None) -> Tensor:
        if self.config.type == "mse":
            return squared_distance(student, teacher, counted)
        return tempered_cross_entropy(
            student, teacher, self.config.temperature, self.config.class_axis, counted
        )


def _pairs(
    students: Iterable[Tensor], teachers: Iterable[Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each of `students` with the next of `teachers` of the same shape.

    Some calls return more than the traced call, for instance a loss if they pass labels.
    """
    waiting = iter(teachers)
    for one in students:
        match = next((other for other in waiting if other.shape == one.shape), None)
        if match is None:
            raise CompressionError(
                f"The last call of the model returned a tensor of the shape {tuple(one.shape)}, "
                "and the teacher returns none of that shape. Take another teacher, or make the "
                "model return the same in training and in evaluation mode."
            )
        yield one, match
