"""What callbacks of training loops share: a controller that is moved by counts, not by calls."""

from collections.abc import Callable, Mapping
from typing import Protocol, final

from torch import Tensor, nn

from nncfx.controllers import CompressionStage, Controller
from nncfx.integrations.mixed_precision import remove_autocast
from nncfx.thinning import thin

__all__ = ["LoopCompression", "Tracker", "compressed_model"]


class Tracker(Protocol):
    """Where numbers of a training go: TensorBoard, MLflow, a CSV file, or yours."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Take numbers by name, as they are after `step` optimizer steps."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


@final
class LoopCompression:
    """Moves a controller through somebody else's loop, which may begin in the middle.

    Args:
        controller: Of the model that is trained.
        tracker: Takes level and loss of compression at each epoch; None: nobody does.
    """

    def __init__(self, controller: Controller, tracker: Tracker | None = None) -> None:
        self.controller = controller
        self._tracker = tracker
        self._loss: Tensor | None = None

    def begin_epoch(self, epoch: int, step: int) -> None:
        """Begin `epoch`, counted from 0, unless it has begun, as before a checkpoint within it."""
        if epoch > self.controller.scheduler.current_epoch:
            self.controller.scheduler.epoch_step(epoch)
            self.log(step)

    def begin_step(self, step: int) -> None:
        """Begin optimizer step `step`, counted from 0."""
        if step > self.controller.scheduler.current_step:
            self.controller.scheduler.step(step)

    def loss(self) -> Tensor:
        """Return what is added to the loss of the task."""
        loss = self.controller.loss()
        self._loss = loss.detach()
        return loss

    def log(self, step: int) -> None:
        """Tell the tracker the level, and the loss of compression as it was last."""
        if self._tracker is None:
            return
        values = {"compression/level": float(self.controller.level)}
        if self._loss is not None:
            values["compression/loss"] = float(self._loss)
        self._tracker.log(values, step)

    def end(self, step: int) -> None:
        """Tell the tracker the last numbers."""
        self.log(step)
        if self._tracker is not None:
            self._tracker.close()

    @property
    def stage(self) -> CompressionStage:
        """How far the schedule has come; metrics of one stage compare."""
        return self.controller.compression_stage()


def compressed_model(
    controller: Controller, *, strip: Callable[[], nn.Module] | None = None
) -> nn.Module:
    """Return the compressed copy of a controller's model, in evaluation mode.

    Where channels were pruned they are gone; masks are in the weights; quantizers of activations
    stay. It computes in the type of its weights, in whichever one it was trained.

    Raises:
        ThinningError: the copy would not compute the same.
    """
    if any(one.removes_channels for one in controller.configs):
        compressed = thin(controller.model).model.eval()
    else:
        compressed = (strip or controller.strip)().eval()
    remove_autocast(compressed)
    return compressed
