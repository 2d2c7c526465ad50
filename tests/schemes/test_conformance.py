"""What every scheme promises."""

from collections.abc import Callable

import pytest

from nncfx.schemes import (
    BlockPrune,
    Cluster,
    Compose,
    EntropyQuantize,
    FilterPrune,
    HeadPrune,
    LowRank,
    NeuronPrune,
    Prune,
    Quantize,
    StructurePrune,
)
from nncfx.testing import SCHEME_PROMISES, SchemeSubject

SUBJECTS = (
    SchemeSubject(scheme=Prune()),
    SchemeSubject(scheme=BlockPrune("l1norm", bs=2)),
    SchemeSubject(scheme=FilterPrune(), bound=True),
    SchemeSubject(scheme=NeuronPrune(), bound=True),
    SchemeSubject(scheme=StructurePrune(), bound=True),
    SchemeSubject(scheme=StructurePrune()),
    SchemeSubject(scheme=HeadPrune(), bound=True),
    # a second singular value decomposition rounds as float32 does, to 6e-8 a term
    SchemeSubject(scheme=LowRank(), zeroes=False, rounding=1e-6),
    SchemeSubject(scheme=Cluster(bits=3), reads_level=False, zeroes=False),
    SchemeSubject(scheme=Quantize("float16"), reads_level=False, zeroes=False),
    SchemeSubject(scheme=Quantize("int8"), reads_level=False, zeroes=False),
    SchemeSubject(scheme=EntropyQuantize(), zeroes=False),
    SchemeSubject(scheme=EntropyQuantize(bits=2.0), reads_level=False, zeroes=False),
    SchemeSubject(scheme=Compose([Prune(), Quantize("float16")]), reads_level=False),
)


@pytest.mark.parametrize("promise", SCHEME_PROMISES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda one: str(one.scheme)[:30])
def test_it_keeps_its_promise(
    subject: SchemeSubject, promise: Callable[[SchemeSubject], None]
) -> None:
    promise(subject)
