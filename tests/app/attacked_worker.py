"""``python -m tests.app.attacked_worker``: the worker as it is, but with the stand-in for the compiler, and no torch."""

import dataclasses
import logging
import sys

from app import sandbox
from app.settings import settings
from app.worker import Worker, configure

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="worker: %(message)s")
    chosen = settings()
    config = configure(chosen, sandbox.probe(chosen.run_user))
    limits = dataclasses.replace(config.limits, file=16 << 20, inodes=2000)
    Worker(chosen, dataclasses.replace(config, limits=limits, entry="tests.app.stand_in:run_snippet", warm=())).serve()
    sys.exit(0)
