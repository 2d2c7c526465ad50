"""A small, whole piece of evidence for the tests of the report."""

from nncfx.evidence import OperationFacts, WeightFacts
from nncfx.evidence.evidence import Curve, Evidence, LayerRow, ModelFacts, Sample, StudyEvidence
from nncfx.evidence.judgement import Judgement

DENSE = ModelFacts(
    accuracy=0.92,
    parameters=1000,
    nonzero=1000,
    macs=50_000,
    footprint_bytes=4000,
    file_bytes=4500,
    latency_ms=2.0,
    latency_interval_ms=(1.9, 2.1),
    throughput=500.0,
    packed_bytes=3600,
)
COMPRESSED = ModelFacts(
    accuracy=0.91,
    parameters=400,
    nonzero=390,
    macs=20_000,
    footprint_bytes=780,
    file_bytes=300,
    latency_ms=1.0,
    latency_interval_ms=(0.95, 1.05),
    throughput=1000.0,
    packed_bytes=300,
)


def sample(
    number: int,
    level: float,
    accuracy: float | None,
    objective: float | None = 600.0,
    stage: str = "accuracy",
) -> Sample:
    return Sample(
        number=number,
        stage=stage,
        level=level,
        accuracy=accuracy,
        objective=None if accuracy is None else objective,
        state="failed" if accuracy is None else "done",
        seconds=1.25,
        error="CompressionError: no filter is left" if accuracy is None else None,
        macs=None if accuracy is None else round(50_000 * (1 - level)),
        footprint_bytes=None if accuracy is None else round(4000 * (1 - level)),
    )


STUDY = StudyEvidence(
    name="throughput",
    scheme="FilterPrune()",
    recovery="L-C, 3 steps",
    objective_name="throughput",
    objective_unit="examples/s",
    maximize=True,
    threshold=0.90,
    dense_accuracy=0.92,
    dense_objective=500.0,
    samples=(
        sample(0, 0.0, 0.92, 500.0, stage="dense"),
        sample(1, 0.5, 0.91, 1000.0),
        sample(2, 0.75, 0.60, 1500.0),
        sample(3, 0.9, None),
        sample(4, 0.25, 0.919, 700.0, stage="objective"),
    ),
    accuracy_curve=Curve(
        levels=(0.0, 0.5, 1.0),
        mean=(0.92, 0.91, 0.3),
        lower=(0.9, 0.88, 0.1),
        upper=(0.94, 0.93, 0.5),
    ),
    objective_curve=None,
    level_accuracy=0.51,
    chosen_level=0.5,
    comparison=(sample(1, 0.5, 0.70, 1000.0), sample(2, 0.8, 0.2, 1500.0)),
)
LAYERS = (
    LayerRow(
        module="conv1",
        kind="Conv2d",
        kernel="3 x 3",
        in_channels_before=3,
        in_channels_after=3,
        channels_before=64,
        channels_after=16,
        macs_before=40_000,
        macs_after=10_000,
        nonzero_before=900,
        nonzero_after=300,
        time_before_ms=0.54,
        time_after_ms=0.03,
    ),
    LayerRow(
        module="fc",
        kind="Linear",
        kernel="",
        in_channels_before=64,
        in_channels_after=16,
        channels_before=10,
        channels_after=10,
        macs_before=10_000,
        macs_after=10_000,
        nonzero_before=100,
        nonzero_after=90,
        time_before_ms=0.1,
        time_after_ms=None,
    ),
)
OPERATIONS = (
    OperationFacts(
        address="Net/Conv2d[conv1]/conv2d_0", module="conv1", inputs=(-1,), shape="1 x 16 x 8 x 8"
    ),
    OperationFacts(address="Net/relu_0", module="", inputs=(0,), shape="1 x 16 x 8 x 8"),
    OperationFacts(address="Net/Linear[fc]/linear_0", module="fc", inputs=(1,), shape="1 x 10"),
)
WEIGHTS = (
    WeightFacts(
        module="conv1",
        precision="2-bit codebook",
        bits=2,
        zeros=0.25,
        low=-1.0,
        high=1.0,
        counts=(3, 0, 6),
        values=(-1.0, 0.5, 1.0),
        output_change=0.25,
    ),
    WeightFacts(
        module="fc", precision="float16", bits=16, zeros=0.0, low=-2.0, high=2.0, counts=(4, 4)
    ),
)
EVIDENCE = Evidence(
    title="A <small> & sharp net",
    created="2026-01-02T03:04:05+00:00",
    metric="accuracy",
    runtime="onnxruntime",
    machine={"processor": "Z80"},
    versions={"python": "3.11", "nncfx": "0.1"},
    dense=DENSE,
    compressed=COMPRESSED,
    studies=(STUDY,),
    layers=LAYERS,
    max_thinning_error=2e-7,
    files={"compressed model": "out/model.nncfx"},
    notes=("Measured on a quiet machine.",),
    file_accuracy=0.91,
    command="python demo.py --quick",
    batch=16,
    threads=1,
    operations=OPERATIONS,
    weights=WEIGHTS,
)
JUDGEMENT = Judgement(
    loss=0.01,
    interval=(0.004, 0.016),
    confidence=0.95,
    budget=0.02,
    examples=2000,
    held_out=True,
    data="valloader, held out",
)
