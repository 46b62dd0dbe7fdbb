# SPDX-License-Identifier: BSD-3-Clause
"""A job: its options, its plan, the event loop, what is recorded of it."""
