"""Export a trained model to CTranslate2, an inference engine in C++ that does not need PyTorch.

CTranslate2 runs its own kernels and needs only a model's sizes and weights. Greedy decoding gives the same translations
unless rounding changes a choice. Its beam search differs from the one in section 6.1 in two ways. First, it divides
scores by length^length_penalty instead of ((5 + length) / 6)^alpha. Second, a finished hypothesis leaves the beam and
makes room for another, so the search ends after `beam_size` hypotheses have finished. The default, `length_penalty=1`,
is close to an `alpha` of 1.5: at 10 tokens, both grow at the same rate. With `patience=2`, CTranslate2 waits for twice
as many finished hypotheses and finds nearly the same translations as the search in section 6.1.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from transformer_lab.data import BpeTokenizer
from transformer_lab.data.chinese import HAN, NEEDLESS_SPACE
from transformer_lab.decoding.translator import Translator
from transformer_lab.errors import InputError
from transformer_lab.files import creating
from transformer_lab.model import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    PositionalEncoding,
    ResidualConnection,
    TokenEmbedding,
    Transformer,
    fused_attention,
    scaled_dot_product_attention,
    sinusoidal_encoding,
)

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
    from ctranslate2.specs.common_spec import LayerNormSpec, LinearSpec
    from ctranslate2.specs.transformer_spec import FeedForwardSpec
    from tokenizers import Tokenizer

PARTS = {
    *(Transformer, Encoder, EncoderLayer, Decoder, DecoderLayer, MultiHeadAttention, FeedForward, ResidualConnection),
    *(LayerNorm, TokenEmbedding, PositionalEncoding),
    *(nn.Linear, nn.Embedding, nn.Dropout, nn.Identity, nn.ModuleList),
}
KERNELS = (scaled_dot_product_attention, fused_attention)
LONGEST_OUTPUT = 256  # CTranslate2's default `max_decoding_length`
PATIENCE = 2  # recommended for serving; chosen on Multi30k's validation pairs


def export_ctranslate2(translator: Translator, folder: str | Path) -> None:
    """Write the model in float32 and its tokenizer into a new folder. If this fails, the incomplete folder is removed.

    A BPE tokenizer with a shared vocabulary is saved for the `tokenizers` library, so that a service does not need this
    package. Every other tokenizer is saved in the format that `load_tokenizer` reads. CTranslate2 appends eos to the
    source.

    Args:
        translator: Translator whose model is built from the package's own parts.
        folder: A folder that does not exist yet or is empty.

    Raises:
        InputError: CTranslate2 is not installed or does not support this model, the folder is not empty, or the folder
            cannot be written.
    """
    folder = Path(folder).resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} already exists: choose a new folder, or remove this one first")
    spec = model_spec(translator)
    with creating(folder) as unfinished:
        spec.save(str(unfinished))
        if translator.tokenizer.kind == "bpe":
            text = service_tokenizer(translator.tokenizer).to_str()
            (unfinished / "tokenizer.json").write_text(text, encoding="utf-8")
        else:
            translator.tokenizer.save(unfinished)


def model_spec(translator: Translator) -> "TransformerSpec":
    """Return the model as the specification that CTranslate2 saves.

    Raises:
        InputError: CTranslate2 is not installed, or the model has a part that CTranslate2 does not support.
    """
    try:
        from ctranslate2.specs import TransformerSpec
    except ImportError as error:
        raise InputError(
            f"CTranslate2 does not load ({error}): run python -m pip install ctranslate2, the extra `export`"
        ) from None
    model, tokenizer = translator.model, translator.tokenizer
    refuse_unsupported(model)
    config = model.config
    spec = TransformerSpec.from_config(config.n_layers, config.n_heads, pre_norm=config.norm_first)

    # CTranslate2's own encoding starts at position 1 and puts all sines before all cosines, so pass it this table.
    positions = model.positional_encoding.encoding  # (max_length, d_model)
    spec.encoder.embeddings[0].weight = exported(model.source_embedding.embedding.weight)
    spec.encoder.position_encodings.encodings = exported(positions)
    for layer, layer_spec in zip(model.encoder.layers, spec.encoder.layer, strict=True):
        set_multi_head_attention(layer_spec.self_attention, layer.self_attention, layer.residuals[0].norm)
        set_feed_forward(layer_spec.ffn, layer.feed_forward, layer.residuals[1].norm)

    spec.decoder.embeddings.weight = exported(model.target_embedding.embedding.weight)
    # If a translation never ends, CTranslate2 should truncate it rather than fail because it runs out of positions.
    further = sinusoidal_encoding(max(config.max_length, LONGEST_OUTPUT), config.d_model)[len(positions) :]
    spec.decoder.position_encodings.encodings = torch.cat([exported(positions), exported(further)])
    for layer, layer_spec in zip(model.decoder.layers, spec.decoder.layer, strict=True):
        set_multi_head_attention(layer_spec.self_attention, layer.self_attention, layer.residuals[0].norm)
        set_multi_head_attention(layer_spec.attention, layer.cross_attention, layer.residuals[1].norm)
        set_feed_forward(layer_spec.ffn, layer.feed_forward, layer.residuals[2].norm)
    set_linear(spec.decoder.projection, model.output)

    if config.norm_first:
        set_norm(spec.encoder.layer_norm, model.encoder.norm)
        set_norm(spec.decoder.layer_norm, model.decoder.norm)
    spec.config.layer_norm_epsilon = model.decoder.layers[0].residuals[0].norm.eps

    source, target = tokenizer.source_side.tokens, tokenizer.target_side.tokens
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.bos_token = spec.config.decoder_start_token = target[config.bos_id]
    spec.config.eos_token = target[config.eos_id]
    spec.config.unk_token = target[tokenizer.unk_id]
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize()  # stores identical tensors, such as tied embeddings, only once
    return spec


def refuse_unsupported(model: nn.Module) -> None:
    """Check that CTranslate2 would compute the same results as the model.

    Raises:
        InputError: It would not. The message names the part.
    """
    remedy = "export a model made only of the parts in transformer_lab.model"
    for name, module in model.named_modules():
        kind = type(module)
        if kind not in PARTS:
            raise InputError(
                f"{name or 'the model'} is a {kind.__module__}.{kind.__qualname__}, which CTranslate2 does not "
                f"support: {remedy}"
            )
        if isinstance(module, MultiHeadAttention) and module.attend not in KERNELS:
            raise InputError(f"{name} uses another attention function, which CTranslate2 does not support: {remedy}")
    config = model.config
    norm_first, scale = config.norm_first, math.sqrt(config.d_model)
    parts = list(model.modules())
    if any(isinstance(part, ResidualConnection) and part.norm_first != norm_first for part in parts):
        raise InputError(f"some sublayers are pre-norm, others post-norm; CTranslate2 supports only one kind: {remedy}")
    if any(isinstance(stack.norm, LayerNorm) != norm_first for stack in (model.encoder, model.decoder)):
        raise InputError(
            f"CTranslate2 expects a final norm after each pre-norm stack and after no post-norm stack: {remedy}"
        )
    if len({part.eps for part in parts if isinstance(part, LayerNorm)}) > 1:
        raise InputError(f"the norms differ in eps, but CTranslate2 uses one value for all of them: {remedy}")
    if any(isinstance(part, TokenEmbedding) and part.scale != scale for part in parts):
        raise InputError(f"CTranslate2 scales embeddings by √d_model = {scale:g}, but this model does not: {remedy}")


def exported(tensor: Tensor) -> Tensor:
    return tensor.detach().float().cpu().contiguous()


def set_linear(spec: "LinearSpec", *layers: nn.Linear) -> None:
    """Stack the weights of layers that read the same input, so that one matrix product computes all of them."""
    spec.weight = torch.cat([exported(layer.weight) for layer in layers])  # (total features, d_model)
    spec.bias = torch.cat([exported(layer.bias) for layer in layers])  # (total features,)


def set_norm(spec: "LayerNormSpec", norm: LayerNorm) -> None:
    spec.gamma, spec.beta = exported(norm.gain), exported(norm.bias)


def set_multi_head_attention(spec: "MultiHeadAttentionSpec", attention: MultiHeadAttention, norm: LayerNorm) -> None:
    set_norm(spec.layer_norm, norm)
    if len(spec.linear) == 2:  # self-attention: query, key, and value read the same input
        set_linear(spec.linear[0], attention.w_q, attention.w_k, attention.w_v)
    else:
        set_linear(spec.linear[0], attention.w_q)
        set_linear(spec.linear[1], attention.w_k, attention.w_v)
    set_linear(spec.linear[-1], attention.w_o)


def set_feed_forward(spec: "FeedForwardSpec", feed_forward: FeedForward, norm: LayerNorm) -> None:
    set_norm(spec.layer_norm, norm)
    set_linear(spec.linear_0, feed_forward.w_1)
    set_linear(spec.linear_1, feed_forward.w_2)


def service_tokenizer(tokenizer: BpeTokenizer) -> "Tokenizer":
    """Return the tokenizer in a form that needs only the `tokenizers` library.

    The returned tokenizer also normalizes the text and adds the leading space, but it does not add eos.
    """
    from tokenizers import Regex, Tokenizer, decoders, normalizers

    service = Tokenizer.from_str(tokenizer.source_side.library_tokenizer.to_str())
    white_space = Regex(r"[\s\x1c-\x1f]+")  # the white space that str.split() splits at
    service.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(white_space, " "),
            normalizers.Strip(),
            normalizers.NFC(),
            normalizers.Replace(Regex(NEEDLESS_SPACE), ""),
            normalizers.Prepend(" "),
            *([normalizers.Replace(Regex(f"^ (?=[{HAN}])"), "")] if tokenizer.source_side.chinese else []),
        ]
    )
    service.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", left=1, right=0)]
    )
    return service
