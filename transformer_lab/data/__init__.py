"""Turn sentences into batches: corpora, tokenizers, vocabularies, byte-pair encoding, and padding."""

from transformer_lab.data.batches import Batch, bucketed_batches, pad_batch, token_batches
from transformer_lab.data.byte_pairs import apply_bpe, learn_bpe
from transformer_lab.data.chinese import is_chinese
from transformer_lab.data.corpora import Corpus, TextCorpus, find_multi30k, load_corpus, load_text
from transformer_lab.data.tokenizers import BpeTokenizer, SpacyTokenizer, Tokenizer, load_tokenizer, train_tokenizer
from transformer_lab.data.vocabulary import build_vocabulary

__all__ = [
    "Batch",
    "BpeTokenizer",
    "Corpus",
    "SpacyTokenizer",
    "TextCorpus",
    "Tokenizer",
    "apply_bpe",
    "bucketed_batches",
    "build_vocabulary",
    "find_multi30k",
    "is_chinese",
    "learn_bpe",
    "load_corpus",
    "load_text",
    "load_tokenizer",
    "pad_batch",
    "token_batches",
    "train_tokenizer",
]
