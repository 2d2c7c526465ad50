"""The operator table, with facts about torch's operations that need no model or graph."""

from nncfx.operators.kinds import (
    CONTRACTIONS,
    KINDS,
    LINEAR_LAYERS,
    MOVEMENTS,
    NORMS,
    functions_of,
    operation_kind,
    operator_of,
    register_operator,
)
from nncfx.operators.operator import FIXES, OTHER, Operator
from nncfx.operators.rules import Rules
from nncfx.operators.table import ROWS

__all__ = [
    "CONTRACTIONS",
    "FIXES",
    "KINDS",
    "LINEAR_LAYERS",
    "MOVEMENTS",
    "NORMS",
    "OTHER",
    "ROWS",
    "Operator",
    "Rules",
    "functions_of",
    "operation_kind",
    "operator_of",
    "register_operator",
]
