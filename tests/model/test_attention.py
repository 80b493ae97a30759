import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab.model import (
    MultiHeadAttention,
    SingleHeadAttention,
    combine_heads,
    fused_attention,
    scaled_dot_product_attention,
    split_heads,
)

BATCH, HEADS, QUERY, KEY, D_K, D_V = 2, 3, 4, 5, 8, 6

MASKS = {
    "no mask": None,
    "padding": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()[:, None, None, :],
    "causal": torch.ones(QUERY, KEY).tril().bool()[None, None],
    "padding and causal": torch.ones(BATCH, 1, QUERY, KEY).tril().bool()
    & torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()[:, None, None, :],
    "every head its own": torch.rand(BATCH, HEADS, QUERY, KEY, generator=torch.Generator().manual_seed(1)) > 0.3,
}
HIDES_ALL_KEYS = torch.ones(BATCH, 1, QUERY, KEY).bool()
HIDES_ALL_KEYS[0, :, 2] = False  # from one query of the first sentence, and from every query of the second
HIDES_ALL_KEYS[1] = False


def inputs(d_v: int = D_V) -> tuple[Tensor, Tensor, Tensor]:
    shapes = (QUERY, D_K), (KEY, D_K), (KEY, d_v)
    return tuple(torch.randn(BATCH, HEADS, *shape, requires_grad=True) for shape in shapes)


@pytest.mark.parametrize("mask", [*MASKS.values(), HIDES_ALL_KEYS], ids=[*MASKS.keys(), "all hidden"])
@pytest.mark.parametrize("d_v", [D_K, D_V])
def test_agrees_with_torch(mask, d_v, dtype, tolerance, with_gradients):
    """The course relies on attention. Outputs and gradients must match even if query, key, and value differ in shape.

    Training uses fused attention and heat maps do not, so both are tested. Heat maps show the weights, so the weight of
    a hidden key must be exactly 0, not just small.
    """
    tensors = inputs(d_v)
    ours, weights = scaled_dot_product_attention(*tensors, mask)
    expected = with_gradients(F.scaled_dot_product_attention(*tensors, attn_mask=mask), tensors)
    torch.testing.assert_close(with_gradients(ours, tensors), expected, atol=tolerance, rtol=0)
    fused, nothing = fused_attention(*tensors, mask)
    torch.testing.assert_close(with_gradients(fused, tensors), expected, atol=tolerance, rtol=0)
    assert nothing is None
    with torch.no_grad():  # torch uses a different kernel here
        torch.testing.assert_close(fused_attention(*tensors, mask)[0], ours, atol=tolerance, rtol=0)
    assert weights.shape == (BATCH, HEADS, QUERY, KEY)
    allowed = torch.ones_like(weights).bool() if mask is None else mask.expand_as(weights)
    assert (weights[~allowed] == 0).all()
    assert (weights[allowed] > 0).all()
    torch.testing.assert_close(weights.sum(-1), allowed.any(-1).to(dtype))


def test_a_query_that_may_attend_to_nothing():
    """Filling hidden scores with -inf is not enough: the result would be NaN, and a single NaN ruins every weight."""
    query, key, value = inputs()
    output, weights = scaled_dot_product_attention(query, key, value, HIDES_ALL_KEYS)
    hidden = ~HIDES_ALL_KEYS.any(-1).expand(BATCH, HEADS, QUERY)
    assert (weights[hidden] == 0).all()
    assert (output[hidden] == 0).all()
    torch.testing.assert_close(weights[~hidden].sum(-1), torch.ones(int((~hidden).sum())))
    gradients = torch.autograd.grad(output.square().sum() + weights.square().sum(), (query, key, value))
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all((gradient[1] == 0).all() for gradient in gradients)  # a query that attends to nothing has no gradient
    assert all((gradient[0] != 0).any() for gradient in gradients)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_extreme_scores_stay_finite(dtype):
    """Filling with -1e9 overflows in half precision, and -1e4 exceeds the second query's allowed score of -28,800."""
    query = torch.tensor([[[120.0] * 4, [-120.0] * 4]], dtype=dtype, requires_grad=True)
    key = torch.tensor([[[120.0] * 4, [-120.0] * 4]], dtype=dtype)
    value = torch.eye(2, dtype=dtype)[None]
    output, weights = scaled_dot_product_attention(query, key, value, torch.tensor([[[True, False]]]))
    assert output.dtype == weights.dtype == dtype
    assert weights.tolist() == [[[1.0, 0.0], [1.0, 0.0]]]
    (gradient,) = torch.autograd.grad(output.sum(), query)
    assert gradient.isfinite().all()


def test_dropout_is_called_once_on_all_weights_and_the_weights_returned_are_those_before():
    """If heat maps showed the weights after dropout, they would have holes that are not in the model."""
    query, key, value = inputs()
    calls = []

    def dropout(weights: Tensor) -> Tensor:
        calls.append(weights)
        return weights * 2

    output, weights = scaled_dot_product_attention(query, key, value, MASKS["padding"], dropout)
    plain_output, plain_weights = scaled_dot_product_attention(query, key, value, MASKS["padding"])
    assert len(calls) == 1
    assert torch.equal(calls[0], plain_weights)
    assert torch.equal(weights, plain_weights)
    torch.testing.assert_close(output, 2 * plain_output)


def test_inputs_stay_as_they_are():
    """Masking in place would change the caller's tensors."""
    tensors = [tensor.detach() for tensor in inputs()]
    mask = MASKS["padding"].clone()
    copies = [tensor.clone() for tensor in (*tensors, mask)]
    scaled_dot_product_attention(*tensors, mask)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip((*tensors, mask), copies, strict=True))


def test_single_head_projects_and_attends(dtype, tolerance):
    """Each of the three inputs has its own projection, and the mask does not have a head axis."""
    head = SingleHeadAttention(d_model=6, d_k=4)
    query, memory, other = torch.randn(2, 3, 6), torch.randn(2, 5, 6), torch.randn(2, 5, 6)
    mask = torch.rand(2, 3, 5) > 0.3
    output = head(query, memory, other, mask)
    expected = F.scaled_dot_product_attention(
        F.linear(query, head.w_q.weight, head.w_q.bias),
        F.linear(memory, head.w_k.weight, head.w_k.bias),
        F.linear(other, head.w_v.weight, head.w_v.bias),
        attn_mask=mask,
    )
    assert output.shape == (2, 3, 4)
    torch.testing.assert_close(output, expected, atol=tolerance, rtol=0)
    assert {name for name, _ in head.named_parameters()} == {
        f"{linear}.{kind}" for linear in ("w_q", "w_k", "w_v") for kind in ("weight", "bias")
    }


def test_heads_are_neighboring_features():
    """Splitting along the wrong axis keeps every shape right but mixes positions into heads."""
    x = torch.tensor([[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]])  # three positions, d_model 4
    heads = split_heads(x, 2)
    assert heads.tolist() == [[[[1, 2], [5, 6], [9, 10]], [[3, 4], [7, 8], [11, 12]]]]
    assert combine_heads(heads).tolist() == x.tolist()


@pytest.mark.parametrize("n_heads", [1, 2, 3, 6])
def test_combine_undoes_split_for_strided_tensors_too(n_heads):
    """A transposed tensor is not contiguous, so a `view` in the wrong place would fail."""
    x = torch.randn(5, 2, 6).transpose(0, 1)
    assert torch.equal(combine_heads(split_heads(x, n_heads)), x)


@pytest.mark.parametrize("n_heads", [0, 3, -2])
def test_heads_must_divide_d_model(n_heads):
    with pytest.raises(ValueError, match=f"d_model 8 is not divisible by n_heads {n_heads}"):
        split_heads(torch.zeros(1, 2, 8), n_heads)
    with pytest.raises(ValueError, match=f"d_model 8 is not divisible by n_heads {n_heads}"):
        MultiHeadAttention(8, n_heads)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_agrees_with_torchs_multihead_attention(mask, dtype, tolerance, randomize, transplant, with_gradients):
    """With the same weights and random biases, outputs, each head's weights, and all inputs' gradients must match."""
    d_model = 12
    ours = randomize(MultiHeadAttention(d_model, HEADS))
    theirs = nn.MultiheadAttention(d_model, HEADS, batch_first=True)
    transplant(ours, theirs)
    tensors = [torch.randn(BATCH, length, d_model, requires_grad=True) for length in (QUERY, KEY, KEY)]
    recorded = []

    def attend(*arguments):
        result = scaled_dot_product_attention(*arguments)
        recorded.append(result[1])
        return result

    ours.attend = attend
    output = ours(*tensors, mask)
    forbidden = None if mask is None else ~mask.expand(BATCH, HEADS, QUERY, KEY).flatten(0, 1)
    expected, expected_weights = theirs(*tensors, attn_mask=forbidden, average_attn_weights=False)
    torch.testing.assert_close(
        with_gradients(output, tensors), with_gradients(expected, tensors), atol=tolerance, rtol=0
    )
    torch.testing.assert_close(recorded[0], expected_weights, atol=tolerance, rtol=0)


def test_attention_happens_in_one_call_of_attend_with_positional_arguments():
    """The recorder, the fused kernel, and every check replace `attend` and rely on how it is called."""
    attention = MultiHeadAttention(12, HEADS, dropout=0.5)
    calls = []

    def attend(*arguments):  # keyword arguments are not accepted
        calls.append(arguments)
        return scaled_dot_product_attention(*arguments)

    attention.attend = attend
    query, memory = torch.randn(BATCH, QUERY, 12), torch.randn(BATCH, KEY, 12)
    attention(query, memory, memory, MASKS["padding"])
    ((q, k, v, mask, dropout),) = calls
    assert q.shape == (BATCH, HEADS, QUERY, 4)
    assert k.shape == v.shape == (BATCH, HEADS, KEY, 4)
    assert mask is MASKS["padding"]
    assert dropout is attention.dropout
    assert dropout.p == 0.5


def test_dropout_acts_on_the_attention_weights():
    """If all weights are dropped, only the last bias is left. Dropout anywhere else would give another result."""
    attention = MultiHeadAttention(12, HEADS, dropout=1.0)
    x = torch.randn(BATCH, KEY, 12)
    torch.testing.assert_close(attention(x, x, x), attention.w_o.bias.expand(BATCH, KEY, 12))
