"""Puts the spool program into a wheel.

SPOOL_WHEEL_PROGRAM is the program, and SPOOL_WHEEL_PLATFORM the platform that it is for, such
as manylinux_2_17_x86_64. Without them the wheel is for all platforms, and finds spool in PATH.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProgramHook(BuildHookInterface[Any]):
    """The hook that hatchling calls."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the program and say what it is for."""
        program = os.environ.get("SPOOL_WHEEL_PROGRAM")
        if not program or self.target_name != "wheel":
            return
        build_data["force_include"][program] = "spool/bin/spool"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['SPOOL_WHEEL_PLATFORM']}"
