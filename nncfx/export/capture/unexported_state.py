"""Warn which state of a model a file does not keep from one run to the next."""

import logging

import torch

__all__ = ["warn_unexported_state"]

_LOGGER = logging.getLogger(__name__)


def warn_unexported_state(program: torch.export.ExportedProgram) -> None:
    """Log the buffers that the forward of `program` changes.

    A file has no state: in each of its runs they are what they were when it was written.
    """
    changed = sorted(program.graph_signature.buffers_to_mutate.values())
    if changed:
        _LOGGER.warning(
            "The forward changes %s, and a file keeps no state: each of its runs begins with the "
            "values that the model has now. Let the forward take and return them where that "
            "matters.",
            ", ".join(f"'{one}'" for one in changed),
        )
