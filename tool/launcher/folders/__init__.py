# SPDX-License-Identifier: BSD-3-Clause
"""Folders of runs and for sockets: their locks, whose they are, what may be removed."""
