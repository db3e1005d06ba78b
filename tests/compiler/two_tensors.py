"""A tensor that is made of two others: each op is done to both."""

import torch
from torch.utils._pytree import tree_map_only


class TwoTensors(torch.Tensor):
    """As PyTorch's documentation of wrapper subclasses has them: inner tensors by name, and ``__torch_dispatch__``."""

    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, strides=a.stride(), dtype=a.dtype, device=a.device)

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __repr__(self):
        return f"TwoTensors({self.a}, {self.b})"

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return TwoTensors(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, op, types, arguments=(), keywords=None):
        one = op(*tree_map_only(TwoTensors, lambda t: t.a, arguments), **tree_map_only(TwoTensors, lambda t: t.a, keywords or {}))
        two = op(*tree_map_only(TwoTensors, lambda t: t.b, arguments), **tree_map_only(TwoTensors, lambda t: t.b, keywords or {}))
        return TwoTensors(one, two) if isinstance(one, torch.Tensor) else one
