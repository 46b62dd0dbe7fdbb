# SPDX-License-Identifier: BSD-3-Clause
"""Paracel: a parameter server for distributed iterative algorithms."""
from paracel import _core  # noqa: F401

__version__ = "0.1.0"
