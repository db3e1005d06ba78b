"""The ``aten`` tab: the ATen graphs that AOTAutograd made of the captured one."""

from app.stages.view import StageView, graph_page

VIEW = StageView(
    "aten", "What AOTAutograd made of it: functional ATen graphs, forward and backward, with the tensors saved between them.", graph_page
)
