"""The real Inductor for a GPU that is not here: Dynamo's graph on CPU tensors comes in, the same graph on fake tensors of that GPU goes
out, and Inductor compiles it as ever, up to the text of its output code."""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any
from unittest.mock import patch

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

from compiler.observe.absent_attention import attention
from compiler.observe.absent_gpu import DEVICE, answering, find
from compiler.observe.constants_on_cpu import OnTarget, computed_on_cpu
from compiler.target import Target

RELIES_ON = (
    "torch._C._set_only_lift_cpu_tensors",
    "torch._functorch.config.force_non_lazy_backward_lowering",
    "torch._guards.TracingContext.try_get",
    "torch._guards.detect_fake_mode",
    "torch._inductor.constant_folding.ConstantFolder",
    "torch._inductor.fx_passes.joint_graph.UniformValueConstantFolder",
    "torch._inductor.fx_passes.mkldnn_fusion",
    "torch._inductor.fx_passes.pad_mm.get_cached_should_pad",
    "torch._inductor.graph.GraphLowering.codegen",
    "torch._inductor.graph.GraphLowering.compile_to_module",
    "torch._inductor.graph.GraphLowering.save_output_code",
    "torch._inductor.graph.getattr_recursive",
    "torch._inductor.output_code.cudagraph_post_compile",
    "torch._inductor.pattern_matcher.ReplacementPatternEntry",
    "torch._inductor.select_algorithm.AlgorithmSelectorCache.__call__",
    "torch._inductor.select_algorithm.ExternKernelCaller",
    "torch._subclasses.fake_tensor.FakeTensorMode._dispatch_impl",
    "torch._subclasses.fake_tensor.FakeTensorMode.avoid_device_init",
    "torch._subclasses.meta_utils.MetaTensorDescriber.describe_tensor",
    "torch.utils._device._device_constructors",
)


@dataclasses.dataclass(frozen=True, slots=True)
class ByDefault:
    """A decision that Inductor takes by measuring on the device, and that was taken without: about what, how, and out of how many."""

    subject: str
    reason: str
    candidates: int


LIFTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)
NOT_CACHED = {"fx_graph_cache": False}
"""Code that cannot be loaded here must not be found in a cache later."""
ON_AMD = {"layout_optimization": False, "max_autotune_conv_backends": "ATEN,TRITON"}
"""What Inductor's configuration is on ROCm, where it differs; it is decided when torch is imported."""


@contextmanager
def retargeted(target: Target, undecided: Callable[[ByDefault], None] = lambda _: None) -> Iterator[None]:
    """Inductor generates code for the target; tensors of the CPU count as tensors on it.

    ``compile_fx_inner`` returns as ever, but its callable refuses to run: to load the code would take the GPU. ``undecided`` is told of
    each choice that would take a measurement.
    """
    with ExitStack() as stack:
        stack.enter_context(answering(target))
        for opened in (_tensors_on_target, _patterns_traced_anew, computed_on_cpu, _code_not_loaded, _backward_at_once):
            stack.enter_context(opened())
        stack.enter_context(attention(target))
        stack.enter_context(_not_measured(undecided))
        stack.enter_context(_configured(target))
        yield


def on_target(gm: GraphModule, inputs: Sequence[Any], target: Target) -> tuple[GraphModule, list[Any]]:
    """Dynamo's graph and its inputs as they would be on the target: a copy, with fake CUDA tensors. Call it inside ``retargeted``.

    Sizes, strides, symbols, aliasing and ``requires_grad`` stay; devices in arguments and metadata change.
    """
    moved = copy.deepcopy(gm)
    _keep_sources(gm, moved)
    with_fakes = [_fake(value) for value in inputs]
    for module in moved.modules():
        if isinstance(module, GraphModule):
            _move_nodes(module.graph)
            module.recompile()
    return moved, with_fakes


def _keep_sources(gm: GraphModule, moved: GraphModule) -> None:
    """Where each input comes from, which a copy loses: by it AOTAutograd knows the parameters, and saves them rather than views of them."""
    if hasattr(gm, "_param_name_to_source"):
        moved._param_name_to_source = gm._param_name_to_source
    for old, new in zip(gm.graph.nodes, moved.graph.nodes, strict=True):
        if hasattr(old, "_dynamo_source"):
            new._dynamo_source = old._dynamo_source


def compile_retargeted(
    gm: GraphModule,
    inputs: Sequence[Any],
    target: Target,
    undecided: Callable[[ByDefault], None] = lambda _: None,
    **given: Any,  # noqa: ANN401
) -> Callable[..., Any]:
    """Has Inductor generate code for the target, forward and backward; ``given`` is for ``compile_fx``.

    Gives back the graph itself, which goes on eagerly on the CPU.
    """
    from torch._inductor.compile_fx import compile_fx

    with retargeted(target, undecided):
        moved, fakes = on_target(gm, inputs, target)
        compile_fx(moved, fakes, **given)
    eager: Callable[..., Any] = gm.forward
    return eager


def _fake(value: Any) -> Any:  # noqa: ANN401  # an input of the graph
    """The fake tensor that AOTAutograd would make of an input, with the symbols that Dynamo gave its sizes."""
    mode, context = torch._guards.detect_fake_mode(), torch._guards.TracingContext.try_get()
    if not isinstance(value, torch.Tensor) or mode is None or context is None:
        return value
    symbolic = context.tensor_to_context.get(value)
    source = None if symbolic is None else symbolic.tensor_source
    return mode.from_tensor(value, static_shapes=False, symbolic_context=symbolic, source=source)


def _move_nodes(graph: Graph) -> None:
    makers = set(find("torch.utils._device._device_constructors")())
    for node in graph.nodes:
        node.args, node.kwargs = map_aggregate(node.args, _moved), map_aggregate(dict(node.kwargs), _moved)
        if node.target in makers and "device" not in node.kwargs and not str(node.target).endswith("_like"):
            node.kwargs = {**node.kwargs, "device": DEVICE}
        if node.target is torch.tensor:
            node.target = constant_on_target
        if "autocast" in str(node.target) and node.args and node.args[0] == "cpu":
            node.args = ("cuda", *node.args[1:])
        elif node.op == "call_method" and node.target == "to":
            node.args = tuple(DEVICE if isinstance(value, str) and value == "cpu" else value for value in node.args)
        if node.kwargs.get("device") == "cpu":
            node.kwargs = {**node.kwargs, "device": DEVICE}
        _move_value(node)


def _moved(value: Any) -> Any:  # noqa: ANN401  # an argument of a node
    return DEVICE if isinstance(value, torch.device) and value.type == "cpu" else value


def _move_value(node: Node) -> None:
    """The value that Dynamo noted for a node, on the target; a value of another fake mode stays in that mode."""

    def move(value: Any) -> Any:  # noqa: ANN401
        mode = getattr(value, "fake_mode", None)
        if not isinstance(value, torch.Tensor) or mode is None or value.layout != torch.strided:
            return value
        with mode:
            like = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)
        return like.requires_grad_(value.requires_grad and value.is_leaf)

    if "example_value" in node.meta:
        node.meta["example_value"] = torch.utils._pytree.tree_map(move, node.meta["example_value"])


_WRAPPED: ContextVar[bool] = ContextVar("wrapped", default=False)
"""A scalar that PyTorch itself made a tensor is being lifted into the trace."""
_FROM_SCRIPT: ContextVar[bool] = ContextVar("from_script", default=False)
"""The script's own ``torch.tensor`` is being traced."""


def constant_on_target(*args: Any, **given: Any) -> Any:  # noqa: ANN401
    """``torch.tensor`` while it is traced: the value is on the CPU, and counts as one on the target even if it has no axes."""
    token = _FROM_SCRIPT.set(True)
    try:
        return torch.tensor(*args, **given)
    finally:
        _FROM_SCRIPT.reset(token)


@contextmanager
def _tensors_on_target() -> Iterator[None]:
    """A fake tensor made of a tensor on the CPU is on the target, as the tensor would be; constants are lifted before they are moved.

    Scalars that PyTorch itself wraps, as in ``x[0] = 5``, are tensors of the CPU without axes on a GPU as well.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch._subclasses.meta_utils import MetaTensorDescriber

    describe, dispatch = MetaTensorDescriber.describe_tensor, FakeTensorMode._dispatch_impl

    def described(self: Any, tensor: torch.Tensor, **given: Any) -> Any:  # noqa: ANN401  # torch's own
        found = describe(self, tensor, **given)
        return dataclasses.replace(found, device=DEVICE) if found.device.type == "cpu" and not _WRAPPED.get() else found

    def dispatched(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401  # torch's own
        lifts = func in LIFTS and not _FROM_SCRIPT.get() and type(args[0]) is torch.Tensor and args[0].dim() == 0
        token = _WRAPPED.set(lifts)
        try:
            return dispatch(self, func, types, args, kwargs)
        finally:
            _WRAPPED.reset(token)

    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with (
            patch.object(MetaTensorDescriber, "describe_tensor", described),
            patch.object(FakeTensorMode, "_dispatch_impl", dispatched),
            patch.object(FakeTensorMode, "avoid_device_init", property(lambda _: True)),  # values of constants are not moved
        ):
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


@contextmanager
def _patterns_traced_anew() -> Iterator[None]:
    """Inductor traces its patterns at first use, for the device that it finds; here it does so for the target, and forgets them after.

    Those that were traced before, for the CPU, are put aside.
    """
    from torch._inductor.fx_passes import fuse_attention, joint_graph, misc_patterns, mkldnn_fusion, pad_mm, post_grad
    from torch._inductor.pattern_matcher import ReplacementPatternEntry, init_once_fakemode

    with ExitStack() as stack:
        for found in (*joint_graph.pass_patterns, *post_grad.pass_patterns):
            for name, values in (("patterns", found.patterns), ("seen_patterns", getattr(found, "seen_patterns", None))):
                if values is None:
                    continue
                fresh = type(values)(values.default_factory) if hasattr(values, "default_factory") else type(values)()
                if name == "patterns":
                    fresh.update({key: [e for e in held if not isinstance(e, ReplacementPatternEntry)] for key, held in values.items()})
                stack.enter_context(patch.object(found, name, fresh))
        once = (fuse_attention._sfdp_init, misc_patterns._misc_patterns_init, pad_mm._pad_mm_init)

        def forget() -> None:
            for function in once:
                function.cache_clear()

        forget()
        stack.callback(forget)
        stack.enter_context(patch.object(mkldnn_fusion, "_mkldnn_fusion_init", lambda: None))
        for module in (joint_graph, post_grad):
            plain = module.lazy_init
            while hasattr(plain, "__wrapped__"):
                plain = plain.__wrapped__
            stack.enter_context(patch.object(module, "lazy_init", init_once_fakemode(plain)))
        yield


@contextmanager
def _code_not_loaded() -> Iterator[None]:
    """Compiling ends with the text of the output code, and constants are said to be on the target."""
    from torch._inductor import graph, output_code

    attribute = graph.getattr_recursive

    def written(self: Any) -> types.ModuleType:  # noqa: ANN401  # a GraphLowering
        code, _ = self.codegen_with_cpp_wrapper() if self.cpp_wrapper else self.codegen()
        text = getattr(code, "value", code)  # a plain string in some versions
        if graph.GraphLowering.save_output_code is not None:
            graph.GraphLowering.save_output_code(text)
        module = types.ModuleType("absent")
        module.call = absent  # type: ignore[attr-defined]
        module.__file__ = ""
        return module

    def placed(*args: Any) -> Any:  # noqa: ANN401
        value = attribute(*args)
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
            return value
        nodes = args[0].graph.find_nodes(op="get_attr", target=args[1]) if isinstance(args[0], GraphModule) else ()
        noted = next((node.meta["val"].device.type for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)), "cuda")
        return value if noted == "cpu" else OnTarget.of(value)

    with (
        patch.object(graph.GraphLowering, "compile_to_module", written),
        patch.object(graph, "getattr_recursive", placed),
        ExitStack() as stack,
    ):
        for name in ("cudagraph_post_compile", "cudagraph_partition_post_compile"):  # a CUDA graph is recorded by running
            if hasattr(output_code, name):
                stack.enter_context(patch.object(output_code, name, lambda *_, **__: None))
        yield


def absent(*_: object) -> Any:  # noqa: ANN401
    """What was compiled for a GPU that is not here."""
    raise RuntimeError("this code was generated for a GPU that is not here")


@contextmanager
def _backward_at_once() -> Iterator[None]:
    """The backward is compiled together with the forward: afterwards nothing answers for the GPU any more."""
    from torch._functorch import config

    with config.patch(force_non_lazy_backward_lowering=True, enable_autograd_cache=False):
        yield


@contextmanager
def _not_measured(undecided: Callable[[ByDefault], None]) -> Iterator[None]:
    """Where Inductor would time candidates, the first library call is taken, or else the first candidate; products are not padded."""
    from torch._inductor import select_algorithm
    from torch._inductor.fx_passes import pad_mm

    select, padded = select_algorithm.AlgorithmSelectorCache.__call__, pad_mm.get_cached_should_pad

    def selected(self: Any, name: str, choices: Sequence[Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if len(choices) > 1:
            chosen = next((choice for choice in choices if isinstance(choice, select_algorithm.ExternKernelCaller)), choices[0])
            undecided(ByDefault(name, f"{chosen.name} was taken unmeasured: the device would have timed all candidates", len(choices)))
            choices = [chosen]
        return select(self, name, choices, *args, **kwargs)

    def unpadded(key: str) -> bool:
        undecided(ByDefault("pad_mm", "operands were not padded to aligned sizes: the device would have timed both", 2))
        return False

    with patch.object(select_algorithm.AlgorithmSelectorCache, "__call__", selected), patch.object(pad_mm, padded.__name__, unpadded):
        yield


@contextmanager
def _configured(target: Target) -> Iterator[None]:
    from torch._inductor import config

    with config.patch({**NOT_CACHED, **(ON_AMD if target.kind == "hip" else {})}):
        yield
