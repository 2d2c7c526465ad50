"""nncf 2.19, by its training API."""

import copy
import logging
import os
from typing import Any

import task
import torch
from torch import nn

from nncfx.training import AugmentedImages

os.environ["NNCF_TORCH_LEGACY_TRACING"] = "1"  # which the training API asks for
os.environ["NNCF_CI"] = "1"  # no telemetry

import nncf
from nncf.torch import create_compressed_model
from nncf.torch.layer_utils import CompressionParameter

nncf.set_log_level(logging.ERROR)


def compress(dense: nn.Module, told: dict[str, Any], images: AugmentedImages) -> nn.Module:
    """Return the network after training."""
    shape = {"sample_size": list(task.EXAMPLE.shape)}
    config = nncf.NNCFConfig.from_dict({"input_info": shape, "compression": told})
    plain = copy.deepcopy(dense)
    controller, model = create_compressed_model(dense, config, dump_graphs=False)
    scores = [one for one in model.parameters() if isinstance(one, CompressionParameter)]
    others = [one for one in model.parameters() if not isinstance(one, CompressionParameter)]
    # no weight decay of scores: as nncfx has it
    groups = [{"params": others}, {"params": scores, "weight_decay": 0.0}]
    task.train(model, groups, images, controller)
    with torch.no_grad():
        expected = model.eval()(images(0)[0])
        model.state_dict()  # the masks that strip() applies in RB are those of the last call
        # a copy cannot be made once there was a loss
        masked = controller.strip(do_copy=False).state_dict()
        plain.load_state_dict({name: masked[name] for name in plain.state_dict()})
        torch.testing.assert_close(plain(images(0)[0]), expected, rtol=1e-3, atol=1e-3)
    return plain


if __name__ == "__main__":
    task.main("nncf", compress)
