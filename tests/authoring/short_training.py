"""Cut every epoch of the package's trainer to a few updates. IPython runs this file when a kernel starts.

These tests ask whether each cell runs, not how well a model gets. Without this file, they would train for minutes.
"""

from transformer_lab.training import trainer


def _first_batches(self, epoch, batches_of_epoch=trainer.TrainingRun.batches_of_epoch):
    return batches_of_epoch(self, epoch)[:8]


trainer.TrainingRun.batches_of_epoch = _first_batches
del trainer, _first_batches
