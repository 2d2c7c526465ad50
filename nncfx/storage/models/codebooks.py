"""Tables of sixteen values to which 4-bit weights are rounded."""

from functools import cache
from typing import Final

import torch
from torch import Tensor

CODEBOOKS: Final[dict[str, tuple[float, ...]]] = {
    "nf4": (
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ),
    "float4_e2m1": (
        *(-6.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.5),
        *(-0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0),
    ),
}
"""Values by format, in ascending order; the largest is the last.

Source: Dettmers et al. 2023, QLoRA, appendix E; OCP Microscaling Formats 1.0, table 5.
"""


@cache
def _tables(name: str) -> tuple[Tensor, Tensor]:
    """Return the values, and the midpoints between neighbours, in float32."""
    values = torch.tensor(CODEBOOKS[name], dtype=torch.float32, device="cpu")
    return values, (values[1:] + values[:-1]) / 2


def nearest_codes(x: Tensor, name: str) -> Tensor:
    """Return the index of the nearest value in a table, int64; ties go to the smaller value.

    >>> nearest_codes(torch.tensor([-9.0, 0.1, 2.4, 7.0]), "float4_e2m1")
    tensor([ 0,  8, 12, 15])
    """
    return torch.bucketize(x, _tables(name)[1].to(x))


def from_codes(codes: Tensor, name: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the values at indices of a table.

    >>> from_codes(torch.tensor([0, 12]), "float4_e2m1")
    tensor([-6.,  2.])
    """
    return _tables(name)[0].to(codes.device, dtype)[codes.long()]
