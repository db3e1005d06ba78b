"""The ``dynamo`` tab: the FX graph that TorchDynamo captured, its guards, and where and why it broke."""

from app.stages.view import StageView, graph_page

VIEW = StageView(
    "dynamo", "What TorchDynamo captured: the FX graph with shapes and places in the snippet, its guards, and its graph breaks.", graph_page
)
