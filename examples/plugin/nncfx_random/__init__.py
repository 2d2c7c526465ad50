"""What a package can add to nncfx; importing it attaches the channel rule."""

from nncfx_random import ldexp
from nncfx_random.linear_only import LINEAR_ONLY
from nncfx_random.random_sparsity import RandomSparsityBuilder, RandomSparsityConfig

__all__ = ["LINEAR_ONLY", "RandomSparsityBuilder", "RandomSparsityConfig", "ldexp"]
