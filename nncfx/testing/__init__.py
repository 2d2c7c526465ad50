"""Conformance suites: the promises of algorithms, runtimes, schemes and passes, as functions.

nncfx's own tests use them, and so can tests of extensions. They do not need pytest.
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
