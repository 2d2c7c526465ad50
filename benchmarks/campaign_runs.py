"""The runs of the campaign as data: what is trained, on what, how far, for how long."""

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from nncfx.training import Recipe
from nncfx.training.recipe import Precision

LIST: Final = Path(__file__).with_name("campaign.toml")
"""The list of runs."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training, and the files that are made of what it ends with.

    Attributes:
        name: Of the run, its folder and its results.
        network: Of `pretrained.PRETRAINED`.
        algorithm: Of `ALGORITHMS`; nothing more is compressed if empty.
        level: The compression level to reach; of "filters", the fraction of MACs to save.
        steps: Optimizer steps.
        start: The result file, in float16 and without its ending, whose network is trained on,
            thin if it is; the dense network if empty.
        teacher: The result file whose network teaches, or several, whose mean answers do; the
            dense network if empty.
        begin: The level at the beginning: that of `start`.
        bits: A result file for each: 16 for float16, fewer for weights that share a codebook of
            so many bits in each layer, found after training; of "quantization", the bits of
            weights and activations.
        minutes: The budget: about what it takes on the two cores it was planned for.
        seed: Of the batches, and of torch.
        batch: Images a step.
        lr: The highest learning rate.
        weight_decay: On all parameters.
        reach: Fraction of the steps at which the level is reached.
        freeze: Fraction of the steps from which masks stand still.
        importance: By which magnitude ranks, as the config spells it.
        teacher_weight: Share of the dense network's answers in the loss; the rest is the labels'.
        temperature: Of the distillation.
        held_out: So many of the last training images are not trained on: the run is judged by
            them and writes no result. 0 for a run that counts.
        filters: Fraction of MACs whose filters are taken out before the first step; what is
            trained is the thin network, whose steps cost as much less.
        branches: The same of residual branches, before filters.
        lasso: Of "filters": the weight of the group lasso until the level is reached.
        wait: Of "filters" and "movement": fraction of the steps without a level, at the
            beginning; scores learn in them.
        mean_of: Result files of one thin network, in float16: nothing is trained, the result has
            the means of their weights and statistics (Izmailov et al., Averaging Weights Leads to
            Wider Optima and Better Generalization, 2018).
        mixup: As `AugmentedImages.mixup`.
        precision: As `Recipe.precision`: narrow networks may train faster in float32 even where
            the processor multiplies in bfloat16.
    """

    name: str
    network: str
    algorithm: str
    level: float
    steps: int
    minutes: float
    start: str = ""
    teacher: str | Sequence[str] = ""
    begin: float = 0.0
    bits: Sequence[int] = (16,)
    seed: int = 0
    batch: int = 128
    lr: float = 0.08
    weight_decay: float = 5e-4
    reach: float = 0.55
    freeze: float = 0.8
    importance: str = "abs"
    teacher_weight: float = 0.7
    temperature: float = 4.0
    held_out: int = 0
    filters: float = 0.0
    precision: Precision = "auto"
    branches: float = 0.0
    lasso: float = 0.0
    wait: float = 0.0
    mean_of: Sequence[str] = ()
    mixup: float = 0.0

    def recipe(self) -> Recipe:
        """Return how to train."""
        return Recipe(
            steps=self.steps,
            lr=self.lr,
            weight_decay=self.weight_decay,
            task_weight=1 - self.teacher_weight,
            precision=self.precision,
        )

    def config(self) -> dict[str, Any]:
        """Return the config of the compression: the algorithm, and the dense network's answers."""
        items = [ALGORITHMS[self.algorithm](self)] if self.algorithm else []
        if self.teacher_weight:
            items.append(
                {
                    "algorithm": "knowledge_distillation",
                    "type": "softmax",
                    "temperature": self.temperature,
                    "scale": self.teacher_weight,
                }
            )
        return {"compression": items}

    def epoch(self, fraction: float) -> int:
        """Return the scheduler's epoch at a `fraction` of the steps."""
        return round(fraction * self.steps / self.recipe().steps_per_epoch)

    def thin_configs(self) -> list[dict[str, Any]]:
        """Return the configs of what is taken out at once: branches, and filters of the rest.

        Filters leave widths that CPUs compute best.
        """
        widths = {
            "filter_importance": "LAMP",
            "all_weights": True,
            "align": 16,
            "align_down": True,
            "prune_first_conv": True,
        }
        algorithms = {
            "branch_pruning": (self.branches, {}),
            "filter_pruning": (self.filters, widths),
        }
        return [
            {
                "compression": {
                    "algorithm": algorithm,
                    "pruning_init": fraction,
                    "params": {"schedule": "baseline", "pruning_flops_target": fraction, **more},
                }
            }
            for algorithm, (fraction, more) in algorithms.items()
            if fraction
        ]

    @property
    def digest(self) -> str:
        """Of all settings that decide what the training ends with: results depend on nothing else.

        Names, budgets and what is made of the trained weights can change without a new training.
        """
        no_matter = {"name", "minutes", "bits"}
        # than the first results
        younger: dict[str, Any] = dict.fromkeys(
            ("filters", "branches", "lasso", "wait", "mixup"), 0.0
        )
        younger |= {"precision": "auto", "teacher": "", "mean_of": ()}
        settings = {
            key: value
            for key, value in asdict(self).items()
            if key not in no_matter and (key, value) not in younger.items()
        }
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def _magnitude(run: Run) -> dict[str, Any]:
    return {
        "algorithm": "magnitude_sparsity",
        "sparsity_init": run.begin,
        "params": {
            "schedule": "cubic",
            "sparsity_target": run.level,
            "sparsity_target_epoch": run.epoch(run.reach),
            "sparsity_freeze_epoch": run.epoch(run.freeze),
            "weight_importance": run.importance,
        },
    }


def _filters(run: Run) -> dict[str, Any]:
    return {
        "algorithm": "filter_pruning",
        "params": {
            "schedule": "exponential",
            "pruning_flops_target": run.level,
            "num_init_steps": run.epoch(run.wait),
            "pruning_steps": max(1, run.epoch(run.reach) - run.epoch(run.wait)),
            "prune_downsample_convs": True,
            "group_lasso": run.lasso,
        },
    }


def _rb(run: Run) -> dict[str, Any]:
    return {
        "algorithm": "rb_sparsity",
        # SGD moves scores by their gradients, which fall with the number of weights
        "compression_lr_multiplier": 1000,
        "params": {
            "schedule": "cubic",
            "sparsity_target": run.level,
            "sparsity_target_epoch": run.epoch(run.reach),
            "sparsity_freeze_epoch": run.epoch(run.freeze),
        },
    }


def _movement(run: Run) -> dict[str, Any]:
    return {
        "algorithm": "movement_sparsity",
        "params": {
            # a score knows nothing at first
            "warmup_start_epoch": max(1, run.epoch(run.wait)),
            "warmup_end_epoch": run.epoch(run.reach),
            "sparsity_target": run.level,
            "importance_regularization_factor": 0,
            "enable_structured_masking": False,
            "steps_per_epoch": run.recipe().steps_per_epoch,
        },
    }


def _quantization(run: Run) -> dict[str, Any]:
    (bits,) = run.bits
    return {"algorithm": "quantization", "weights": {"bits": bits}, "activations": {"bits": bits}}


ALGORITHMS: Final[Mapping[str, Callable[[Run], dict[str, Any]]]] = {
    "magnitude": _magnitude,
    "filters": _filters,
    "rb": _rb,
    "movement": _movement,
    "quantization": _quantization,
}
"""The item of a config, by algorithm."""


def read_runs(path: Path = LIST) -> list[Run]:
    """Return the runs of a list, in its order.

    Raises:
        ValueError: two have one name and seed, or a key is not known.
    """
    rows = tomllib.loads(path.read_text())["run"]
    known = {field.name for field in fields(Run)}
    for row in rows:
        if extra := set(row) - known:
            raise ValueError(f"Run '{row.get('name')}' has unknown keys {sorted(extra)}.")
    runs = [Run(**row) for row in rows]
    if len({(run.name, run.seed) for run in runs}) < len(runs):
        raise ValueError(f"Two runs of {path} have one name and seed; change one of them.")
    return runs
