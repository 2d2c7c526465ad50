"""Where code holds a width, a module becomes a graph in which that width has changed."""

import copy
import io
import json
import operator
import pickle
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import fx, nn
from torch.nn import functional as F

import nncfx
from nncfx.channels import analyze_channels
from nncfx.errors import ArgumentError, ThinningError
from nncfx.graph.channels import Channels
from nncfx.schemes import group_masks, group_scores, keep_groups
from nncfx.thinning import ThinRecipe, ThinResult, prunable_channels, rebuild, thin
from small_models import Function

IMAGE = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


class LeNet(nn.Module):
    """The network of PyTorch's tutorial, with its `view`; `unused` is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)
        self.unused = nn.Linear(2, 2)
        self.classes = ("cat", "dog")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), (2, 2))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(-1, 16 * 5 * 5)
        x = F.dropout(F.relu(self.fc1(x)), 0.5, self.training)
        return self.fc3(F.relu(self.fc2(x)))


class Literal(nn.Module):
    """A convolution of 16 channels, code that knows their number, and a convolution."""

    def __init__(self, code: Callable[["Literal", torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 5, 3)
        self.mix = nn.Conv2d(8, 16, 1)
        self.gate = nn.Conv2d(16, 1, 1)
        self.depthwise = nn.Parameter(torch.randn(16, 1, 3, 3))
        self.scale = nn.Parameter(torch.rand(16))
        self.code = code

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.relu(self.code(self, self.first(x)))).mean((2, 3))


LITERALS: dict[str, Callable[[Literal, torch.Tensor], torch.Tensor]] = {
    "split": lambda m, x: sum(m.mix(part) for part in x.split(8, 1)),
    "split in parts": lambda _, x: torch.cat(x.split([10, 6], 1)[::-1], 1),
    "slices": lambda m, x: m.mix(x[:, :8]) * m.mix(x[:, 8:16]),
    "ellipsis": lambda m, x: m.mix(x[..., 8:, :, :]),
    "part in place": lambda m, x: (operator.imul(x[:, :8], 2.0), m.mix(x[:, 8:16]) + x)[1],
    "narrow": lambda m, x: m.mix(x.narrow(1, 8, 8)),
    "reshape to heads": lambda _, x: (
        x.reshape(x.shape[0], 4, 4, -1).transpose(1, 2).reshape(x.shape[0], 16, *x.shape[2:])
    ),
    "zeros": lambda _, x: x + torch.zeros(len(x), 16, 1, 1),
    "new_ones": lambda _, x: x * x.new_ones((1, 16, 1, 1)),
    "expand": lambda m, x: x * torch.sigmoid(m.gate(x)).expand(-1, 16, -1, -1),
    "functional groups": lambda m, x: F.conv2d(x, m.depthwise, groups=16, padding=1),
    "view of a parameter": lambda m, x: x * m.scale.view(1, 16, 1, 1),
}
"""Code that holds the 16, or a part of it."""

NORMS: dict[str, Callable[[Literal, torch.Tensor], torch.Tensor]] = {
    "layer_norm": lambda m, x: F.layer_norm(x.movedim(1, -1), (16,), m.scale, m.scale).movedim(
        -1, 1
    ),
    "group_norm": lambda m, x: F.group_norm(x, 4, m.scale, m.scale),
}
"""Such code, of norms that average over channels."""


def half_masked(model: nn.Module, channels: Channels) -> nn.Module:
    weights = dict(model.named_parameters())
    keep = keep_groups(group_scores(channels, weights, "l1norm"), 0.5, scope="local")
    masked = copy.deepcopy(model)
    with torch.no_grad():
        for name, mask in group_masks(channels, keep, weights).items():
            masked.get_parameter(name).masked_fill_(~mask, 0)
    return masked


def thinned(model: nn.Module, x: torch.Tensor, *, living_norms: bool = False) -> ThinResult:
    channels = prunable_channels(model, x, living_norms=living_norms, form="auto")
    return thin(half_masked(model, channels), x, living_norms=living_norms)


@pytest.fixture
def lenet() -> LeNet:
    torch.manual_seed(0)
    return LeNet().eval()


@pytest.fixture
def image() -> torch.Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_the_view_of_the_tutorial_shrinks_with_its_filters_in_a_graph_that_is_told(
    lenet: LeNet, image: torch.Tensor
) -> None:
    result = thinned(lenet, image)
    assert result.model.conv2.out_channels == 8
    assert result.model.fc1.in_features == 8 * 5 * 5
    assert result.fixed == {}
    assert isinstance(result.model, fx.GraphModule)
    assert result.exchanged.keys() == {""}
    assert ("The model is now a GraphModule: widths in the code of LeNet have changed.") in str(
        result
    )


def test_only_the_module_whose_code_holds_the_width_becomes_a_graph(image: torch.Tensor) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.ReLU(), nn.ModuleDict({"net": LeNet()})["net"], nn.Softmax(1)).eval()
    result = thinned(model, image)
    assert result.exchanged.keys() == {"1"}
    assert type(result.model) is nn.Sequential
    assert isinstance(result.model[1], fx.GraphModule)


def test_the_class_stays_where_it_can(lenet: LeNet, image: torch.Tensor) -> None:
    lenet.fc3.weight.data[:, :40] = 0
    result = thin(lenet, image)
    assert type(result.model) is LeNet
    assert result.removed == {"fc2": tuple(range(40))}


def test_the_class_stays_where_that_is_asked_for(lenet: LeNet, image: torch.Tensor) -> None:
    channels = prunable_channels(lenet, image, form="auto")
    result = thin(half_masked(lenet, channels), image, form="class")
    assert type(result.model) is LeNet
    assert result.model.conv2.out_channels == 16
    assert result.fixed == {
        "conv2": "'LeNet/view_0' fails without some of them: the code around it holds a width; "
        "as a graph (form='auto') the module could lose them"
    }


def test_a_form_that_is_none_is_refused(lenet: LeNet, image: torch.Tensor) -> None:
    with pytest.raises(ArgumentError, match=r"form is 'graph'\. Give 'class' to keep the class"):
        thin(lenet, image, form="graph")


@pytest.mark.parametrize("code", [pytest.param(one, id=name) for name, one in LITERALS.items()])
def test_code_that_holds_a_width_loses_channels_and_computes_the_same(
    code: Callable[[Literal, torch.Tensor], torch.Tensor],
) -> None:
    torch.manual_seed(0)
    model, x = Literal(code).double().eval(), IMAGE.double()
    assert "first" in prunable_channels(model, x).fixed
    channels = prunable_channels(model, x, form="auto")
    assert "first" not in channels.fixed
    masked = half_masked(model, channels)
    result = thin(masked, x)
    assert result.model.first.out_channels < 16
    assert result.max_error < 1e-12
    other = torch.randn(5, 3, 11, 13).double()
    torch.testing.assert_close(result.model(other), masked(other), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("code", [pytest.param(one, id=name) for name, one in NORMS.items()])
def test_norms_whose_width_stands_in_the_code_see_living_channels(
    code: Callable[[Literal, torch.Tensor], torch.Tensor],
) -> None:
    torch.manual_seed(0)
    result = thinned(Literal(code).double().eval(), IMAGE.double(), living_norms=True)
    assert result.model.first.out_channels == 8
    assert result.max_error < 1e-12


def test_a_number_of_groups_in_the_code_is_the_reason_that_channels_stay() -> None:
    model = Literal(NORMS["group_norm"])
    reason = "'Literal/group_norm_0' gets its number of groups from the code"
    assert prunable_channels(model, IMAGE, living_norms=True).fixed["first"] == reason


def test_keys_and_attributes_stay_used_or_not(lenet: LeNet, image: torch.Tensor) -> None:
    graph = thinned(lenet, image).model
    assert list(graph.state_dict()) == list(lenet.state_dict())
    assert graph.classes == ("cat", "dog")


def test_dropout_follows_the_mode_of_the_graph(lenet: LeNet, image: torch.Tensor) -> None:
    """With every channel alive the graph must do in training what the module does."""
    graph = thinned(lenet, image).model
    assert not torch.equal(graph.train()(image), graph(image))
    assert torch.equal(graph.eval()(image), graph(image))


def test_batch_norms_of_a_graph_learn_in_training_only() -> None:
    class Normed(LeNet):
        def __init__(self) -> None:
            super().__init__()
            self.conv2 = nn.Sequential(self.conv2, nn.BatchNorm2d(16))

    torch.manual_seed(0)
    image = torch.randn(4, 3, 32, 32)
    graph = thinned(Normed().eval(), image).model
    before = graph.conv2[1].running_mean.clone()
    graph(image)
    assert torch.equal(graph.conv2[1].running_mean, before)
    graph.train()(image)
    assert not torch.equal(graph.conv2[1].running_mean, before)


def test_a_graph_trains_on(lenet: LeNet, image: torch.Tensor) -> None:
    graph = thinned(lenet, image).model.train()
    optimizer = torch.optim.Adam(graph.parameters(), 0.01)
    torch.manual_seed(0)
    labels = torch.tensor([1, 2])
    before = F.cross_entropy(graph(image), labels)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(graph(image), labels).backward()
        optimizer.step()
    assert F.cross_entropy(graph.eval()(image), labels) < 0.5 * before
    used = [p for name, p in graph.named_parameters() if not name.startswith("unused")]
    assert all(p.grad is not None for p in used)


@pytest.mark.parametrize("way", ["pickle", "torch.save", "deepcopy"])
def test_a_copy_of_a_graph_is_whole(way: str, lenet: LeNet, image: torch.Tensor) -> None:
    graph = thinned(lenet, image).model
    if way == "pickle":
        other = pickle.loads(pickle.dumps(graph))  # noqa: S301 (what we have just written)
    elif way == "deepcopy":
        other = copy.deepcopy(graph)
    else:
        file = io.BytesIO()
        torch.save(graph, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    assert torch.equal(other(image), graph(image))
    torch.manual_seed(3)
    expected = graph.train()(image)
    torch.manual_seed(3)
    assert torch.equal(other.train()(image), expected)
    assert list(other.state_dict()) == list(graph.state_dict())
    other.conv1.weight.data.zero_()
    assert graph.conv1.weight.any()


def test_a_recipe_makes_the_graph_again(lenet: LeNet, image: torch.Tensor) -> None:
    result = thinned(lenet, image)
    recipe = ThinRecipe.from_json(result.recipe.to_json())
    assert recipe == result.recipe
    again = rebuild(LeNet(), recipe, result.model.state_dict()).eval()
    assert isinstance(again, fx.GraphModule)
    assert torch.equal(again(image), result.model(image))


def asking_for(recipe: ThinRecipe, info: dict[str, Any]) -> str:
    """Return a recipe whose modules are given a tensor like `info`."""
    content = json.loads(recipe.to_json())
    (arguments,) = content["forms"].values()
    arguments |= dict.fromkeys(arguments, info)
    return json.dumps(content)


def test_a_recipe_that_asks_for_much_memory_is_refused(lenet: LeNet, image: torch.Tensor) -> None:
    result = thinned(lenet, image)
    huge = asking_for(result.recipe, {"tensor": [2**30, 3, 32, 32], "dtype": "float32"})
    fault = re.escape(
        "To trace its modules again the recipe asks for arguments of 13,194,139,533,312 bytes, "
        "most of them for ''; at most 1,073,741,824 are made. If you trust the recipe, pass "
        "most_bytes=, or thin with smaller example inputs."
    )
    with pytest.raises(ThinningError, match=fault):
        rebuild(LeNet(), ThinRecipe.from_json(huge), result.model.state_dict())
    size = image.numel() * 4
    assert rebuild(LeNet(), result.recipe, most_bytes=size)
    with pytest.raises(ThinningError, match="bytes"):
        rebuild(LeNet(), result.recipe, most_bytes=size - 1)


@pytest.mark.parametrize("info", [([-1, 3], "float32"), ([1, 3], "load"), ([1, 3], "nothing")])
def test_a_recipe_of_impossible_tensors_is_no_recipe(
    lenet: LeNet, image: torch.Tensor, info: tuple[list[int], str]
) -> None:
    result = thinned(lenet, image)
    text = asking_for(result.recipe, {"tensor": info[0], "dtype": info[1]})
    with pytest.raises(ThinningError, match="there is no tensor of shape"):
        ThinRecipe.from_json(text)


def test_a_graph_is_thinned_again(lenet: LeNet, image: torch.Tensor) -> None:
    once = thinned(lenet, image).model
    twice = thinned(once, image)
    assert twice.model.conv2.out_channels == 4
    assert twice.max_error < 1e-5


def test_the_batch_stays_free_in_onnx(lenet: LeNet, image: torch.Tensor, tmp_path: Path) -> None:
    graph = thinned(lenet, image).model
    path = tmp_path / "graph.onnx"
    nncfx.export_onnx(graph, path, image)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    for batch in (1, 5):
        x = torch.randn(batch, 3, 32, 32)
        (found,) = session.run(None, {given.name: x.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), graph(x), rtol=1e-4, atol=1e-5)


def test_a_graph_is_compiled_whole_and_exported_with_a_free_batch(
    lenet: LeNet, image: torch.Tensor
) -> None:
    graph = thinned(lenet, image).model
    compiled = torch.compile(graph, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(image), graph(image))
    free = ({0: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(graph, (image,), dynamic_shapes=free)
    assert program.module()(torch.randn(7, 3, 32, 32)).shape == (7, 10)


def test_a_graph_can_be_wrapped_and_compressed(lenet: LeNet, image: torch.Tensor) -> None:
    graph = thinned(lenet, image).model
    config = nncfx.NNCFConfig.from_dict(
        {
            "input_info": {"sample_size": [2, 3, 32, 32]},
            "compression": {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5},
        }
    )
    controller, wrapped = nncfx.create_compressed_model(graph, config)
    assert controller.statistics().level == pytest.approx(0.5, abs=0.01)
    assert nncfx.strip(wrapped)(image).shape == (2, 10)


def test_an_input_that_takes_another_branch_is_refused() -> None:
    class Branching(LeNet):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.dim() == 3:
                x = x.unsqueeze(0)
            return super().forward(x)

    torch.manual_seed(0)
    image = torch.randn(2, 3, 32, 32)
    graph = thinned(Branching().eval(), image).model
    assert graph(image[:1]).shape == (1, 10)
    with pytest.raises(AssertionError, match="this graph holds where eq is False"):
        graph(image[0])


def test_code_that_looks_at_values_keeps_its_class_and_its_channels(image: torch.Tensor) -> None:
    class Curious(LeNet):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    torch.manual_seed(0)
    model = Curious().eval()
    channels = prunable_channels(model, image, form="auto")
    assert "the code around it holds a width" in channels.fixed["conv2"]
    assert channels.forms == {}


def test_code_that_trains_in_another_way_keeps_its_class(image: torch.Tensor) -> None:
    class Teaching(LeNet):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = super().forward(x)
            return found * 2 + 1 if self.training else found

    torch.manual_seed(0)
    assert prunable_channels(Teaching().eval(), image, form="auto").forms == {}


def test_the_model_is_left_as_it_was(lenet: LeNet, image: torch.Tensor) -> None:
    before, keys = copy.deepcopy(lenet.state_dict()), set(vars(lenet))
    prunable_channels(lenet, image, form="auto")
    assert set(vars(lenet)) == keys
    assert all(torch.equal(before[name], one) for name, one in lenet.state_dict().items())


@settings(max_examples=15)
@example(widths=[3], ways=["split", "view", "view"], seed=0)  # 4 channels are split into 3 and 1
@given(
    widths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    ways=st.lists(st.sampled_from(["view", "split", "zeros", "slice"]), min_size=3, max_size=3),
    seed=st.integers(0, 99),
)
def test_any_chain_of_such_code_computes_the_same(
    widths: list[int], ways: list[str], seed: int
) -> None:
    """Every layer is twice as wide as drawn, and its width stands in the code behind it."""
    torch.manual_seed(seed)
    sizes = [3, *(2 * width for width in widths)]

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(sizes))
            self.last = nn.Linear(sizes[-1], 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer, way, size in zip(self.layers, ways, sizes[1:], strict=False):
                x = F.leaky_relu(layer(x))  # which is never constant
                if way == "view":
                    x = x.view(-1, 2, int(size) // 2).transpose(1, 2).reshape(-1, int(size))
                elif way == "split":
                    one, other = x.split(int(size) // 2, 1)
                    x = torch.cat([other * 2, one + other], 1)
                elif way == "zeros":
                    x = x + torch.zeros(1, int(size))
                else:
                    x = torch.cat([x[:, int(size) // 2 :], x[:, : int(size) // 2]], 1)
            return self.last(x)

    model, x = Chain().double().eval(), torch.randn(3, 3).double()
    result = thinned(model, x)
    assert result.max_error < 1e-12
    assert analyze_channels(result.model, x).fixed.keys() >= {"last"}


def test_a_module_of_several_names_becomes_one_graph() -> None:
    class Shared(nn.Module):
        """Calls one module by two names, the later of which comes first."""

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 16, 1)
            self.one = nn.ModuleList([Parts()])
            self.two = self.one[0]
            self.last = nn.Conv2d(16, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.one[0](self.two(self.stem(x)))).mean((2, 3))

    class Parts(nn.Module):
        """Exchanges the halves of 16 channels."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            one, other = x[:, :8], x[:, 8:]
            return torch.cat([other, one * 2], 1)

    torch.manual_seed(0)
    result = thinned(Shared().eval(), IMAGE)
    assert result.model.one[0] is result.model.two
    assert result.model.stem.out_channels == 8


def test_a_module_that_is_called_in_two_ways_keeps_its_class() -> None:
    class Masked(nn.Module):
        """Exchanges the halves of 16 channels, and multiplies them with a mask if it has one."""

        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            x = torch.cat([x[:, 8:], x[:, :8]], 1)
            return x if mask is None else x * mask

    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        x = m.stem(x)
        x = m.both(m.both(x), torch.ones(1, 1, 16, 16))
        return m.last(m.once(m.middle(x).relu())).mean((2, 3))

    torch.manual_seed(0)
    model = Function(
        forward,
        stem=nn.Conv2d(3, 16, 1),
        both=Masked(),
        middle=nn.Conv2d(16, 16, 1),
        once=Masked(),
        last=nn.Conv2d(16, 2, 1),
    ).eval()
    channels = prunable_channels(model, IMAGE, form="auto")
    assert channels.forms.keys() == {"once"}
    result = thinned(model, IMAGE)
    assert (result.model.stem.out_channels, result.model.middle.out_channels) == (16, 8)
