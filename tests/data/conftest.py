from pathlib import Path

import pytest

from transformer_lab.data import BpeTokenizer, Corpus, load_corpus


@pytest.fixture(scope="session")
def multi30k(real_data: Path) -> Corpus:
    return load_corpus("multi30k", data_dir=real_data)


@pytest.fixture(scope="session")
def bpe(multi30k: Corpus) -> BpeTokenizer:
    return BpeTokenizer.train(multi30k.train)
