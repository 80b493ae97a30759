"""Honest students' submissions. Some are right and some are wrong, and each has its own style.

Each entry is `name: (notebook, cells, marks)`. Exercises that are not listed were not attempted.
"""

MASKS = {
    "padding_mask": """
def padding_mask(tokens, pad_id):
    return ~torch.eq(tokens, pad_id).unsqueeze(1).unsqueeze(1)
""",
    "causal_mask": """
def causal_mask(length, device=None):
    place = torch.arange(length, device=device)
    return (place.unsqueeze(0) <= place.unsqueeze(1)).expand(1, 1, length, length)
""",
    "target_mask": """
def target_mask(tokens, pad_id):
    hidden = ~padding_mask(tokens, pad_id) | ~causal_mask(tokens.shape[1], device=tokens.device)
    return ~hidden
""",
}
ATTENTION = {
    "softmax": """
softmax = lambda scores: (lambda e: e / e.sum(-1, keepdims=True))(np.exp(scores - np.max(scores, -1, keepdims=True)))
""",
    "numpy_attention": """
def numpy_attention(query, key, value):
    similarity = np.einsum("bqd,bkd->bqk", query, key)
    attention_weights = softmax(similarity * query.shape[-1] ** -0.5)
    return [np.einsum("bqk,bkd->bqd", attention_weights, value), attention_weights]
""",
    "scaled_dot_product_attention": """
def scaled_dot_product_attention(query, key, value, mask=None, dropout=None):
    energy = torch.einsum("...qd,...kd->...qk", query, key) * key.shape[-1] ** -0.5
    if mask is None:
        weights = torch.softmax(energy, -1)
    else:
        weights = torch.softmax(torch.where(mask, energy, torch.full_like(energy, -1e30)), -1) * mask
    used = weights
    if dropout:
        used = dropout(weights)
    return torch.einsum("...qk,...kd->...qd", used, value), weights
""",
    "SingleHeadAttention": """
class SingleHeadAttention(nn.Module):
    def __init__(self, d_model, d_k):
        nn.Module.__init__(self)
        for name in "qkv":
            setattr(self, f"w_{name}", nn.Linear(d_model, d_k))

    def forward(self, query, key, value, mask=None):
        return scaled_dot_product_attention(self.w_q(query), self.w_k(key), self.w_v(value), mask=mask)[0]
""",
}
UNSCALED = ATTENTION["numpy_attention"].replace(" * query.shape[-1] ** -0.5", "")
TRANSPOSED = "def causal_mask(length, device=None):\n    return torch.ones(length, length).triu().bool()[None, None]"


def passed(**points: float) -> dict[str, set[tuple[str, float]]]:
    return {name: {("passed", float(earned))} for name, earned in points.items()}


RIGHT_MASKS = passed(padding_mask=1, causal_mask=1, target_mask=1)
RIGHT_ATTENTION = passed(softmax=1, numpy_attention=2, scaled_dot_product_attention=3, SingleHeadAttention=2)
NOT_ATTEMPTED = {("not attempted", 0.0)}

SUBMISSIONS = {
    "right": ("03_masks", MASKS, RIGHT_MASKS),
    "half": (
        "03_masks",
        {"padding_mask": MASKS["padding_mask"]},
        RIGHT_MASKS | dict.fromkeys(("causal_mask", "target_mask"), NOT_ATTEMPTED),
    ),
    "one mistake costs once": (
        "03_masks",
        MASKS | {"causal_mask": TRANSPOSED},
        RIGHT_MASKS | {"causal_mask": {("failed", 0.0)}},
    ),
    "all of attention": ("01_attention", ATTENTION, RIGHT_ATTENTION),
    "unscaled": (
        "01_attention",
        ATTENTION | {"numpy_attention": UNSCALED},
        RIGHT_ATTENTION | {"numpy_attention": {("failed", 0.67)}},  # scaling doesn't matter in a third of the checks
    ),
    "nothing": ("03_masks", {}, dict.fromkeys(RIGHT_MASKS, NOT_ATTEMPTED)),
}
