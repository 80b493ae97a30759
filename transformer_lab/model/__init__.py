"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), in the order of its sections."""

from transformer_lab.model.attention import (
    MultiHeadAttention,
    SingleHeadAttention,
    combine_heads,
    scaled_dot_product_attention,
    split_heads,
)
from transformer_lab.model.attention_hooks import attending_modules, fused_attention, record_attention, set_attention
from transformer_lab.model.decoder import Decoder, DecoderLayer
from transformer_lab.model.embeddings import PositionalEncoding, TokenEmbedding, sinusoidal_encoding
from transformer_lab.model.encoder import Encoder, EncoderLayer
from transformer_lab.model.masks import causal_mask, padding_mask, target_mask
from transformer_lab.model.numpy_attention import numpy_attention, softmax
from transformer_lab.model.sublayers import FeedForward, LayerNorm, ResidualConnection
from transformer_lab.model.transformer import (
    Transformer,
    TransformerConfig,
    count_parameters,
    initialize_parameters,
    tie_embeddings,
)

__all__ = [
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "LayerNorm",
    "MultiHeadAttention",
    "PositionalEncoding",
    "ResidualConnection",
    "SingleHeadAttention",
    "TokenEmbedding",
    "Transformer",
    "TransformerConfig",
    "attending_modules",
    "causal_mask",
    "combine_heads",
    "count_parameters",
    "fused_attention",
    "initialize_parameters",
    "numpy_attention",
    "padding_mask",
    "record_attention",
    "scaled_dot_product_attention",
    "set_attention",
    "sinusoidal_encoding",
    "softmax",
    "split_heads",
    "target_mask",
    "tie_embeddings",
]
