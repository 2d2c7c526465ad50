# %% [markdown]
# # Use your own scheme, objective and metric
#
# A search takes your own parts wherever it takes ours. Each part is one function.

# %%
import torch
from torch import nn

import nncfx
from nncfx.lc import LC
from nncfx.objectives import Minimize
from nncfx.schemes import FunctionScheme, level_to_density, prune
from nncfx.schemes.operators import threshold
from nncfx.search import SearchSettings

torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(512, 20)
y = (x[:, :3].sum(1) > 0).long()
batches = list(zip(x.split(64), y.split(64), strict=True))
train, validation, test = batches[:4], batches[4:6], batches[6:]
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(20):
    for inputs, labels in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


# %% [markdown]
# ## A scheme: the first layer is spared

# %%
def spare_the_first(network: nn.Module, level: float) -> None:
    layers = [one for one in network.modules() if isinstance(one, nn.Linear)]
    for number, layer in enumerate(layers):
        gentle = level / 2 if number == 0 else level
        if gentle > 0:
            limit = threshold(layer.weight, level_to_density(gentle))
            layer.weight.copy_(prune(layer.weight, limit))


# %% [markdown]
# ## An objective and a metric
#
# The objective sees the compressed model; the metric the model and a loader, and more is better.

# %%
def nonzero_weights(network: nn.Module) -> float:
    return float(sum(int(p.count_nonzero()) for p in network.parameters()))


def recall(network: nn.Module, loader) -> float:
    found = [(network(a).argmax(1)[b == 1] == 1) for a, b in loader]
    return float(torch.cat(found).float().mean())


result = nncfx.Compressor(
    model=model, title="Own parts", scheme=FunctionScheme(spare_the_first),
    objective=Minimize(nonzero_weights), metric=recall, eps=0.05,
    optimizer=LC(steps=3, lr=0.01, mb_iterations_per_l=8), criterion=nn.functional.cross_entropy,
    trainloader=train, valloader=validation, testloader=test,
    runtime="torch", threads=1, folder="run", settings=SearchSettings(max_evaluations=4),
).run()
print(result)

# %% [markdown]
# ## The report names them
#
# `folder` keeps each trial: a run that was killed continues. While it runs, `nncfx status run --html report.html` shows
# what there is.

# %%
page = nncfx.report.write_report("report.html", result.evidence)
assert "nonzero_weights" in page.read_text(encoding="utf-8")
assert "recall" in page.read_text(encoding="utf-8")
