"""The config of knowledge distillation."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar, Literal

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import Limits, option, required
from nncfx.config.registry import AlgorithmConfig, register_algorithm_config


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class KnowledgeDistillationConfig(AlgorithmConfig):
    """Pull the outputs towards those of the model before compression."""

    algorithm: ClassVar[str] = "knowledge_distillation"
    has_scopes: ClassVar[bool] = False

    type: Literal["mse", "softmax"] = required(
        "whether outputs are compared by squared error or, as logits, by cross-entropy"
    )
    scale: float = option(1.0, "what the loss is multiplied by", limits=Limits(above=0))
    temperature: float = option(
        1.0, "what logits are divided by before softmax", limits=Limits(above=0)
    )
    class_axis: int | None = option(
        None, "the axis of the classes in logits of more than two axes: 1 of images, -1 of tokens"
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of keys that have no effect."""
        if self.type == "mse" and self.temperature != 1:
            yield Fault(
                path="temperature",
                problem="belongs to type 'softmax'; a squared error has none. Remove the key.",
            )
        if self.type == "mse" and self.class_axis is not None:
            yield Fault(
                path="class_axis",
                problem="belongs to type 'softmax'; a squared error has no classes. Remove the "
                "key.",
            )
        if self.ignored_scopes or self.target_scopes is not None:
            yield Fault(
                path="ignored_scopes" if self.ignored_scopes else "target_scopes",
                problem="distillation compares the outputs of the whole model and has no scopes. "
                "Remove the key.",
            )
