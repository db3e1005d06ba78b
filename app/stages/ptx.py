"""The ``ptx`` tab: PTX, or the assembly before it is assembled."""

from app.stages.view import StageView, text_page

VIEW = StageView("ptx", "PTX, NVIDIA's virtual assembly; for AMD, the assembly text.", text_page)
