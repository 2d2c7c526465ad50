"""Combine a user's request with a hardware description into the spec of a quantizer."""

from nncfx.errors import ArgumentError
from nncfx.quantization.grid.spec import FLOAT8_MAX, QuantizerSpec
from nncfx.quantization.placement.placement_options import SpecRequest
from nncfx.targets import DTYPES, Hardware


def activation_spec(
    hardware: Hardware, request: SpecRequest, dtype: str
) -> tuple[QuantizerSpec, bool]:
    """Return the spec of an operation's input, and whether the data decide its sign.

    Args:
        hardware: The hardware that computes the operation.
        request: The user's request; the hardware decides what is None.
        dtype: Dtype of the operation's first input, a name in `DTYPES`.

    Raises:
        ArgumentError: the hardware does not support the request.
    """
    if dtype in FLOAT8_MAX:
        return QuantizerSpec(mode=dtype), False  # type: ignore[arg-type]  # a float8 mode
    if request.per_channel:
        raise ArgumentError(
            "A scale for each channel of an activation is asked for; no runtime computes "
            "with that, because a sum over channels has one scale. Ask for it on weights."
        )
    bits = _bits(hardware, request.bits, dtype)
    mode = request.mode or ("symmetric" if hardware.symmetric_activations else "asymmetric")
    if mode == "asymmetric" and hardware.symmetric_activations:
        raise ArgumentError(
            f"{hardware.name} takes symmetric activations only, and an asymmetric mode is "
            "asked for. Use preset='performance', or mode 'symmetric'."
        )
    may_be_unsigned = dtype.startswith("u")
    signed = mode == "symmetric" if request.signed is None else request.signed
    spec = QuantizerSpec(
        bits=bits,
        mode=mode,
        signed=signed or not may_be_unsigned,
        power_of_two=hardware.power_of_two_scales,
    )
    is_open = request.signed is None and may_be_unsigned and mode == "symmetric"
    return spec, is_open


def weight_spec(
    hardware: Hardware, request: SpecRequest, dtype: str, axis: int | None
) -> QuantizerSpec:
    """Return the spec of a weight.

    Args:
        hardware: The hardware that computes the operation.
        request: The user's request; the hardware decides what is None.
        dtype: Dtype of the operation's second input, a name in `DTYPES`.
        axis: Axis of the output channels, for scales per channel.

    Raises:
        ArgumentError: the hardware does not support the request.
    """
    if dtype in FLOAT8_MAX:
        return QuantizerSpec(mode=dtype, axis=axis)  # type: ignore[arg-type]  # as above
    per_channel = request.per_channel
    if per_channel is None:
        per_channel = hardware.per_channel_weights
    mode = request.mode or "symmetric"
    if hardware.symmetric_activations and (mode == "asymmetric" or request.signed is False):
        raise ArgumentError(
            f"{hardware.name} takes symmetric weights with a sign only, and others are "
            "asked for. Use mode 'symmetric', and leave 'signed' out."
        )
    signed = request.signed is not False if mode == "symmetric" else bool(request.signed)
    return QuantizerSpec(
        bits=_bits(hardware, request.bits, dtype),
        mode=mode,
        signed=signed,
        axis=axis if per_channel else None,
        narrow=mode == "symmetric",
        power_of_two=hardware.power_of_two_scales,
    )


def _bits(hardware: Hardware, asked: int | None, dtype: str) -> int:
    has = DTYPES[dtype]
    if asked is not None and asked > has:
        raise ArgumentError(
            f"{asked} bits are asked for, and {hardware.name} computes in {dtype}, which "
            f"has {has}. Ask for at most {has}, or describe hardware that has more."
        )
    return has if asked is None else asked
