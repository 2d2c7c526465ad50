"""Facts of operations and weights survive JSON, as a part of the evidence."""

import dataclasses

from nncfx.evidence import OperationFacts, WeightFacts
from nncfx.json_codec import decode, encode


def test_they_read_back() -> None:
    weight = WeightFacts(
        module="a", precision="float16", bits=16, zeros=0.5, low=-1.0, high=1.0, counts=(1, 2),
        values=(0.5,), output_change=0.1,
    )  # fmt: skip
    operation = OperationFacts(address="A/relu_0", module="", inputs=(-1, 0), shape="1 x 2")
    for one in (weight, operation, dataclasses.replace(weight, output_change=None)):
        assert decode(type(one), encode(one)) == one
