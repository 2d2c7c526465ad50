"""Conformance suites: what an algorithm, a runtime, a scheme or a pass promises, as functions.

They are those of nncfx's own tests, for the tests of who writes one. They need no pytest.
"""

from nncfx.testing.algorithms import ALGORITHM_PROMISES, PARTNERS, AlgorithmSubject
from nncfx.testing.other_device import other_device
from nncfx.testing.passes import PASS_PROMISES, PassSubject
from nncfx.testing.runtimes import RUNTIME_PROMISES, RuntimeSubject
from nncfx.testing.schemes import SCHEME_PROMISES, SchemeSubject

__all__ = [
    "ALGORITHM_PROMISES",
    "PARTNERS",
    "PASS_PROMISES",
    "RUNTIME_PROMISES",
    "SCHEME_PROMISES",
    "AlgorithmSubject",
    "PassSubject",
    "RuntimeSubject",
    "SchemeSubject",
    "other_device",
]
