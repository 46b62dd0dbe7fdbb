# SPDX-License-Identifier: BSD-3-Clause
"""Update functions written in Python: numba makes machine code of them, which is linked into a plug-in for the servers.

numba's function for one element type becomes an object file; a few lines of C around it export it as include/paracel/update.hpp
says. Plug-ins are kept in a folder of the user, where prun's servers look, named after a hash of all that is linked.
"""
import ctypes
import fcntl
import functools
import hashlib
import inspect
import os
import shlex
import shutil
import subprocess
import tempfile

import numpy as np

from paracel.errors import PluginError

COMPILE_LIMIT = 300  # seconds
TAGS = {"int32": 1, "int64": 2, "float32": 3, "float64": 4}
STATUSES_OF_SUCCESS = (0, -2)  # of numba's functions: returned, returned None

SHIM = """\
#include <stdint.h>
#include <string.h>
struct error_text { char* data; uint64_t capacity; };
struct update {
  uint32_t magic; uint16_t abi_version, struct_bytes; uint32_t flags; uint8_t value_tag, delta_tag, zero[2];
  char value_type[48], delta_type[48]; const void* context;
  void (*apply)(void);
  int32_t (*in_place)(const struct update*, uint8_t, void*, const void*, uint64_t, struct error_text*);
  void (*initialise)(void); const void* initialise_context;
};
_Static_assert(sizeof(struct update) == 152, "the layout is part of the plug-in ABI");
/* Of arrays that numba has allocated; there are none. */
__attribute__((visibility("hidden"))) void NRT_MemInfo_call_dtor(void* p) { (void)p; __builtin_trap(); }
static int32_t fail(struct error_text* error, int32_t how, const char* text) {
  if (error != 0 && error->capacity > strlen(text)) strcpy(error->data, text);
  return how;
}
%(declarations)s
static int32_t in_place(const struct update* self, uint8_t tag, void* value, const void* delta, uint64_t count,
                        struct error_text* error) {
  void *result = 0, *raised = 0;
  int32_t status;
  (void)self;
  switch (tag) {
%(cases)s
    default: return fail(error, 1, "takes %(types)s only");
  }
  return %(succeeded)s ? 0 : fail(error, 2, "raised an exception");
}
__attribute__((visibility("default"))) struct update %(name)s = {
  0x55435250, 1, sizeof(struct update), %(flags)d, %(tag)d, %(tag)d, {0}, "%(types)s", "%(types)s", 0, 0, in_place, 0, 0};
"""


class Update(tuple):
    """(file, name) of a plug-in made from a Python function. A call runs the Python function here."""

    def __new__(cls, path, function):
        made = super().__new__(cls, (path, function.__name__))
        functools.update_wrapper(made, function)
        return made

    def __call__(self, value, delta):
        return self.__wrapped__(value, delta)


def update(function=None, *, elementwise=False, additive=False, dtypes=("float64", "float32")):
    """Makes an update function for the servers of a Python function: a decorator. Needs numba and a C compiler::

        @paracel.update
        def clipped(value, delta):               # arrays; changes value in place
            for i in range(value.size):
                value[i] -= 0.1 * min(max(delta[i], -1.0), 1.0)

        @paracel.update(elementwise=True)
        def larger(value, delta):                # numbers; returns the new value
            return max(value, delta)

        self.update("theta", gradient, function=clipped)

    The result is for the arguments `function` and `optimizer`, `register_update(*clipped)`, or a call, which runs the Python
    function here.

    Parameters
    ----------
    function : callable
        f(value, delta), in the Python that numba compiles (nopython mode): no temporary arrays, strings, or calls of Python.
        Global variables and those of closures are constants. A division by zero gives inf or nan. An exception that it raises
        becomes a PluginError at the worker, and the value is unchanged. Both arrays have the same length and dtype; `delta` is
        read-only. Servers call it on several threads, for different keys.
    elementwise : bool
        It takes two numbers and returns the new one, instead of working on arrays.
    additive : bool
        It is value + delta: a worker may add to its cached copy, and sum deltas before it sends them. Compared with the sum of
        some numbers here.
    dtypes : sequence of {"float64", "float32", "int64", "int32"}
        Types of values that it takes.

    Returns
    -------
    (file, name)
        Of the plug-in; a call of it runs the Python function here.

    Raises
    ------
    ImportError
        Without numba.
    PluginError
        For a function that cannot be compiled, and without a C compiler (environment variable CC, otherwise cc).

    Notes
    -----
    About a second for each dtype when the decorator runs. The plug-in is in $XDG_CACHE_HOME/paracel/plugins, by default
    ~/.cache/paracel/plugins, for processors of this kind; hosts of a job that do not share this folder need it copied.
    """
    if function is None:
        return functools.partial(update, elementwise=elementwise, additive=additive, dtypes=dtypes)
    function = getattr(function, "py_func", function)  # of numba.njit
    dtypes = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
    if not dtypes or not set(dtypes) <= set(TAGS):
        raise ValueError(f"dtypes is {dtypes}, want some of {', '.join(TAGS)}")
    check_signature(function)
    if additive:
        check_additive(function, elementwise, dtypes)
    objects = {dtype: object_code(function, elementwise, dtype) for dtype in dtypes}
    return Update(linked(function.__name__, objects, additive), function)


def check_signature(function):
    if not inspect.isfunction(function):
        raise TypeError(f"paracel.update: found {function!r}, want a function written in Python")
    name = function.__name__
    if not name.isidentifier() or not name.isascii():
        raise PluginError(f"an update function needs a name of ASCII letters, found {name}")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise PluginError(f"{name}{inspect.signature(function)}: want {name}(value, delta)") from None


def check_additive(function, elementwise, dtypes):
    for dtype in dtypes:
        value, delta = np.array([0, 1, -3, 7], dtype), np.array([5, -2, 4, 4], dtype)
        wanted = value + delta
        if elementwise:
            value = np.array([function(v, d) for v, d in zip(value, delta)], dtype)
        else:
            function(value, delta)
        if not np.array_equal(value, wanted):
            raise PluginError(f"{function.__name__} is declared additive, but makes {value.tolist()} where value + delta is "
                              f"{wanted.tolist()}")


def object_code(function, elementwise, dtype):
    """(numba's code for values of this dtype as an object file that exports update_<dtype>, a text that identifies it)."""
    try:
        import llvmlite.binding as llvm
        import numba
    except ImportError:
        raise ImportError("paracel.update needs numba, which is not installed: pip install numba") from None
    try:
        text, entry = numba_code(numba, function, elementwise, getattr(numba, dtype))
    except numba.core.errors.NumbaError as error:
        rule = "returns the new value" if elementwise else "changes value in place and returns nothing"
        raise PluginError(f"{function.__name__} cannot be compiled for {dtype}: {first_words(error)} (a function that is "
                          f"{'' if elementwise else 'not '}elementwise {rule})") from error
    module = llvm.parse_assembly(text)
    refuse_missing(function.__name__, [f.name for f in (*module.functions, *module.global_variables)
                                       if f.is_declaration and not f.name.startswith("llvm.")])
    # numba's names count its functions; with these, equal code is an equal text.
    module.name = "update"
    for i, item in enumerate([*module.functions, *module.global_variables]):
        if item.name == entry:
            item.name, item.visibility = f"update_{dtype}", "hidden"
        elif not item.is_declaration:
            item.name, item.linkage = f"part_{i}", "internal"
    # For all processors of this kind: servers may run on others than this one.
    machine = llvm.Target.from_triple(module.triple).create_target_machine(opt=3, reloc="pic", codemodel="small")
    return machine.emit_object(module), str(module)


def numba_code(numba, function, elementwise, element):
    """(LLVM's assembly text, name of the function). It takes two pointers of numba's calling convention, value, delta, count."""
    how = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    if elementwise:
        kernel = numba.njit(element(element, element), **how)(function)

        def entry(value, delta, count):
            for i in range(count):
                value[i] = kernel(value[i], delta[i])
    else:
        read_only = numba.types.Array(element, 1, "C", readonly=True)
        kernel = numba.njit(numba.void(element[::1], read_only), **how)(function)

        def entry(value, delta, count):
            kernel(numba.carray(value, count), numba.carray(delta, count))
    pointer = numba.types.CPointer(element)
    compiled = numba.njit(numba.void(pointer, pointer, numba.intp), **how)(entry)
    (signature,) = compiled.signatures
    return compiled.inspect_llvm(signature), compiled.overloads[signature].fndesc.llvm_func_name


def first_words(error):
    """Of numba's explanation of many lines."""
    lines = [line.strip(" >") for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith("Failed in")]
    return " ".join(lines[:2]) if lines and lines[0].endswith(":") else lines[0] if lines else type(error).__name__


def refuse_missing(name, needed):
    """Raises PluginError for what is neither in the C library nor in the shim."""
    library = ctypes.CDLL("libm.so.6")  # and, through it, libc
    missing = sorted(n for n in needed if n != "NRT_MemInfo_call_dtor" and not hasattr(library, n))
    if not missing:
        return
    allocates = any(n.startswith("NRT_") for n in missing)
    what = "allocates arrays: write a loop over the elements" if allocates else "calls Python or numba's own library"
    raise PluginError(f"{name} cannot run in a server: it {what} (it needs {', '.join(missing)})")


def linked(name, objects, additive):
    """The path of the plug-in, linked unless it exists. Blocks: while another process is linking."""
    declarations, cases = [], []
    for dtype in objects:
        declarations.append(f"extern int32_t update_{dtype}(void**, void**, void*, const void*, int64_t);")
        cases.append(f"    case {TAGS[dtype]}: status = update_{dtype}(&result, &raised, value, delta, (int64_t)count); break;")
    shim = SHIM % {
        "declarations": "\n".join(declarations), "cases": "\n".join(cases), "types": " or ".join(objects), "name": name,
        "flags": int(additive), "tag": TAGS[next(iter(objects))] if len(objects) == 1 else 0,
        "succeeded": " || ".join(f"status == {s}" for s in STATUSES_OF_SUCCESS)}
    identity = hashlib.sha256("\0".join([shim, *(text for _, text in objects.values())]).encode()).hexdigest()[:16]
    folder = plugin_cache()
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, f"lib{name}-{identity}.so")
        with open(os.path.join(folder, "lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of the workers of a job: a file that servers read is never replaced
            if not os.path.exists(path):
                link(name, shim, objects, path)
    except OSError as error:
        raise PluginError(f"{name}: its plug-in cannot be written to {folder}: {error.strerror}") from None
    return path


def link(name, shim, objects, path):
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        raise PluginError(f"{name}: no C compiler {compiler[0]}: paracel.update needs one (apt-get install gcc), or set CC")
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as work:
        files = [os.path.join(work, "update.c")]
        with open(files[0], "w", encoding="ascii") as file:
            file.write(shim)
        for dtype, (code, _) in objects.items():
            files.append(os.path.join(work, f"{dtype}.o"))
            with open(files[-1], "wb") as file:
                file.write(code)
        made = os.path.join(work, "made.so")
        done = subprocess.run([*compiler, "-shared", "-fPIC", "-O2", "-Wl,-z,defs", "-o", made, *files, "-lm"],
                              capture_output=True, text=True, check=False, timeout=COMPILE_LIMIT, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise PluginError(f"{name}: {' '.join(compiler)} failed: {(done.stderr or done.stdout).strip()}")
        os.chmod(made, 0o700)
        os.rename(made, path)


def plugin_cache():
    """The folder of these plug-ins: tool/launcher/job/plan.py tells the servers the same."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(os.path.abspath(base), "paracel", "plugins")
