# SPDX-License-Identifier: BSD-3-Clause
"""What all commands use: exit statuses, command lines, numbers, output."""
