"""The ``llir`` tab: the LLVM IR of each kernel."""

from app.stages.view import StageView, text_page

VIEW = StageView("llir", "LLVM IR of each kernel, one thread's view.", text_page)
