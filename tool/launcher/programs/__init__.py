# SPDX-License-Identifier: BSD-3-Clause
"""The user's program and the framework's, and the config of one."""
