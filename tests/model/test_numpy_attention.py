import numpy as np
import torch

from transformer_lab.model import numpy_attention, scaled_dot_product_attention, softmax


def test_softmax_by_hand():
    """Readers work out these numbers in the notebook, so they must be right. The input must not change."""
    scores = np.log([[1.0, 2.0, 5.0], [3.0, 3.0, 3.0]])
    before = scores.copy()
    np.testing.assert_allclose(softmax(scores), [[1 / 8, 2 / 8, 5 / 8], [1 / 3, 1 / 3, 1 / 3]], rtol=1e-12)
    np.testing.assert_array_equal(scores, before)


def test_softmax_of_large_scores_does_not_overflow():
    """exp(1000) is infinite, so the result would be NaN if the largest score were not subtracted first."""
    np.testing.assert_allclose(softmax(np.array([1000.0, 1000.0, -1000.0])), [0.5, 0.5, 0.0])


def test_softmax_works_along_the_last_axis_of_any_shape():
    scores = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    np.testing.assert_allclose(softmax(scores), torch.from_numpy(scores).softmax(dim=-1).numpy(), rtol=1e-12)


def test_attention_agrees_with_the_torch_version():
    """Notebook 01 builds both versions and says that their formula is the same. Here, the values are wider than d_k."""
    random = np.random.default_rng(0)
    query, key, value = random.normal(size=(2, 3, 4)), random.normal(size=(2, 5, 4)), random.normal(size=(2, 5, 6))
    expected = scaled_dot_product_attention(*map(torch.from_numpy, (query, key, value)))
    for ours, theirs in zip(numpy_attention(query, key, value), expected, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-12)
