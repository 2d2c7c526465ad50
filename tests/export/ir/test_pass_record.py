"""A file tells which passes changed its nodes, those of before as well."""

import itertools
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from nncfx.errors import ExportError
from nncfx.export import explain, modules_in_file
from nncfx.export.ir.export_pass import PASSES_KEY
from nncfx.export.ir.pass_record import record_passes

TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
graph (float[4] x) => (float[4] y) {{ {} }}
"""


def chain(length: int) -> str:
    """Return a model of `length` additions, one behind the other."""
    names = ["x", *(f"v{number}" for number in range(length - 1)), "y"]
    return TEXT.format("".join(f"{b} = Add({a}, {a}) " for a, b in itertools.pairwise(names)))


@pytest.mark.parametrize("lists", [1, 61, 62, 200])  # 61 and the empty one are the last of a byte
def test_each_node_gets_its_passes_back(lists: int, tmp_path: Path) -> None:
    model = ir.from_onnx_text(chain(lists + 1))
    for number, node in enumerate(model.graph):
        node.name = f"n{number}"
        if number:
            node.metadata_props[PASSES_KEY] = f"first,pass{number}"
    record_passes(model)
    for node in model.graph:
        node.metadata_props.clear()
    ir.save(model, tmp_path / "m.onnx")
    assert explain(tmp_path / "m.onnx") == {
        f"n{number}": ("first", f"pass{number}") for number in range(1, lists + 1)
    }


def test_files_that_hold_passes_and_modules_in_each_node_are_read(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(chain(2))
    entries = [{"nncfx.module": "body.0", "nncfx.passes": "one,two"}, {"nncfx.module": ""}]
    for number, (node, known) in enumerate(zip(model.graph.node, entries, strict=True)):
        node.name = f"{known['nncfx.module']}/Add_{number}"
        onnx.helper.set_metadata_props(node, known)
    onnx.save(model, tmp_path / "m.onnx")
    assert explain(tmp_path / "m.onnx") == {"body.0/Add_0": ("one", "two")}
    assert modules_in_file(tmp_path / "m.onnx") == {
        "body.0/Add_0": "body.0",
        "v0": "body.0",
        "/Add_1": "",
        "y": "",
    }


@pytest.mark.parametrize("record", ["", "\n5", "\none\n-", "\none\n0é"])
def test_a_damaged_record_is_told(record: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(chain(2))
    onnx.helper.set_model_props(model, {PASSES_KEY: record})
    onnx.save(model, tmp_path / "m.onnx")
    if record:
        with pytest.raises(ExportError, match=r"record of passes in .* is damaged"):
            explain(tmp_path / "m.onnx")
    else:
        assert explain(tmp_path / "m.onnx") == {}
