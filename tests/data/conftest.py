from collections.abc import Callable
from pathlib import Path

import pytest

from transformer_lab.data import BpeTokenizer, Corpus, load_corpus
from transformer_lab.errors import InputError


@pytest.fixture(scope="session")
def multi30k(real_data: Path) -> Corpus:
    return load_corpus("multi30k", data_dir=real_data)


@pytest.fixture(scope="session")
def bpe(multi30k: Corpus) -> BpeTokenizer:
    return BpeTokenizer.train(multi30k.train)


@pytest.fixture(scope="session")
def refusal() -> Callable[..., str]:
    """Return a function that calls `load_corpus` and returns the message of its error, which must be one line."""

    def refusal(*arguments: str | Path) -> str:
        with pytest.raises(InputError) as raised:
            load_corpus(*arguments)
        message = str(raised.value)
        assert "\n" not in message
        return message

    return refusal
