# SPDX-License-Identifier: BSD-3-Clause
"""Commands of prun.py that neither run a job nor show one."""
