"""Thin published architectures to half of their channels, and print which come out exact.

Random weights, evaluation mode, nothing declared by hand: groups of channels are ranked by the L1
norm of their producers over the mean of their set, half of all are set to zero, `thin` removes
them. A model passes if the thin one agrees with the masked one to 1e-12 in float64, one training
step of it runs, and at most 70 % of the parameters stay; where more stay, what fixed the channels
follows. The table also has the seconds of analysis, surgery and proof against one forward and
backward of the dense model. A table that broke off goes on with `--table FILE`, which takes up
rows as they come.

    python benchmarks/thin_coverage.py pytorchcv --living-norms --only resnet densenet
    PYTHONPATH=../shared/tools python benchmarks/thin_coverage.py timm --table timm.md
"""

import argparse
import importlib
import os
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from trace_zoos import ZOOS, Subject, make_timm

from nncfx.errors import machine_fault
from nncfx.graph.channels import Channels
from nncfx.schemes import group_scores, keep_groups, zero_groups
from nncfx.thinning import ThinResult, prunable_channels, thin
from nncfx.tracing import run
from nncfx.tracing.calls.tensors import tensors_in

# ruff: noqa: ANN401 (inputs are whatever models take)

LARGEST_SHARE = 0.7
"""A model of which more parameters stay does not pass."""

TIMM = """resnet50d resnet26t seresnet50 densenet121 efficientnet_b0 tf_efficientnetv2_b0
mobilenetv3_large_100 mobilenetv4_conv_small convnext_tiny convnextv2_atto
vit_tiny_patch16_224 deit_tiny_distilled_patch16_224 beit_base_patch16_224
regnety_016 regnetx_004 ghostnet_100 hrnet_w18_small dla34 dla60x xception41
repvgg_a0 ese_vovnet19b_dw mobileone_s0 inception_v4 inception_resnet_v2
selecsls42 resnest14d mobilevit_xxs lcnet_050 densenetblur121d
swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 mixer_b16_224 gmlp_s16_224
resmlp_12_224 dpn68 res2net50_26w_4s res2next50 nf_resnet50 eca_nfnet_l0
dm_nfnet_f0 coat_tiny coat_lite_tiny levit_128s maxvit_tiny_rw_224
coatnet_0_rw_224 cspresnet50 cspdarknet53 edgenext_x_small poolformer_s12
fastvit_t8 efficientvit_b0 pvt_v2_b0 davit_tiny skresnet18 tresnet_m
crossvit_9_240 pit_ti_224 twins_svt_small visformer_tiny xcit_nano_12_p16_224
rexnet_100""".split()  # noqa: SIM905 (a word list)
"""The models of the comparison with Torch-Pruning."""

NO_CLASSIFIERS: Final = frozenset(
    """alphapose_coco bisenet centernet cgnet contextnet dabnet danet deeplabv3 edanet enet erfnet
esnet fastscnn fcn8sd fpenet ibppose_coco icnet jasper jasperdr lednet lffd linknet
lwopenpose_cmupan nvpattexp pfpcnet prnet propainter propainter_ip propainter_rfc pspnet quartznet
raft segnet simplepose_coco simpleposemobile_coco sinet superpointnet unet visemenet
voca""".split()  # noqa: SIM905 (a word list)
)
"""Families of pytorchcv that do something else."""

FIXED_IMAGES: Final = ("vit", "swin", "maxvit")
"""Kinds of torchvision's models whose weights or windows fit one size of image."""

EXPERTS: Final = frozenset(
    {
        *("GptOssForCausalLM", "MixtralForCausalLM", "OlmoeForCausalLM"),
        *("Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"),
    }
)
"""Mixtures of experts, whose kernels have no float64 and take widths of whole 16 bytes only."""

FLOAT32: Final = frozenset({"CanineModel"})
"""Models whose code has no float64: Canine's mask is NaN there, and so are its outputs."""

HEADER: Final = """| model | result | kept | error | analysis + thin | forward+backward | groups |
|---|---|---|---|---|---|---|"""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one model: the share of parameters kept, error and times in seconds."""

    name: str
    kept: float
    error: float
    thin_s: float
    step_s: float
    prunable: str
    reasons: str
    own_fault: str

    @property
    def passes(self) -> bool:
        """Whether enough goes, and the thin model trains."""
        return self.kept <= LARGEST_SHARE and not self.own_fault

    def row(self) -> str:
        """Return a line of the table."""
        verdict = "pass" if self.passes else f"more stays: {self.reasons}"
        if self.own_fault:
            verdict = f"agrees, but the dense model itself has no backward: {self.own_fault}"
        return (
            f"| {self.name} | {verdict} | {self.kept:.0%} | {self.error:.0e} | {self.thin_s:.2f} "
            f"| {self.step_s:.2f} | {self.prunable} |"
        )


def subjects(zoo: str) -> list[Subject]:
    """Return the models of a zoo: timm's of the comparison, pytorchcv's classifiers."""
    if zoo in {"torchvision", "torchvision_tasks", "timm"}:
        importlib.import_module("torchvision_on_cpu")
    if zoo == "timm":
        return [Subject(name, partial(make_timm, name)) for name in TIMM]
    return [one for one in ZOOS[zoo]() if zoo != "pytorchcv" or one.name not in NO_CLASSIFIERS]


def check(subject: Subject, options: argparse.Namespace) -> Outcome:
    """Thin one model; raises whatever goes wrong."""
    model, inputs = prepared(subject, options)
    began = time.perf_counter()
    own_fault = fault_of_backward(model, inputs)
    model.zero_grad()  # the model is used on, so that nothing may become NaN times zero
    step_s = time.perf_counter() - began
    began = time.perf_counter()
    channels = prunable_channels(
        model, inputs, living_norms=options.living_norms, form=options.form
    )
    analysis_s = time.perf_counter() - began
    weights = dict(model.named_parameters(remove_duplicate=False))
    keep = keep_groups(group_scores(channels, weights, "l1norm", normalize=True), options.level)
    zero_groups(channels, keep, weights)
    began = time.perf_counter()
    result: ThinResult = thin(model, inputs, channels=channels)
    thin_s = analysis_s + time.perf_counter() - began
    if not own_fault:
        step(result.model, inputs)
    before, after = result.parameters
    sizes = [group_set.size for group_set in channels]
    free = [group_set.size for group_set in channels.prunable]
    return Outcome(
        name=subject.name,
        kept=after / before,
        error=result.max_error,
        thin_s=thin_s,
        step_s=step_s,
        prunable=f"{sum(free)}/{sum(sizes)}",
        reasons=reasons(channels),
        own_fault=own_fault,
    )


def prepared(subject: Subject, options: argparse.Namespace) -> tuple[nn.Module, Any]:
    """Return a model with values and inputs as the options say."""
    torch.manual_seed(0)
    model, inputs = subject.make()
    if options.pixels and not subject.name.startswith(FIXED_IMAGES):
        inputs = inputs[..., : options.pixels, : options.pixels]
    model = scattered(model).eval()
    if options.single or subject.name in FLOAT32:
        return model, inputs
    if subject.name in EXPERTS:
        model.set_experts_implementation("eager")
    return model.double(), as_double(inputs)


def reasons(channels: Channels) -> str:
    """Return why channels are fixed, with how many groups; numbers of blocks are left out."""
    counts: Counter[str] = Counter()
    for group_set in channels:
        if group_set.fixed is not None:
            # the class of the model stands before the first slash
            address = re.sub(r"'[^'/]*/", "'", group_set.fixed)
            counts[re.sub(r"\[\d+\]|_\d+", "", address)] += group_set.size
    return "; ".join(f"{count}: {why}" for why, count in counts.most_common())


def scattered(model: nn.Module) -> nn.Module:
    """Give vectors, and weights of zeros, values at which nothing is zero or one by accident."""
    generator = torch.Generator().manual_seed(7)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and tensor.dim() == 1:
            shift = torch.rand(tensor.shape, generator=generator) - 0.5
            tensor.add_(shift if "bias" in name or "mean" in name else shift / 2)
        elif name.endswith("weight") and tensor.dim() > 1 and not tensor.any():
            # a classifier of zeros, as torchvision's ViT has, would read nothing
            tensor.copy_(torch.randn(tensor.shape, generator=generator) / tensor.shape[-1] ** 0.5)
    return model


def as_double(inputs: Any) -> Any:
    """Return inputs in float64; integers stay."""
    if isinstance(inputs, dict):
        return {key: as_double(value) for key, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(as_double(value) for value in inputs)
    if not isinstance(inputs, torch.Tensor):
        return inputs
    return inputs.double() if inputs.is_floating_point() else inputs


def step(model: nn.Module, inputs: Any) -> None:
    """Run forward, backward and one step of gradient descent of size zero."""
    backward(model, inputs)
    torch.optim.SGD(model.parameters(), lr=0.0).step()
    model.zero_grad()


def backward(model: nn.Module, inputs: Any) -> None:
    """Run forward and backward."""
    model.zero_grad()
    outputs = run(model, inputs)
    floats = [tensor for tensor in tensors_in(outputs) if tensor.requires_grad]
    sum(tensor.square().mean() for tensor in floats).backward()


def fault_of_backward(model: nn.Module, inputs: Any) -> str:
    """Run forward and backward; return what torch says if the model has none, else nothing."""
    try:
        backward(model, inputs)
    except RuntimeError as error:
        return brief(error)
    return ""


def main() -> None:
    """Run the chosen models and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("zoo", choices=ZOOS)
    parser.add_argument("--only", nargs="*", default=[], help="names of models")
    parser.add_argument("--table", type=Path, help="file of rows; models in it are not run again")
    parser.add_argument("--level", type=float, default=0.5, help="fraction of the groups that go")
    parser.add_argument("--living-norms", action="store_true", help="norms let channels go")
    parser.add_argument(
        "--form", choices=["class", "auto"], default="class", help="whether modules become graphs"
    )
    parser.add_argument("--pixels", type=int, help="side of images, where a model takes any")
    parser.add_argument("--single", action="store_true", help="float32, to 1e-5 (MoE kernels)")
    parser.add_argument("--trace", action="store_true", help="print tracebacks")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [] if options.table is None or not options.table.exists() else lines(options.table)
    done = {row.split("|")[1].strip() for row in rows[2:]}
    print("\n".join(rows) or HEADER, flush=True)
    with (options.table or Path(os.devnull)).open("a") as table:
        if not rows:
            print(HEADER, file=table)
        for subject in subjects(options.zoo):
            if subject.name in done or (options.only and subject.name not in options.only):
                continue
            rows.append(outcome(subject, options))
            print(rows[-1], flush=True)
            print(rows[-1], file=table, flush=True)
    results = [row for row in rows if not row.startswith(HEADER[:9]) and "---" not in row]
    counts = Counter(row.split("|")[2].split(":")[0].strip() for row in results)
    print(f"\n{len(results)} models: " + ", ".join(f"{n} {word}" for word, n in counts.items()))


def lines(table: Path) -> list[str]:
    """Return the rows of a table that broke off."""
    return table.read_text().splitlines()


def outcome(subject: Subject, options: argparse.Namespace) -> str:
    """Return the row of one model."""
    try:
        return check(subject, options).row()
    except Exception as error:
        if machine_fault(error) is not None:
            raise  # says nothing of the model
        if options.trace:
            traceback.print_exc(file=sys.stderr)
        return f"| {subject.name} | FAIL: {brief(error)} | | | | | |"


def brief(error: Exception) -> str:
    """Return the kind of an error and the beginning of its text, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


if __name__ == "__main__":
    main()
