"""Write the golden file of format version 2; run once, when the version was fixed.

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
    values = {
        "ans.runs.codes": rng.choice([0.25, -0.5, 1.1], 3000) * (rng.random(3000) < 0.05),
        "ans.planes": np.exp(rng.normal(size=1500)),
        "huffman": rng.choice([1.0, 1.0, 2.0, 3.0], 400),
        "fixed": rng.choice(np.arange(16.0), 200),
        "raw": rng.normal(size=3),
    }
    tensors = {
        name: BitTensor(dtype="F32", shape=value.shape, words=value.astype("<f4").view("<u4"))
        for name, value in values.items()
    }
    contents = Contents(tensors=tensors, same={"tied": "raw"}, metadata={"note": "golden"})
    (HERE / "version_2.nncfx").write_bytes(pack(contents))
    words = {name: [t.dtype, list(t.shape), t.words.tolist()] for name, t in tensors.items()}
    (HERE / "version_2.json").write_text(json.dumps(words) + "\n")


if __name__ == "__main__":
    main()
