# SPDX-License-Identifier: BSD-3-Clause
"""The commands that show runs; each is loaded when it is called, so that the start of a job does not pay for them."""
VIEWS = ("top", "report", "compare", "export", "trace")


def view_command(arguments):
    """Returns the exit status. Raises Failure."""
    name, rest = arguments[0], arguments[1:]
    if name == "top":
        from ..report.top import top_command as command
    elif name == "export":
        from ..report.export import export_command as command
    elif name == "trace":
        from ..traces.command import trace_command as command
    elif name == "report":
        from ..report.commands import report_command as command
    else:
        from ..report.commands import compare_command as command
    return command(rest)
