"""Divisions by powers of two become multiplications, which are as exact and take less time."""

import numpy as np
import onnx_ir as ir

from nncfx.export import Draft, ExportPass, register_export_pass

__all__ = ["EXACT_DIVISION"]


HALF = 0.5
LARGEST = 100


def multiply_instead(draft: Draft) -> None:
    """Replace each `Div` by a constant power of two."""
    for node in [one for one in draft.graph if one.op_type == "Div"]:
        divisor = node.inputs[1]
        tensor = None if divisor is None else ir.convenience.get_const_tensor(divisor)
        if tensor is None or not is_power_of_two(tensor.numpy()):
            continue
        factor = ir.tensor(1 / tensor.numpy(), name=f"{node.name}_factor")
        constant = ir.node("Constant", [], {"value": factor})
        product = ir.node("Mul", [node.inputs[0], constant.outputs[0]], name=node.name)
        draft.graph.insert_before(node, [constant, product])
        result, output = node.outputs[0], product.outputs[0]
        output.name, output.type, output.shape = result.name, result.type, result.shape
        ir.convenience.replace_all_uses_with(result, output, replace_graph_outputs=True)
        draft.graph.remove(node, safe=True)


def is_power_of_two(values: np.ndarray) -> bool:
    """Return whether dividing floats by `values` and multiplying by their inverse is the same."""
    # the mantissa of a power of two is a half; the inverse of a very small one is no number
    mantissas, exponents = np.frexp(values)
    are_powers = (np.abs(mantissas) == HALF) & (np.abs(exponents) < LARGEST)
    return values.dtype.kind == "f" and bool(are_powers.all())


EXACT_DIVISION = ExportPass(
    name="exact_division",
    reason="a multiplication takes less time than a division",
    run=multiply_instead,
    always=True,
)
register_export_pass(EXACT_DIVISION, before="remove_unused")
