# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py new`: a project of one's own, from the files in template/ with other names."""
import keyword
import os
import re
import shlex
import shutil
import sys

from ..common.command_line import name_given, new_parser
from ..common.exit_status import FAILURE, OK, USAGE, Failure, words_of
from ..common.output import write_out
from ..programs.program import TOP

NAME = "my_algorithm"            # in the template's files and their names
LICENCE = re.compile(r"\A(#|//) SPDX-License-Identifier: [\w-]+\n(//\n)?")
PACKAGE = os.path.basename(TOP) == "_bin"  # of Python
MOST_CHARACTERS = 64
TARGETS = {"all", "clean", "help", "install", "test", "package", "paracel", "numpy", "build", "result"}  # of CMake, and modules
WORDS_OF_CXX = set("""alignas alignof asm auto bool case catch char class concept const constexpr decltype default delete do
    double else enum explicit export extern float for friend goto if inline int long mutable namespace new noexcept nullptr
    operator private protected public register requires return short signed sizeof static struct switch template this throw try
    typedef typeid typename union unsigned using virtual void volatile while main std""".split())


def template_folder(kind):
    for folder in (os.path.join(TOP, "tool", "template"), os.path.join(TOP, "..", "share", "paracel", "template")):
        path = os.path.join(folder, kind)
        if os.path.isdir(path):
            return path
    raise Failure(FAILURE, f"the template is in neither {TOP}/tool/template nor {os.path.dirname(TOP)}/share/paracel/template: "
                           "is the installation complete?")


def tree():
    """Where find_package(paracel) finds this framework: the build folder of a source tree, or the prefix. Raises Failure."""
    framework = os.environ.get("PARACEL_FRAMEWORK")
    build = os.path.dirname(os.path.abspath(framework)) if framework else os.path.join(TOP, "build")
    for folder, config in ((build, "paracelConfig.cmake"),
                           (os.path.dirname(TOP), os.path.join("lib", "cmake", "paracel", "paracelConfig.cmake"))):
        if os.path.exists(os.path.join(folder, config)):
            return folder
    if PACKAGE:
        raise Failure(USAGE, "new: the Python package has no headers for programs in C++: add --python, or use the prun.py of a "
                             "clone or of an installed tree")
    raise Failure(USAGE, f"new: no build of the framework in {build}: README.md has its command")


def checked_name(folder):
    name = os.path.basename(os.path.abspath(folder))
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name, re.ASCII) or name.endswith("_") or "__" in name:
        better = re.sub(r"[^A-Za-z0-9]+", "_", name, flags=re.ASCII).strip("_0123456789")
        raise Failure(USAGE, f"new: the program is named after its folder, and {name} is no name of a class: want letters, "
                             "digits and single _" + (f", such as {better}" if better else ""))
    if len(name) > MOST_CHARACTERS:
        raise Failure(USAGE, f"new: the program is named after its folder: want at most {MOST_CHARACTERS} characters")
    if name in WORDS_OF_CXX | TARGETS or keyword.iskeyword(name) or name in sys.stdlib_module_names:
        raise Failure(USAGE, f"new: the program is named after its folder, and {name} has another meaning in CMake, C++ or "
                             "Python: want another name")
    return name


def launcher_command():
    """How to type the name of this launcher."""
    path = os.path.realpath(sys.argv[0])
    for name in ("prun", "prun.py"):
        found = shutil.which(name)
        if found is not None and (os.path.realpath(found) == path or PACKAGE and name == "prun"):
            return name, path
    return shlex.quote(path), path


def contents(kind, name):
    """{file name: text}"""
    said, path = launcher_command()
    camel = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    words = {"PARACEL_PRUN": path, "PARACEL_TREE": re.sub(r'([\\"$])', r"\\\1", tree()) if kind == "cpp" else "",
             NAME: name, "MyAlgorithm": camel}
    folder = template_folder(kind)
    texts = {}
    for file_name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, file_name), encoding="utf-8") as file:
            text = LICENCE.sub("", file.read())
        if file_name == "README.md":
            text = re.sub(r"(?m)^prun\.py(?= )", lambda _: said, text)
        pattern = r"\$\{PARACEL_PRUN\}|" + "|".join(map(re.escape, words))  # the first is CMake's variable
        texts[file_name.replace(NAME, name)] = re.sub(pattern, lambda m: words.get(m[0], m[0]), text)
    return texts


def create(folder, texts):
    """Writes all of them or none."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        names = None
    except OSError as error:
        raise Failure(USAGE, f"new: {folder}: {error.strerror}: want a new folder, or an empty one") from None
    if names:
        raise Failure(USAGE, f"new: {folder} is not empty: it has {sorted(names)[0]}; want a new folder, or an empty one")
    written = []
    try:
        if names is None:
            os.makedirs(folder)
        for name, text in texts.items():
            path = os.path.join(folder, name)
            with open(path, "x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            os.unlink(path)
        if names is None and os.path.isdir(folder):
            os.rmdir(folder)
        raise Failure(FAILURE, f"new: {folder} cannot be written: {words_of(error)}") from None


def new_command(arguments):
    """`prun.py new ...`. Returns the exit status."""
    parser = new_parser(prog="prun.py new", description="Makes a project: an algorithm, a config, a test, a README.")
    parser.add_argument("folder", type=name_given, metavar="FOLDER",
                        help="where; it must not exist, or be empty; the program gets its name")
    parser.add_argument("--python", action="store_true", help="in Python instead of C++")
    options = parser.parse_args(arguments)
    name = checked_name(options.folder)
    create(options.folder, contents("python" if options.python else "cpp", name))
    steps = ["python3 test.py"] if options.python else ["cmake -S . -B build && cmake --build build", "ctest --test-dir build"]
    where = shlex.quote(options.folder)
    write_out(f"{options.folder}: a program {name} with its config, test and README.md; next\n"
              + "".join(f"    cd {where} && {steps[0]}\n" if at == 0 else f"    {step}\n" for at, step in enumerate(steps)))
    return OK
