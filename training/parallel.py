"""Several processes that train as one: ``python -m training.train_base --processes 2``, or under torchrun.

On a CPU one single-threaded process per core keeps its pace beside other work, where two threads that meet after every
operation wait for each other. Alone, every function here is the identity.
"""

import os
import socket
import subprocess
import sys

import torch
from torch import distributed

_LAUNCHED = ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")


def launch(processes: int, arguments: list[str]) -> list[subprocess.Popen]:
    """Starts the other processes of a run of ``training.train_base`` with the same arguments, and makes this one the first."""
    if processes == 1 or "WORLD_SIZE" in os.environ:
        return []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(zip(_LAUNCHED, (str(processes), "0", "127.0.0.1", str(port)), strict=True))
    command = [sys.executable, "-m", "training.train_base", *arguments]
    return [subprocess.Popen(command, env={**os.environ, "RANK": str(rank)}) for rank in range(1, processes)]


def finish(others: list[subprocess.Popen]) -> None:
    """Waits for the processes that `launch` started, after which this one is alone again."""
    for process in others:
        process.wait()
    if others:
        distributed.destroy_process_group()
        for name in _LAUNCHED:
            del os.environ[name]


def start() -> tuple[int, int]:
    """Joins the processes that `launch` or torchrun started; returns (this process's number, how many there are)."""
    if "WORLD_SIZE" not in os.environ:
        return 0, 1
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return distributed.get_rank(), distributed.get_world_size()


def average_gradients(parameters: list[torch.nn.Parameter]) -> None:
    """Replaces every gradient by its mean over the processes. What no process has a gradient of is left alone; where only some
    have one, zero stands for the others': one may have left cells out where another could not."""
    if not distributed.is_initialized():
        return
    had = torch.tensor([parameter.grad is not None for parameter in parameters], device=parameters[0].device).byte()
    distributed.all_reduce(had, distributed.ReduceOp.MAX)
    parameters = [parameter for parameter, some in zip(parameters, had.tolist(), strict=True) if some]
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    for parameter, mean in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = mean.view_as(parameter)


def average(number: float, device: torch.device) -> float:
    """The mean of a number over the processes, the same in all of them."""
    if not distributed.is_initialized():
        return number
    value = torch.tensor(number, device=device, dtype=torch.float32)
    distributed.all_reduce(value)
    return value.item() / distributed.get_world_size()
