"""The ``autotune`` tab."""

from app.stages.view import StageView, graph_page

VIEW = StageView(
    "autotune", "The choices between libraries and templates: every configuration, with its time where it was measured.", graph_page
)
