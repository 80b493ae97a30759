"""From sentences to batches: corpora, tokenizers, vocabulary, byte pairs, batches."""

from transformer_lab.data.batches import Batch, bucketed_batches, pad_batch, token_batches
from transformer_lab.data.corpora import Corpus, load_corpus
from transformer_lab.data.tokenizers import BpeTokenizer

__all__ = ["Batch", "BpeTokenizer", "Corpus", "bucketed_batches", "load_corpus", "pad_batch", "token_batches"]
