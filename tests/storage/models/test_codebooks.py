"""Tables of sixteen values."""

import pytest
import torch

from nncfx.errors import StorageError
from nncfx.storage.models.codebooks import CODEBOOKS, from_codes, nearest_codes
from nncfx.storage.models.integer_tensor import IntegerTensor


@pytest.mark.parametrize("name", CODEBOOKS)
def test_every_value_is_nearest_to_itself(name: str) -> None:
    values = torch.tensor(CODEBOOKS[name])
    assert torch.equal(values, values.sort().values)
    assert torch.equal(from_codes(nearest_codes(values, name), name), values)


def test_float4_has_the_values_of_one_sign_two_exponent_and_one_mantissa_bit() -> None:
    """OCP Microscaling Formats 1.0: bias 1, subnormals, no infinity."""
    magnitudes = [m / 2 for m in (0, 1)] + [
        2 ** (e - 1) * (1 + m / 2) for e in (1, 2, 3) for m in (0, 1)
    ]
    assert sorted(-one for one in magnitudes) + magnitudes == list(CODEBOOKS["float4_e2m1"])


def test_nf4_has_quantiles_of_the_normal_distribution() -> None:
    """Each half lies at quantiles spread evenly between the ends, 0 in both; QLoRA, section 3."""
    normal = torch.distributions.Normal(0.0, 1.0)
    end = 0.9677083
    positive = normal.icdf(torch.linspace(end, 0.5, 9)[:-1])
    negative = -normal.icdf(torch.linspace(end, 0.5, 8)[:-1])
    values = torch.cat([negative, torch.zeros(1), positive.flip(0)]) / positive.max()
    torch.testing.assert_close(values, torch.tensor(CODEBOOKS["nf4"]), atol=1e-4, rtol=0)


def test_places_beyond_the_table_are_refused() -> None:
    parts = torch.full((2, 2), 16, dtype=torch.uint8), torch.ones(2), None
    with pytest.raises(StorageError, match="do not fit integers"):
        IntegerTensor.from_parts(*parts, {"bits": 4, "axis": 0, "codebook": "nf4", "dtype": "F32"})
