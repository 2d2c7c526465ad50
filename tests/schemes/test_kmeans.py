"""k-means on one axis agrees with the obvious algorithm and ends on fixed points."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from nncfx.errors import ArgumentError, CompressionError
from nncfx.schemes.kmeans import kmeans_1d, nearest

values = st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=60)


def test_two_clusters_by_hand() -> None:
    assert kmeans_1d(torch.tensor([0.0, 1.0, 10.0, 12.0]), 2).tolist() == [0.5, 11.0]


def test_a_few_values_are_their_own_codebook() -> None:
    assert kmeans_1d(torch.tensor([3.0, -1.0, 3.0]), 4).tolist() == [-1.0, 3.0]


def test_large_weights_keep_a_centroid_of_their_own() -> None:
    """Linear initialisation: one far value is not averaged away."""
    data = torch.cat([torch.linspace(-0.1, 0.1, 999), torch.tensor([5.0])])
    assert kmeans_1d(data, 4)[-1].item() == 5.0


@given(data=values, k=st.integers(1, 8))
def test_each_centroid_is_the_mean_of_its_values(data: list[float], k: int) -> None:
    tensor = torch.tensor(data, dtype=torch.float64)
    centroids = kmeans_1d(tensor, k, max_steps=10_000)
    codes = nearest(tensor, centroids)
    for code, centroid in enumerate(centroids):
        mine = tensor[codes == code]
        assert mine.numel() > 0
        # a mean of at most 60 values below 10, from differences of running sums
        assert abs(float(mine.mean() - centroid)) < 1e-10


@given(data=values, k=st.integers(1, 8))
def test_nearest_is_nearest(data: list[float], k: int) -> None:
    tensor = torch.tensor(data)
    centroids = kmeans_1d(tensor, k)
    distances = (tensor.double()[:, None] - centroids.double()[None]).abs()
    chosen = distances.gather(1, nearest(tensor, centroids)[:, None])[:, 0]
    torch.testing.assert_close(chosen, distances.min(1).values)


@settings(max_examples=10)
@given(seed=st.integers(0, 100))
def test_scikit_learn_started_alike_ends_alike(seed: int) -> None:
    data = np.random.default_rng(seed).normal(size=200)
    start = np.linspace(data.min(), data.max(), 5)[:, None]
    theirs = KMeans(5, init=start, n_init=1, tol=0, max_iter=1000).fit(data[:, None])
    ours = kmeans_1d(torch.from_numpy(data), 5, max_steps=1000)
    np.testing.assert_allclose(ours.numpy(), np.sort(theirs.cluster_centers_[:, 0]), atol=1e-9)


def test_halfway_goes_to_the_lower() -> None:
    assert nearest(torch.tensor([0.5]), torch.tensor([0.0, 1.0])).tolist() == [0]


def test_no_values_are_refused() -> None:
    with pytest.raises(CompressionError, match="0 weights cannot be clustered"):
        kmeans_1d(torch.empty(0), 3)


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(CompressionError, match="all finite"):
        kmeans_1d(torch.tensor([1.0, float("nan")]), 3)


def test_an_empty_codebook_is_refused() -> None:
    with pytest.raises(ArgumentError, match="k is 0"):
        kmeans_1d(torch.ones(3), 0)
