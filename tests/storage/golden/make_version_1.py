"""Write the golden file of format version 1; run once, when the version was fixed.

The file is read in every test run and must never be written again.
"""

import json
from pathlib import Path

import numpy as np

from nncfx.storage.codecs.number_formats import BitTensor
from nncfx.storage.formats.container import Contents, pack

HERE = Path(__file__).parent


def main() -> None:
    rng = np.random.default_rng(0)
    kept = rng.random(400) < 0.1
    values = {
        "runs.codebook": np.where(kept, rng.choice([0.25, -0.5, 1.1], 400), 0).astype("<f4"),
        "runs.planes": np.where(kept, rng.uniform(0.5, 0.6, 400).astype("<f2"), 0).astype("<f4"),
        "bitmap": np.where(kept[:24], 0.0, rng.normal(size=24)).astype("<f4"),
        "dense.codebook": np.where(kept, 0.5, -0.5).astype("<f4"),
        "dense.planes": (1000 + 20 * rng.normal(size=64)).astype("<i2"),
        "raw": rng.normal(size=3).astype("<f4"),
        "empty": np.zeros(0, dtype="<f4"),
    }
    tensors = {
        name: BitTensor(
            dtype={"f": "F", "i": "I"}[value.dtype.kind] + str(8 * value.itemsize),
            shape=value.shape,
            words=value.view(f"<u{value.itemsize}"),
        )
        for name, value in values.items()
    }
    tensors["count"] = BitTensor(dtype="I64", shape=(), words=np.array([300], dtype="<u8"))
    contents = Contents(
        tensors=tensors,
        same={"tied": "raw"},
        sizes={"layer": {"in_features": 20, "out_features": 20}},
        metadata={"note": "golden"},
    )
    (HERE / "version_1.nncfx").write_bytes(pack(contents))
    words = {name: [t.dtype, list(t.shape), t.words.tolist()] for name, t in tensors.items()}
    (HERE / "version_1.json").write_text(json.dumps(words) + "\n")


if __name__ == "__main__":
    main()
