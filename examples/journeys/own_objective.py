"""A search with an objective and a metric of one's own, which may be killed and looked at."""

import torch
from torch import Tensor, nn

torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(1024, 20)
y = ((x[:, :3].sum(1) > 0) & (x[:, 3] > -1)).long()
batches = list(zip(x.split(64), y.split(64), strict=True))
train, validation, test = batches[:8], batches[8:12], batches[12:]
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(20):
    for inputs, labels in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def energy(network: nn.Module) -> float:
    """Return picojoules of one example: 1.3 for each non-zero weight, 4 for each bias."""
    return sum(
        (1.3 if one.ndim > 1 else 4.0) * float(one.count_nonzero()) for one in network.parameters()
    )


def balanced_accuracy(network: nn.Module, loader: list[tuple[Tensor, Tensor]]) -> float:
    """Return the mean over classes of how many are found."""
    pairs = [(network(inputs).argmax(1), labels) for inputs, labels in loader]
    found, truth = (torch.cat(one) for one in zip(*pairs, strict=True))
    return float(torch.stack([(found[truth == k] == k).float().mean() for k in (0, 1)]).mean())


# nncfx
import nncfx
from nncfx.lc import LC
from nncfx.objectives import Minimize
from nncfx.schemes import Prune
from nncfx.search import SearchSettings

result = nncfx.Compressor(
    model=model, objective=Minimize(energy), metric=balanced_accuracy, eps=0.05, scheme=Prune(),
    optimizer=LC(steps=5, lr=0.02, mb_iterations_per_l=40), criterion=nn.functional.cross_entropy,
    trainloader=train, valloader=validation, testloader=test, runtime="torch", folder="search-run",
    settings=SearchSettings(max_evaluations=6),
).run()
nncfx.report.write_report("report.html", result.evidence)
# end
print(result)
