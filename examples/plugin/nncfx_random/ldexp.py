"""Channels pass through `torch.ldexp(x, n)`, which is `x * 2 ** n`, as through any product.

nncfx knows nothing of the function, so that it would leave the channels in front of it alone.
"""

from nncfx.channels import channel_rule
from nncfx.channels.rules.elementwise import pointwise

__all__ = ["ldexp"]

ldexp = channel_rule("ldexp")(pointwise)
