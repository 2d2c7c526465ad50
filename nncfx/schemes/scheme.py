"""The base class of schemes: Condensa's pair of maps, Pi (compress) and Delta (decompress)."""

from abc import ABC, abstractmethod

from torch import nn

from nncfx.graph.channels import Channels


class Scheme(ABC):
    """A compression map over a model; the scheme defines how, the level how much.

    A scheme holds settings only. The same object serves direct compression, the C step of L-C and
    the storage codec. Both maps change the parameters of the given module, in place and outside
    autograd: copy the model first to keep it.

    Source: Condensa (Joseph et al. 2020), section 3; Carreira-Perpinan and Idelbayev (2018).
    """

    @abstractmethod
    def compress(self, model: nn.Module, level: float) -> None:
        """Project the parameters of `model` onto the compressed set (Pi), in place.

        Args:
            model: The model; its raw parameters change, without its hooks.
            level: Fraction to remove, in [0, 1). At level 0 pruning schemes change nothing,
                bitwise. Quantize and Cluster do not depend on the level.

        Raises:
            ArgumentError: the level is out of range.
            CompressionError: this scheme cannot compress the model.
        """

    @abstractmethod
    def parameters(self, model: nn.Module) -> frozenset[str]:
        """Return the dotted names of the parameters that `compress` constrains.

        The names are those of `model.named_parameters()`.
        """

    def decompress(self, model: nn.Module) -> None:  # noqa: B027 (most schemes keep the dtype)
        """Restore the working dtype of compressed parameters (Delta), in place.

        The values stay compressed: `compress` after `decompress` changes nothing. Pruning schemes
        have nothing to undo.
        """

    def bind(self, channels: Channels) -> "Scheme":  # noqa: ARG002 (structured schemes use it)
        """Return the scheme that prunes whole channel groups of `channels`.

        Only structured schemes differ; every other scheme returns itself.
        """
        return self

    @property
    def is_structured(self) -> bool:
        """Whether the scheme prunes rows or filters, so that thinning can remove channels."""
        return False
