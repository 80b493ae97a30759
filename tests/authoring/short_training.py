"""Limit every epoch to a few updates. IPython runs this file when a kernel starts.

The tests check that each cell runs, not how good a model becomes. Without this file, training would take minutes.
"""

from transformer_lab.training import own_process

_SHORTER = """
from transformer_lab import data
from transformer_lab.training import trainer

def _first_batches(*arguments, bucketed_batches=data.bucketed_batches, **options):
    return bucketed_batches(*arguments, **options)[:8]

data.bucketed_batches = trainer.bucketed_batches = _first_batches
del data, trainer, _first_batches
"""
exec(_SHORTER)
own_process.CHILD = _SHORTER + own_process.CHILD
del own_process, _SHORTER
