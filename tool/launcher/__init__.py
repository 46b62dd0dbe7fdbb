# SPDX-License-Identifier: BSD-3-Clause
"""prun.py, in rooms; tool/README.md says what is where."""
