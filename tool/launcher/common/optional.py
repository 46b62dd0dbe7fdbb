# SPDX-License-Identifier: BSD-3-Clause
"""Packages that only some commands need."""
from .exit_status import USAGE, Failure


def add_site_packages():
    """prun.py runs without them (-S), which saves milliseconds."""
    import site
    site.main()


def optional(module, package, what, debian=""):
    """Imports a module. Raises Failure that says how to install it."""
    import importlib
    add_site_packages()
    try:
        return importlib.import_module(module)
    except ImportError as error:
        apt = f", or apt-get install {debian}" if debian else ""
        raise Failure(USAGE, f"{what} needs the package {package}: pip install {package}{apt} ({error})") from None
