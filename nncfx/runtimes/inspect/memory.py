"""The memory of a model in a runtime, measured in a separate process."""

import json
import pickle
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torch import nn

from nncfx.errors import RuntimeFailure
from nncfx.runtimes.protocol.runtime import BuildOptions, ModelSource
from nncfx.runtimes.registry import runtime_named
from nncfx.tracing import ExampleInputs

_STATUS: Final = Path("/proc/self/status")
_RESET: Final = Path("/proc/self/clear_refs")
_KIB: Final = 1024
_CHILD: Final = "import sys; from nncfx.runtimes.inspect.memory import main; main(sys.argv[1])"


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Resident memory in bytes that a model adds to its process.

    Attributes:
        build_bytes: highest while the session is built, above the runtime alone.
        run_bytes: highest while it runs once, above the runtime alone.
    """

    build_bytes: int
    run_bytes: int


def memory_use(
    source: ModelSource,
    inputs: ExampleInputs,
    runtime: str = "onnxruntime",
    options: BuildOptions | None = None,
) -> MemoryUse:
    """Return the memory of a model in `runtime`, measured in a separate process.

    GPU memory does not count, and neither does memory that the runtime needs without a model. A
    module's own weights count.

    Raises:
        ArgumentError: the runtime is unknown.
        RuntimeFailure: the runtime rejects the model or the inputs, the process cannot load the
            module (if it is defined in a script's `__main__`), or the system has no `/proc`.
        MissingExtraError: the runtime is not installed.
    """
    runtime_named(runtime).version()
    if not _RESET.exists():
        raise RuntimeFailure(
            "The peak of a process's memory is read from /proc, which this system does not have. "
            "Measure on Linux."
        )
    with tempfile.TemporaryDirectory(prefix="nncfx-") as folder:
        task = Path(folder) / "task"
        with task.open("wb") as stream:
            model = source if isinstance(source, nn.Module) else Path(source)
            pickle.dump((model, inputs, runtime, options or BuildOptions()), stream)
        command = [sys.executable, "-c", _CHILD, str(task)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (our own interpreter)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RuntimeFailure(f"Memory in '{runtime}' cannot be measured: {reason}")
    return MemoryUse(**json.loads(done.stdout.splitlines()[-1]))


def main(task: str) -> None:
    """Measure the task that `memory_use` wrote to a file, in this process, and print it."""
    with Path(task).open("rb") as stream:
        source, inputs, runtime, options = pickle.load(stream)  # noqa: S301 (from our parent)
    chosen = runtime_named(runtime)
    chosen.version()
    held = 0
    if isinstance(source, nn.Module):
        held = sum(one.nbytes for one in (*source.parameters(), *source.buffers()))
    _RESET.write_text("5", encoding="ascii")  # reset the peak
    start = _peak_bytes() - held
    with chosen.build(source, options) as session:
        built = _peak_bytes() - start
        _RESET.write_text("5", encoding="ascii")
        session.run(inputs)
        ran = _peak_bytes() - start
    sys.stdout.write(json.dumps({"build_bytes": built, "run_bytes": ran}) + "\n")


def _peak_bytes() -> int:
    lines = _STATUS.read_text(encoding="utf-8").splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) * _KIB
