"""The config of the initialization of a model before training."""

import dataclasses

from nncfx.config.option import Limits, option
from nncfx.config.section import Section


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchNormAdaptation(Section):
    """Let batch norms see data again, since compression has shifted their inputs."""

    num_bn_adaptation_samples: int = option(
        2000,
        "the number of examples that the batch norms see; 0 for no adaptation",
        limits=Limits(minimum=0),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Initializer(Section):
    """What is done before training."""

    batchnorm_adaptation: BatchNormAdaptation | None = option(
        None, "adapt the running statistics of batch norms; needs calibration_batches"
    )
