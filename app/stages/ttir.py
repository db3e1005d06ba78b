"""The ``ttir`` tab: Triton's IR of each kernel."""

from app.stages.view import StageView, text_page

VIEW = StageView("ttir", "Triton IR: the kernel on tensors, before anything is said of threads.", text_page)
