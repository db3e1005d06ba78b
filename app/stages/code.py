"""The ``code`` tab: the generated kernels, each line with its origins."""

from app.stages.view import StageView, text_page

VIEW = StageView(
    "code",
    "The kernels that were generated: Triton for GPUs, C++ for the CPU. Hover a line to see which lines of the snippet it comes from.",
    text_page,
)
