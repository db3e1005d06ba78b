"""The ``passes`` tab."""

from app.stages.view import StageView, graph_page

VIEW = StageView("passes", "What each pass over the graph changed: before and after, by name.", graph_page)
