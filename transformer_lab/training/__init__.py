"""Training (section 5 of the paper): loss, schedule, single steps, whole runs, and the files they write."""

from transformer_lab.presets import PRESETS, Preset, find_preset, override
from transformer_lab.training.checkpoints import average_checkpoints
from transformer_lab.training.loss import consistency_loss, label_smoothing_loss, shift_target
from transformer_lab.training.muon import orthogonalize
from transformer_lab.training.own_process import train_in_own_process
from transformer_lab.training.records import read_metrics
from transformer_lab.training.schedule import linear_rate, warmup_rate
from transformer_lab.training.steps import evaluate, train_step
from transformer_lab.training.trainer import DivergedError, train

__all__ = [
    "PRESETS",
    "DivergedError",
    "Preset",
    "average_checkpoints",
    "consistency_loss",
    "evaluate",
    "find_preset",
    "label_smoothing_loss",
    "linear_rate",
    "orthogonalize",
    "override",
    "read_metrics",
    "shift_target",
    "train",
    "train_in_own_process",
    "train_step",
    "warmup_rate",
]
