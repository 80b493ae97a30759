from torchtext.vocab import Vocab

from transformer_lab.data import build_vocabulary
from transformer_lab.data.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID

SENTENCES = [["ein", "Hund", "und", "ein", "Ball"], ["ein", "Hund"], ["<eos>", "<eos>", "<eos>", "<eos>"]]


def test_special_tokens_come_first_and_frequent_words_before_rare_ones():
    """The model relies on the IDs of special tokens.

    Ties are broken alphabetically, so every run assigns the same IDs.
    """
    vocabulary = build_vocabulary(SENTENCES)
    assert isinstance(vocabulary, Vocab)
    assert vocabulary.itos == ["<pad>", "<bos>", "<eos>", "<unk>", "ein", "Hund", "Ball", "und"]
    assert [vocabulary[token] for token in ("<pad>", "<bos>", "<eos>", "<unk>")] == [PAD_ID, BOS_ID, EOS_ID, UNK_ID]


def test_rare_and_unseen_words_are_unknown():
    vocabulary = build_vocabulary(SENTENCES, min_frequency=2)
    assert [vocabulary[token] for token in ("ein", "Hund", "Ball", "Katze")] == [4, 5, UNK_ID, UNK_ID]
    assert len(vocabulary) == 6, "looking up an unknown word must not add it"
