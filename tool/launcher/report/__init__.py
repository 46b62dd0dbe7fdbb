# SPDX-License-Identifier: BSD-3-Clause
"""What a run has recorded, and how it is shown: in three lines, as a page, beside others, while it runs, elsewhere."""
