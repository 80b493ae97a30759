"""Train one model in several processes. Each process takes its share of every batch, and the gradients are summed.

Start the processes with `torchrun --nproc-per-node 2 -m transformer_lab.cli train ...`.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from transformer_lab.data.batches import Batch
from transformer_lab.errors import InputError


@dataclass(frozen=True)
class WorkerGroup:
    """The rank of this process among the processes that train together. Only rank 0 writes files and prints."""

    rank: int = 0
    world_size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share_of(self, batch: Batch) -> Batch:
        """Return this process's share of `batch`: every `world_size`-th sentence. The share may be empty."""
        mine = slice(self.rank, None, self.world_size)
        return replace(batch, source=batch.source[mine], target=batch.target[mine], indices=batch.indices[mine])

    def wait_for_all(self) -> None:
        if self.world_size > 1:
            dist.barrier()

    def sum_gradients(self, parameters: Iterable[nn.Parameter], losses: Tensor) -> Tensor:
        """Sum the gradients of all processes in place, and return the sum of their losses.

        Everything is sent in one message, because a collective call takes as long for one number as for thousands.
        """
        if self.world_size == 1:
            return losses
        parameters = list(parameters)
        for parameter in parameters:
            if parameter.grad is None:  # this process had no sentences
                parameter.grad = torch.zeros_like(parameter)
        message = torch.cat([losses, *(parameter.grad.flatten() for parameter in parameters)])
        dist.all_reduce(message)
        sums = message.split([losses.numel(), *(parameter.numel() for parameter in parameters)])
        for parameter, gradient in zip(parameters, sums[1:], strict=True):
            parameter.grad.copy_(gradient.view_as(parameter))
        return sums[0]

    def leave(self) -> None:
        if self.world_size > 1:
            dist.destroy_process_group()


def join_workers(device: torch.device) -> WorkerGroup:
    """If torchrun started other processes, connect to them. Use NCCL between GPUs; otherwise, use Gloo.

    Raises:
        InputError: WORLD_SIZE is not 1, but a variable needed to reach the other processes is not set.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return WorkerGroup()
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise InputError(f"WORLD_SIZE is {count}, but {missing[0]} is not set: use torchrun, or unset WORLD_SIZE")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return WorkerGroup(dist.get_rank(), count)


def choose_device(name: str | None = None) -> torch.device:
    """Return the device with this name. The default is a GPU if there is one; otherwise, it is the CPU.

    If there are several GPUs, each process gets its own GPU, unless the name has a number, such as `cuda:1`.

    Raises:
        InputError: The device does not exist, or is neither `cpu` nor `cuda`.
    """
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        if device.type not in ("cpu", "cuda"):  # for example, Apple's mps lacks float64, which beam search uses
            raise InputError(
                f"this course computes on cpu or cuda, not on {name}: choose one of them", parameter="device"
            )
        if device.type == "cpu":
            return device
        if device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)  # do this first; otherwise, every process allocates memory on the first GPU
    except (RuntimeError, AssertionError, AttributeError, NotImplementedError):  # depending on the device
        message = f"this torch cannot compute on {name or device} here: choose another device, such as cpu"
        raise InputError(message, parameter="device") from None
    return device
