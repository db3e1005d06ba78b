"""The ``loops`` tab: the loop nests before anything is fused."""

from app.stages.view import StageView, text_page

VIEW = StageView(
    "loops",
    "Each ATen operation as a loop nest over named ranges; what cannot be one stays an extern call, and a decision says why.",
    text_page,
)
