# SPDX-License-Identifier: BSD-3-Clause
"""The report of a run: one HTML file that needs no network and nothing beside it."""
