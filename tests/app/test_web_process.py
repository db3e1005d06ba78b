"""The web process: it never imports torch, hands its worker nothing secret, and keeps it running."""

from __future__ import annotations

import subprocess
import sys

from app.jobs import worker_environment
from app.settings import ROOT, Settings


def test_the_web_process_never_imports_torch():
    program = (
        "import sys; from app.main import create_app; from app.settings import Settings; "
        "create_app(Settings(database_url='sqlite://', embedded_worker=False)); "
        "print(sorted({'torch', 'triton', 'numpy', 'sympy'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (result.stdout.strip(), result.returncode) == ("[]", 0), result.stderr


def test_the_worker_is_handed_no_secret(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PATH", "/usr/bin")
    given = worker_environment(Settings(mode="public", database_url="sqlite:///x.db"))
    assert "secret" not in str(given)
    assert (given["PATH"], given["FUSELAB_MODE"], given["FUSELAB_DATABASE_URL"]) == ("/usr/bin", "public", "sqlite:///x.db")


def test_settings_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("FUSELAB_PORT", "9001")
    monkeypatch.setenv("FUSELAB_EMBEDDED_WORKER", "false")
    chosen = Settings()
    assert (chosen.port, chosen.embedded_worker, chosen.host, chosen.mode) == (9001, False, "127.0.0.1", "private")
