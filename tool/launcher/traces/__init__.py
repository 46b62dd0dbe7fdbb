# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py trace`: the records of a run's processes (--trace) for Chrome's and Perfetto's viewers."""
