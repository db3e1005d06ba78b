"""The ``sass`` tab: the machine code of each kernel."""

from app.stages.view import StageView, text_page

VIEW = StageView(
    "sass",
    "The machine's own instructions: SASS for NVIDIA, x86 for the CPU; each with its line, registers, spills and occupancy.",
    text_page,
)
