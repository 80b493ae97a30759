from dataclasses import replace

import pytest
import torch
from torch import nn

from transformer_lab.electives.recurrent import with_attention
from transformer_lab.model import Transformer, TransformerConfig
from transformer_lab.presets import PRESETS
from transformer_lab.training.muon import Muon, orthogonalize
from transformer_lab.training.steps import build_optimizer


def parameters_of(*shapes):
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(shape)) for shape in shapes]


def copies(parameters):
    return [nn.Parameter(parameter.detach().clone()) for parameter in parameters]


def test_steps_are_those_of_torch():
    """Matrices of the same shape share one tensor. No matrix may get another's direction, momentum, or factor."""
    matrices, others = parameters_of((8, 8), (16, 8), (8, 8), (8, 16)), parameters_of((5,), (20, 8))
    same_matrices, same_others = copies(matrices), copies(others)
    betas = (0.8, 0.9)
    ours = Muon(matrices, others, lr=0.1, weight_decay=0.2, precision=torch.bfloat16, betas=betas)
    expected = [
        torch.optim.Muon(same_matrices, lr=0.1, weight_decay=0.2, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(same_others, lr=0.1, weight_decay=0.2, betas=betas),
    ]
    for _ in range(4):
        for ours_of, same in zip(matrices + others, same_matrices + same_others, strict=True):
            same.grad = torch.randn_like(same)
            ours_of.grad = same.grad.clone()
        ours.step()
        for optimizer in expected:
            optimizer.step()
    for one, other in zip(matrices + others, same_matrices + same_others, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("shape", [(3, 12, 12), (2, 6, 30), (2, 30, 6), (1, 1, 7)])
def test_orthogonal_matrices_have_the_singular_vectors_of_the_given_ones(shape):
    """With a product on the wrong side, or without transposing back, a tall matrix would get the wrong directions."""
    torch.manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(shape, dtype=torch.float64), full_matrices=False)
    sizes = torch.linspace(1.0, 0.05, left.size(-1), dtype=torch.float64)  # a twentieth is a small singular value
    result = orthogonalize(7.0 * left * sizes @ right)
    diagonal = left.mT @ result @ right.mT
    of_directions = diagonal.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(diagonal, torch.diag_embed(of_directions), atol=1e-9, rtol=0)
    assert of_directions.min() > 0.65
    assert of_directions.max() < 1.25


def test_nothing_comes_of_nothing():
    """A part that does not affect the loss has a zero gradient, so dividing by the gradient's norm would give NaN."""
    assert torch.equal(orthogonalize(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


def test_a_matrix_without_a_gradient_stays():
    """If a matrix has no gradient, neither Adam nor momentum from an earlier step may change it."""
    [frozen], others = parameters_of((4, 4)), parameters_of((4,))
    optimizer = Muon([frozen], others, lr=0.1)
    for parameter in (frozen, *others):
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    before = frozen.detach().clone()
    assert frozen.grad is None
    others[0].grad = torch.ones(4)
    optimizer.step()
    assert torch.equal(frozen, before)


@pytest.mark.parametrize(
    ("source_vocab", "target_vocab", "tie"),
    [(20, 20, True), (20, 20, False), (20, 31, False), (16, 16, True), (8, 16, False)],  # d_model is 8, d_ff is 16
)
def test_embeddings_and_output_layer_are_left_to_adam(source_vocab, target_vocab, tie):
    """Adam trains embeddings and the output layer, which are lookup tables, even if a Muon matrix has that shape."""
    model = Transformer(TransformerConfig(source_vocab, target_vocab, 8, 2, 1, 16, max_length=30, tie=tie))
    optimizer = build_optimizer(model, replace(PRESETS["tour"], optimizer="muon"))
    names = {parameter: name for name, parameter in model.named_parameters()}
    others, matrices = ({names[parameter] for parameter in group["params"]} for group in optimizer.param_groups)
    assert others | matrices == set(names.values())
    assert not others & matrices
    assert all(name.startswith(("encoder.", "decoder.")) and name.endswith(".weight") for name in matrices)
    assert len(matrices) == 4 + 2 + 8 + 2  # per layer: attention and feed-forward; two attentions and feed-forward


def test_a_model_of_other_parts_can_have_it_too():
    """`train(build_model=...)` accepts any model. Presets for real corpora use Muon, so Muon must accept any model."""
    model = with_attention(TransformerConfig(20, 31, d_model=8))
    optimizer = build_optimizer(model, PRESETS["laptop"])
    names = {parameter: name for name, parameter in model.named_parameters()}
    others, matrices = ({names[parameter] for parameter in group["params"]} for group in optimizer.param_groups)
    assert others | matrices == set(names.values())
    assert not any("embedding" in name or name.startswith("output.") for name in matrices)
    assert {name for name in matrices if "gru" in name or "cell" in name}
