"""Write the golden file of format version 4; run once, when the version was fixed.

The file is read in every test run and must never be written again.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from test_second_context_reader import as_written  # noqa: E402 (its folder is no package)

from nncfx.storage.formats.container import Contents, pack  # noqa: E402


def main() -> None:
    tensors = as_written()
    contents = Contents(tensors=tensors, same={"tied": "fine"}, metadata={"note": "golden"})
    (HERE / "version_4.nncfx").write_bytes(pack(contents, "small"))
    words = {name: [t.dtype, list(t.shape), t.words.tolist()] for name, t in tensors.items()}
    (HERE / "version_4.json").write_text(json.dumps(words) + "\n")


if __name__ == "__main__":
    main()
