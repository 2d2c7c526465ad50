"""Results in float16, rounded by rate and distortion to a share of the bytes of a codebook file.

`nncfx.storage.compress` sees 512 training images, no labels and no test image; nothing is trained.
The file is named after the result with `-rate` at its end and comes with its claim.

    python benchmarks/recode_results.py resnet56-magnitude-931-seed0 --of 6bit --share 0.85
"""

import argparse
import json
from pathlib import Path

import torch
from campaign_results import DATA, RESULTS, write_claim
from pretrained import PRETRAINED

import nncfx
from nncfx.storage import Bytes, absorb_norm_statistics, compress

IMAGES = 512


def recode(name: str, of: str, share: float, data: Path) -> Path:
    """Write the smaller file of the result `name`, and its claim; return its path."""
    reference = RESULTS / f"{name}-{of}.nncfx"
    claim = json.loads(reference.with_suffix(".json").read_text())
    network = PRETRAINED[claim["network"]]
    images, _ = network.train(data, IMAGES)
    model = nncfx.load(RESULTS / f"{name}-16bit.nncfx", network.load(data))[1].float().eval()
    absorb_norm_statistics(model)
    budget = Bytes(int(share * reference.stat().st_size))
    path = RESULTS / f"{name}-rate.nncfx"
    compress(model, images.split(128), budget=budget).save(path)
    command = f"python benchmarks/recode_results.py {name} --of {of} --share {share}"
    write_claim(path, claim["network"], data, command)
    return path


def main() -> None:
    """Write the files that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", help="results without their last part, such as 16bit")
    parser.add_argument("--of", required=True, help="last part of the file to be smaller than")
    parser.add_argument("--share", type=float, required=True, help="of that file's bytes")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with data/ and weights/")
    options = parser.parse_args()
    for name in options.names:
        path = recode(name, options.of, options.share, options.data)
        claim = json.loads(path.with_suffix(".json").read_text())
        print(f"{path.stem}: {claim['file_bytes']:,} bytes, {claim['accuracy']:.2f} %", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
