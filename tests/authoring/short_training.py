"""Cut every epoch to a few updates, and translations to a few tokens. IPython runs this file when a kernel starts.

These tests ask whether each cell runs, not how good a model gets. Without this file, they would train for minutes, and
the translations of models that have hardly been trained would be as long as allowed.
"""

from transformer_lab.training import own_process

_SHORTER = """
from transformer_lab import data
from transformer_lab.decoding import Translator
from transformer_lab.electives import language_model
from transformer_lab.training import trainer

def _first_batches(*arguments, bucketed_batches=data.bucketed_batches, **options):
    return bucketed_batches(*arguments, **options)[:3]

def _first_tokens(self, sentences, beam_size, alpha, max_length, *advance, search=Translator.search):
    return search(self, sentences, beam_size, alpha, min(6, max_length or self.model.config.max_length), *advance)

def _first_steps(model, tokens, steps, *arguments, train=language_model.train_language_model, **options):
    return train(model, tokens, min(steps, 10), *arguments, **options)

data.bucketed_batches = trainer.bucketed_batches = _first_batches
Translator.search = _first_tokens
language_model.train_language_model = _first_steps
del data, language_model, trainer, Translator, _first_batches, _first_steps, _first_tokens
"""
exec(_SHORTER)
own_process.CHILD = _SHORTER + own_process.CHILD
del own_process, _SHORTER
