"""Arrays of numpy as tensors of files."""

import numpy as np

from nncfx.storage.codecs.number_formats import BitTensor


def bits_of(array: np.ndarray, dtype: str | None = None) -> BitTensor:
    """Return the tensor with the bits of `array`; `dtype` names a format that numpy lacks."""
    words = np.ascontiguousarray(array).reshape(-1).view(f"<u{array.itemsize}")
    own = f"{array.dtype.kind.upper()}{8 * array.itemsize}"
    return BitTensor(dtype=dtype or own, shape=array.shape, words=words)
