"""Every setting of the web process and the worker, from environment variables that begin with FUSELAB_; nothing else reads them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

ROOT = Path(__file__).resolve().parent.parent


class Settings(BaseSettings):
    """What an operator may set; each field is FUSELAB_ plus its name in capitals."""

    model_config = SettingsConfigDict(env_prefix="FUSELAB_", frozen=True, extra="ignore")

    database_url: str = "sqlite:///data/fuselab.db"
    mode: Literal["private", "public"] = "private"
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    allowed_hosts: str = Field(
        default="", description="comma-separated Host names served; empty: localhost only in private mode, any in public"
    )
    embedded_worker: bool = True

    max_source_bytes: int = Field(default=64 * 1024, ge=1)
    max_queued_runs: int = Field(default=200, ge=1)
    poll_seconds: float = Field(default=0.04, gt=0)
    stale_job_seconds: float = Field(default=15.0, gt=0)
    worker_seen_seconds: float = Field(default=15.0, gt=0)

    worker_slots: int = Field(default=2, ge=1)
    run_seconds: float = Field(default=60.0, gt=0)
    run_memory_bytes: int = Field(default=4 << 30, ge=1 << 20)
    run_output_bytes: int = Field(default=64 << 20, ge=1 << 10)
    run_processes: int = Field(default=48, ge=1)
    run_disk_bytes: int = Field(default=256 << 20, ge=1 << 20)
    run_turn_seconds: float = Field(default=20.0, gt=0, description="how long a run may measure while others wait for the device")
    run_user: int = Field(default=61100, ge=1000, description="the first of the user ids under which runs live, one for each slot")
    work_folder: str = Field(
        default="", description="where runs write where no namespace gives them a folder of their own; empty: a new one"
    )
    kept_folder: str = Field(
        default="data/kept",
        description="where the worker keeps what it builds once for all runs, such as precompiled headers; must be its own to write",
    )
    warm_compilers: str = Field(
        default="fuselab,inductor",
        pattern="^(fuselab|inductor)(,(fuselab|inductor))*$",
        description="comma-separated compilers that a worker prepares at its start, some seconds each; runs of the others are slower",
    )
    run_gpus: bool = Field(default=True, description="give runs this machine's GPUs, if it has any")

    def hosts(self) -> list[str]:
        """The Host names that are answered; a private server answers to its own machine only, so that DNS rebinding fails."""
        if self.allowed_hosts:
            return [name.strip() for name in self.allowed_hosts.split(",") if name.strip()]
        return ["*"] if self.mode == "public" else ["localhost", "127.0.0.1", "[::1]", "testserver"]


@lru_cache
def settings() -> Settings:
    """The settings of this process."""
    return Settings()
