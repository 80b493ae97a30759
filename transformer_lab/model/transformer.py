"""Section 3: the Transformer."""

from dataclasses import dataclass

from torch import Tensor, nn

from transformer_lab.model.decoder import Decoder
from transformer_lab.model.embeddings import PositionalEncoding, TokenEmbedding
from transformer_lab.model.encoder import Encoder
from transformer_lab.model.masks import padding_mask, target_mask


@dataclass
class TransformerConfig:
    """The hyperparameters of a Transformer.

    The defaults are those of the base model (table 3), except that the base model has `tie=True`.

    Raises:
        ValueError: A size is less than 1, or `dropout` is not below 1. `Transformer` rejects incompatible sizes.
    """

    source_vocab: int
    target_vocab: int
    d_model: int = 512
    n_heads: int = 8
    n_layers: int = 6  # in the encoder and in the decoder
    d_ff: int = 2048
    dropout: float = 0.1
    norm_first: bool = False
    tie: bool = False  # share one weight matrix between both embeddings and the output layer
    max_length: int = 512
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self) -> None:
        for name in ("source_vocab", "target_vocab", "d_model", "n_heads", "n_layers", "d_ff", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least 1")
        if not self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, but must be below 1: nothing would get through")


class Transformer(nn.Module):
    """The encoder and the decoder with their embeddings and the output layer (figure 1 of the paper).

    `encode`, `decode`, and `forward` raise a ValueError if a sequence has more than `config.max_length` tokens.

    Raises:
        ValueError: `d_model` is odd or not divisible by `n_heads`, `dropout` is negative, `pad_id` is outside a
            vocabulary, or `tie` is True and the vocabularies differ in size.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        sizes = (config.n_layers, config.d_model, config.n_heads, config.d_ff, config.dropout, config.norm_first)
        self.source_embedding = TokenEmbedding(config.source_vocab, config.d_model, config.pad_id)
        self.target_embedding = TokenEmbedding(config.target_vocab, config.d_model, config.pad_id)
        self.positional_encoding = PositionalEncoding(config.d_model, config.dropout, config.max_length)
        self.encoder = Encoder(*sizes)
        self.decoder = Decoder(*sizes)
        self.output = nn.Linear(config.d_model, config.target_vocab)
        if config.tie:
            tie_embeddings(self)
        initialize_parameters(self)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode `(batch, source)`.

        Returns:
            `(memory, source_mask)` of shapes `(batch, source, d_model)` and `(batch, 1, 1, source)`.
        """
        source_mask = padding_mask(source, self.config.pad_id)
        x = self.positional_encoding(self.source_embedding(source))  # (batch, source, d_model)
        return self.encoder(x, source_mask), source_mask

    def decode(self, target: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Return the logits for the next token at each position.

        `target` is `(batch, target)`; the result is `(batch, target, vocab)`.
        """
        mask = target_mask(target, self.config.pad_id)
        x = self.positional_encoding(self.target_embedding(target))  # (batch, target, d_model)
        return self.output(self.decoder(x, memory, source_mask, mask))  # (batch, target, vocab)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the logits for the next token at each position of the target.

        `source` is `(batch, source)`, and `target` is `(batch, target)`, already shifted. The result is
        `(batch, target, vocab)`.
        """
        memory, source_mask = self.encode(source)
        return self.decode(target, memory, source_mask)


def initialize_parameters(model: nn.Module) -> None:
    """Initialize the weights: Xavier for matrices, zero for biases, N(0, 1 / d_model) for embeddings.

    Embeddings are multiplied by √d_model before they are used, which brings their standard deviation to 1. For a
    20-token sentence, the positional encodings have a standard deviation of 0.55. Xavier initialization (Glorot and
    Bengio 2010) depends on the vocabulary size: with 8,000 tokens and a d_model of 256, it would give the scaled
    embeddings a standard deviation of only 0.25.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in model.modules():  # last, so that a tied output layer gets the embedding's values
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])


def tie_embeddings(model: nn.Module) -> None:
    """Make both embeddings and the output layer share one weight matrix (section 3.4; Press and Wolf 2017).

    Raises:
        ValueError: The vocabularies differ in size.
    """
    source, target = model.source_embedding.embedding, model.target_embedding.embedding
    if source.num_embeddings != target.num_embeddings:
        raise ValueError(
            f"tied embeddings need one vocabulary, but source_vocab is {source.num_embeddings} "
            f"and target_vocab {target.num_embeddings}"
        )
    source.weight = target.weight
    model.output.weight = target.weight


def count_parameters(config: TransformerConfig) -> int:
    """Return the number of trainable parameters of `Transformer(config)`, by formula, without building it."""
    d_model, d_ff = config.d_model, config.d_ff
    attention = 4 * (d_model * d_model + d_model)
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    final_norms = 2 * norm if config.norm_first else 0
    embeddings = config.target_vocab if config.tie else config.source_vocab + 2 * config.target_vocab
    return (
        config.n_layers * (encoder_layer + decoder_layer)
        + final_norms
        + embeddings * d_model
        + config.target_vocab  # the bias of the output layer
    )
