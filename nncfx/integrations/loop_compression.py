"""Base of callbacks for training loops: advances a controller by counts, not by calls."""

from collections.abc import Mapping
from typing import Protocol, final

from torch import Tensor, nn

from nncfx.controllers import CompressionStage, Controller
from nncfx.integrations.mixed_precision import remove_autocast
from nncfx.thinning import thin

__all__ = ["LoopCompression", "Tracker", "compressed_model"]


class Tracker(Protocol):
    """Receives the numbers of a training: TensorBoard, MLflow, a CSV file, or your own."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers by name, with their values after `step` optimizer steps."""
        ...

    def close(self) -> None:
        """Write buffered values."""
        ...


@final
class LoopCompression:
    """Advances a controller in another library's loop, which can start in the middle.

    Args:
        controller: Of the trained model.
        tracker: Receives level and loss of compression at each epoch; optional.
    """

    def __init__(self, controller: Controller, tracker: Tracker | None = None) -> None:
        self.controller = controller
        self._tracker = tracker
        self._loss: Tensor | None = None

    def begin_epoch(self, epoch: int, step: int) -> None:
        """Start `epoch`, counted from 0, unless it has started before a checkpoint within it."""
        if epoch > self.controller.scheduler.current_epoch:
            self.controller.scheduler.epoch_step(epoch)
            self.log(step)

    def begin_step(self, step: int) -> None:
        """Start optimizer step `step`, counted from 0."""
        if step > self.controller.scheduler.current_step:
            self.controller.scheduler.step(step)

    def loss(self) -> Tensor:
        """Return the loss to add to that of the task."""
        loss = self.controller.loss()
        self._loss = loss.detach()
        return loss

    def log(self, step: int) -> None:
        """Report the level, and the latest loss of compression, to the tracker."""
        if self._tracker is None:
            return
        values = {"compression/level": float(self.controller.level)}
        if self._loss is not None:
            values["compression/loss"] = float(self._loss)
        self._tracker.log(values, step)

    def end(self, step: int) -> None:
        """Report the last numbers to the tracker."""
        self.log(step)
        if self._tracker is not None:
            self._tracker.close()

    @property
    def stage(self) -> CompressionStage:
        """The stage of the schedule; only metrics of the same stage are comparable."""
        return self.controller.compression_stage()


def compressed_model(controller: Controller) -> nn.Module:
    """Return the compressed copy of a controller's model, in evaluation mode.

    Pruned channels are removed; masks are in the weights; quantizers of activations remain. It
    computes in the dtype of its weights, whatever dtype it was trained in.

    Raises:
        ThinningError: the copy would not compute the same.
    """
    if any(one.removes_channels for one in controller.configs):
        compressed = thin(controller.model).model.eval()
    else:
        compressed = controller.strip().eval()
    remove_autocast(compressed)
    return compressed
