"""A second device on a machine that has none: tensors that say they are on "meta" and are computed on the CPU.

What a GPU refuses, an operation on tensors of both devices, is recorded with the line that asked for it, and reading a far tensor
without bringing it back fails. `waits` holds the lines at which a GPU would be waited for: copies between the devices, values that
are read, results whose length hangs on values. No gradients: enter `torch.no_grad()` too.
"""

import contextlib
import functools
import os
import traceback
from pathlib import Path
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

FAR = torch.device("meta")
_ROOT, _HERE = f"{Path(__file__).parents[1]}{os.sep}", __file__
_aten = torch.ops.aten
# These take both devices on a GPU, too: an index on the CPU, and copies.
_BOTH = {
    _aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default,
    _aten.copy_.default, _aten._to_copy.default,
}  # fmt: skip
_WAITS = ("_local_scalar_dense", "nonzero", "bincount", "masked_select")
waits: list[str] = []  # of the `far_device` that is open, or was


class FarTensor(torch.Tensor):
    """`near`, a tensor on the CPU, as it looks from another device."""

    @staticmethod
    def __new__(cls, near: torch.Tensor):
        layout = {"strides": near.stride(), "storage_offset": near.storage_offset(), "dtype": near.dtype}
        far = torch.Tensor._make_wrapper_subclass(cls, near.shape, device=FAR, requires_grad=False, **layout)
        far.near = near
        return far

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name in ("tolist", "item"):
            waits.append(_line())
            return getattr(args[0].near, name)()
        if name in ("numpy", "__array__"):
            raise TypeError("a tensor of another device has no numpy array; call .cpu() first")
        if name == "new_tensor":
            waits.append(_line())
            return FarTensor(args[0].near.new_tensor(*args[1:], **kwargs))
        if name in ("__getitem__", "__setitem__"):
            # a list would be made a tensor in C++, without a call that can be seen
            entries = args[1] if isinstance(args[1], tuple) else (args[1],)
            entries = tuple(FarTensor(torch.tensor(i)) if isinstance(i, list) else i for i in entries)
            args = (args[0], entries if isinstance(args[1], tuple) else entries[0], *args[2:])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _compute(func, args, kwargs or {}, [])  # outside of far_device(), such as when a parameter is made


class _Computing(TorchDispatchMode):
    def __init__(self, mixed: list[str]):
        super().__init__()
        self.mixed = mixed

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _compute(func, args, kwargs or {}, self.mixed)


def _compute(func, args, kwargs, mixed: list[str]):
    tensors: list[torch.Tensor] = []
    near_args = _map(_near, args, tensors)
    near_kwargs = {name: _map(_near, own, tensors) for name, own in kwargs.items()}
    far = any(isinstance(tensor, FarTensor) for tensor in tensors)
    near = any(not isinstance(tensor, FarTensor) and tensor.ndim for tensor in tensors)
    indexes_near = func is _aten.index.Tensor and not isinstance(args[0], FarTensor)
    if far and near and (func not in _BOTH or indexes_near):
        mixed.append(f"{func} in {_line()}")
    if _waits(func, args, kwargs, far, near):
        waits.append(_line())
    if kwargs.get("device") is not None:
        far = torch.device(kwargs["device"]) == FAR
        near_kwargs["device"] = "cpu"
    out = func(*near_args, **near_kwargs)  # on tensors that are near, while the mode is off
    if func is _aten.copy_.default or (isinstance(out, torch.Tensor) and out is near_args[0]):
        return args[0]  # written in place
    return _map(_far, out) if far else out


def _waits(func, args, kwargs, far: bool, near: bool) -> bool:
    if func is _aten._to_copy.default:
        return kwargs.get("device") is not None and (torch.device(kwargs["device"]) == FAR) != far
    if func in (_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default):
        indices = [index for index in args[1] if index is not None]
        return far and any(index.dtype == torch.bool or not isinstance(index, FarTensor) for index in indices)
    return far and (_reads_values(func) or (near and func is _aten.copy_.default))


@functools.cache
def _reads_values(func) -> bool:
    return any(name in str(func) for name in _WAITS)


class _Making(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor) and device is not None and torch.device(device) == FAR:
            waits.append(_line())
            with torch._C.DisableTorchFunction():
                return FarTensor(func(_map(_near, args[0]), **kwargs | {"device": "cpu"}))
        return func(*args, **kwargs)


def _map(change, value, seen: list | None = None):
    """`change` of what `value` holds, in lists and tuples too, as torch's `tree_map`, which is slow. `seen` gets the tensors."""
    if isinstance(value, (list, tuple)):
        return type(value)([_map(change, entry, seen) for entry in value])
    if seen is not None and isinstance(value, torch.Tensor):
        seen.append(value)
    return change(value)


def _near(value):
    return value.near if isinstance(value, FarTensor) else value


def _far(value):
    return FarTensor(value) if isinstance(value, torch.Tensor) and not isinstance(value, FarTensor) else value


def _line() -> str:
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(None)]  # the innermost first
    frames = [(name, line) for name, line in frames if name != _HERE]
    own = [(name, line) for name, line in frames if name.startswith(_ROOT) and "site-packages" not in name]
    name, line = (own or frames)[0]
    return f"{name}:{line}"


@contextlib.contextmanager
def far_device():
    """While open, far tensors can be computed on; yields the list of operations that mixed both devices."""
    mixed: list[str] = []
    waits.clear()
    # autocast knows no "meta"
    plain = mock.patch.object(torch, "is_autocast_enabled", return_value=False)
    no_autocast = mock.patch.object(torch, "autocast", return_value=contextlib.nullcontext())
    with plain, no_autocast, _Computing(mixed), _Making():
        yield mixed


def to_far(module: torch.nn.Module) -> torch.nn.Module:
    """The module with its parameters and buffers on the far device."""
    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    far = _far(tensor.detach())
                    tensors[name] = torch.nn.Parameter(far, False) if tensors is part._parameters else far
    return module
