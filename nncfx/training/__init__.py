"""A training loop that a kill cannot hurt: recipe, augmented images in memory, checkpoints."""

from nncfx.training.images import AugmentedImages
from nncfx.training.loop import Training, TrainingProgress
from nncfx.training.recipe import Recipe

__all__ = ["AugmentedImages", "Recipe", "Training", "TrainingProgress"]
