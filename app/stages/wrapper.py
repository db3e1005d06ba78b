"""The ``wrapper`` tab: the Python module that allocates, launches and frees."""

from app.stages.view import StageView, text_page

VIEW = StageView(
    "wrapper",
    "The module that allocates buffers, launches the kernels and frees what is done with; it runs alone once downloaded.",
    text_page,
)
