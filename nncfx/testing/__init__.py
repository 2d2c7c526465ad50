"""Conformance suites: what an algorithm, a runtime or a scheme promises, as functions.

They are those of nncfx's own tests, for the tests of who writes one. They need no pytest.
"""

from nncfx.testing.algorithms import ALGORITHM_PROMISES, PARTNERS, AlgorithmSubject
from nncfx.testing.runtimes import RUNTIME_PROMISES, RuntimeSubject
from nncfx.testing.schemes import SCHEME_PROMISES, SchemeSubject

__all__ = [
    "ALGORITHM_PROMISES",
    "PARTNERS",
    "RUNTIME_PROMISES",
    "SCHEME_PROMISES",
    "AlgorithmSubject",
    "RuntimeSubject",
    "SchemeSubject",
]
