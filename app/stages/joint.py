"""The ``joint`` tab."""

from app.stages.view import StageView, graph_page

VIEW = StageView("joint", "Forward and backward as one graph, how it was cut in two, and the tensors saved between them.", graph_page)
