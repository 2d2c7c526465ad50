"""Constant sparsity: zeros stay, all else trains."""

import torch
from torch import nn

from nncfx.compressor import create_compressed_model


def test_zeros_stay_and_the_others_train() -> None:
    model = nn.Linear(4, 4)
    with torch.no_grad():
        model.weight[:2] = 0
    item = {"algorithm": "const_sparsity"}
    controller, model = create_compressed_model(model, {"compression": item}, torch.ones(1, 4))
    before = model.weight.detach().clone()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        controller.scheduler.epoch_step()
        loss = model(torch.ones(2, 4)).square().sum() + controller.loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert model.nncf.weight("weight")[:2].eq(0).all()
    assert model.nncf.weight("weight")[2:].ne(before[2:]).all()
    assert controller.statistics().level == 0.5
