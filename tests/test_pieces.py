"""Pieces of large tensors: in order, whole where that is better, and written to in place."""

import torch

from nncfx.pieces import in_pieces


def test_pieces_are_the_entries_in_order_and_can_be_written_to() -> None:
    values, doubled = torch.arange(600_000.0).view(2, 300_000), torch.empty(2, 300_000)
    for into, piece in in_pieces(doubled, values):
        assert piece.nbytes <= 1 << 19
        into.copy_(2 * piece)
    assert torch.equal(doubled, 2 * values)


def test_other_devices_get_a_tensor_whole() -> None:
    assert [one.shape for (one,) in in_pieces(torch.empty(300, 1000, device="meta"))] == [
        (300_000,)
    ]


def test_a_tensor_without_entries_has_no_entry_in_any_piece() -> None:
    assert sum(one.numel() for (one,) in in_pieces(torch.empty(0, 4))) == 0
