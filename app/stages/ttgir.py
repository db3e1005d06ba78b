"""The ``ttgir`` tab: Triton's GPU IR, with layouts."""

from app.stages.view import StageView, text_page

VIEW = StageView("ttgir", "Triton GPU IR: layouts say which thread holds which element.", text_page)
