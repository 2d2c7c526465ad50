"""Training of compressed models: in the user's loop or in ours, with checkpoints of both."""

from nncfx.training.create import create_compressed_model
from nncfx.training.images import AugmentedImages
from nncfx.training.loop import Training, TrainingProgress
from nncfx.training.model_checkpoint import load, save
from nncfx.training.recipe import Recipe
from nncfx.training.resumable_epochs import resumable_epochs

__all__ = [
    "AugmentedImages",
    "Recipe",
    "Training",
    "TrainingProgress",
    "create_compressed_model",
    "load",
    "resumable_epochs",
    "save",
]
