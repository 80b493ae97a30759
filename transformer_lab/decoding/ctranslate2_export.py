"""Export a trained model to CTranslate2, an inference engine in C++ that doesn't need PyTorch.

CTranslate2 computes with code of its own, to which a model is a list of sizes and weights. Greedy decoding gives the
same translations there, but for sums that are rounded in another order. Its beam search is another one than section
6.1's: scores are divided by length^length_penalty instead of ((5 + length) / 6)^alpha, and it ends as soon as
`beam_size` hypotheses have finished, each having left its place in the beam to another. Its `length_penalty` 1, the
default, is close to an `alpha` of 1.5: at 10 tokens the two grow alike. With `patience=2` it waits for twice as many
hypotheses, and finds about what section 6.1's finds.
"""

import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from transformer_lab.data import BpeTokenizer, SeparateBpeTokenizer
from transformer_lab.data.chinese import HAN, NEEDLESS_SPACE
from transformer_lab.decoding.translator import Translator
from transformer_lab.errors import InputError
from transformer_lab.files import cannot_write
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
LONGEST_OUTPUT = 256  # CTranslate2's own `max_decoding_length`
PATIENCE = 2  # with which a service should search: chosen on the validation pairs of Multi30k


def export_ctranslate2(translator: Translator, folder: str | Path) -> None:
    """Write the model, in float32, and its tokenizer into a new folder: whole, or not at all.

    A bpe tokenizer with a shared vocabulary is written for the `tokenizers` library, so that a service needs nothing of
    this package; any other as `load_tokenizer` reads it. End-of-sentence is added to the source by CTranslate2.

    Args:
        translator: with a model made of the package's own parts.
        folder: that is not there yet, or empty.

    Raises:
        InputError: CTranslate2 is not installed; it could not compute this model; or the folder is not new or cannot be
            written.
    """
    folder = Path(folder).resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already: name a new folder, or remove it first")
    spec = model_spec(translator)
    scratch = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        unfinished = scratch / folder.name  # with the rights of a new folder, which the one around it has not
        unfinished.mkdir()
        spec.save(str(unfinished))
        if isinstance(translator.tokenizer, BpeTokenizer):
            text = service_tokenizer(translator.tokenizer).to_str()
            (unfinished / "tokenizer.json").write_text(text, encoding="utf-8")
        else:
            translator.tokenizer.save(unfinished)
        for path in unfinished.iterdir():
            with open(path, "rb+") as file:
                os.fsync(file.fileno())  # the bytes must be on the disk before the name is
        if folder.exists():
            folder.rmdir()
        os.replace(unfinished, folder)
    except OSError as error:
        raise cannot_write(folder, error) from None
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def model_spec(translator: Translator) -> "TransformerSpec":
    """All that CTranslate2 is to know of the model.

    Raises:
        InputError: as `export_ctranslate2`.
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

    # CTranslate2 counts positions from 1, and has all sines before all cosines: it is given the table.
    positions = model.positional_encoding.encoding  # (max_length, d_model)
    spec.encoder.embeddings[0].weight = exported(model.source_embedding.embedding.weight)
    spec.encoder.position_encodings.encodings = exported(positions)
    for layer, layer_spec in zip(model.encoder.layers, spec.encoder.layer, strict=True):
        set_multi_head_attention(layer_spec.self_attention, layer.self_attention, layer.residuals[0].norm)
        set_feed_forward(layer_spec.ffn, layer.feed_forward, layer.residuals[1].norm)

    spec.decoder.embeddings.weight = exported(model.target_embedding.embedding.weight)
    # A translation that does not end must be cut off by CTranslate2, and not fail for want of a position.
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

    source, target = vocabularies(translator)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.bos_token = spec.config.decoder_start_token = target[config.bos_id]
    spec.config.eos_token = target[config.eos_id]
    spec.config.unk_token = target[tokenizer.unk_id]
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize()  # finds tensors that are the same, tied embeddings for instance, and keeps one of them
    return spec


def refuse_unsupported(model: nn.Module) -> None:
    """See that CTranslate2 would compute what the model computes.

    Raises:
        InputError: it would not; the message names the part.
    """
    remedy = "export a model made of the parts of transformer_lab.model alone"
    for name, module in model.named_modules():
        kind = type(module)
        if kind not in PARTS:
            raise InputError(
                f"{name or 'the model'} is a {kind.__module__}.{kind.__qualname__}, which CTranslate2 does not know: "
                f"{remedy}"
            )
        if isinstance(module, MultiHeadAttention) and module.attend not in KERNELS:
            raise InputError(f"{name} attends by another function, which CTranslate2 does not know: {remedy}")
    config = model.config
    norm_first, scale = config.norm_first, math.sqrt(config.d_model)
    parts = list(model.modules())
    if any(isinstance(part, ResidualConnection) and part.norm_first != norm_first for part in parts):
        raise InputError(f"some sublayers are pre-norm and some post-norm, but CTranslate2 takes one of them: {remedy}")
    if any(isinstance(stack.norm, LayerNorm) != norm_first for stack in (model.encoder, model.decoder)):
        raise InputError(f"CTranslate2 has a last norm after each stack if it is pre-norm, and else none: {remedy}")
    if len({part.eps for part in parts if isinstance(part, LayerNorm)}) > 1:
        raise InputError(f"the norms differ in eps, but CTranslate2 takes one for all: {remedy}")
    if any(isinstance(part, TokenEmbedding) and part.scale != scale for part in parts):
        raise InputError(f"CTranslate2 scales embeddings by √d_model, {scale:g}, but this model otherwise: {remedy}")


def exported(tensor: Tensor) -> Tensor:
    return tensor.detach().float().cpu().contiguous()


def set_linear(spec: "LinearSpec", *layers: nn.Linear) -> None:
    """Put the weights of layers that read the same input one above the other: one product computes them all."""
    spec.weight = torch.cat([exported(layer.weight) for layer in layers])  # (features of all, d_model)
    spec.bias = torch.cat([exported(layer.bias) for layer in layers])  # (features of all,)


def set_norm(spec: "LayerNormSpec", norm: LayerNorm) -> None:
    spec.gamma, spec.beta = exported(norm.gain), exported(norm.bias)


def set_multi_head_attention(spec: "MultiHeadAttentionSpec", attention: MultiHeadAttention, norm: LayerNorm) -> None:
    set_norm(spec.layer_norm, norm)
    if len(spec.linear) == 2:  # self-attention: query, key and value read the same
        set_linear(spec.linear[0], attention.w_q, attention.w_k, attention.w_v)
    else:
        set_linear(spec.linear[0], attention.w_q)
        set_linear(spec.linear[1], attention.w_k, attention.w_v)
    set_linear(spec.linear[-1], attention.w_o)


def set_feed_forward(spec: "FeedForwardSpec", feed_forward: FeedForward, norm: LayerNorm) -> None:
    set_norm(spec.layer_norm, norm)
    set_linear(spec.linear_0, feed_forward.w_1)
    set_linear(spec.linear_1, feed_forward.w_2)


def vocabularies(translator: Translator) -> tuple[list[str], list[str]]:
    """The token of each id, of the source and of the target, as the exported tokenizer spells it."""
    tokenizer = translator.tokenizer
    if isinstance(tokenizer, BpeTokenizer):
        return tokenizer.tokens, tokenizer.tokens
    if isinstance(tokenizer, SeparateBpeTokenizer):
        return tokenizer.source_side.tokens, tokenizer.target_side.tokens
    return tokenizer.source_vocabulary.itos, tokenizer.target_vocabulary.itos


def service_tokenizer(tokenizer: BpeTokenizer) -> "Tokenizer":
    """The same for the `tokenizers` library alone: it also normalizes and adds the first space, but no eos."""
    from tokenizers import Regex, Tokenizer, decoders, normalizers

    service = Tokenizer.from_str(tokenizer._tokenizer.to_str())
    white_space = Regex(r"[\s\x1c-\x1f]+")  # what str.split() splits at
    service.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(white_space, " "),
            normalizers.Strip(),
            normalizers.NFC(),
            normalizers.Replace(Regex(NEEDLESS_SPACE), ""),
            normalizers.Prepend(" "),
            *([normalizers.Replace(Regex(f"^ (?=[{HAN}])"), "")] if tokenizer.chinese else []),
        ]
    )
    service.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", left=1, right=0)]
    )
    return service
