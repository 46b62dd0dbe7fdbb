# SPDX-License-Identifier: BSD-3-Clause
"""The config of an algorithm, checked against the schema that its program publishes."""
import os

from .program import output_of
from .status import CONFIG, Failure

READ_LIMIT = 30.0  # seconds


class Entry:
    """A key of the config: where it stands and what was written."""

    def __init__(self, name, line, place, value, written):
        self.name, self.line, self.place, self.value, self.written = name, line, place, value, written

    def found(self):
        if isinstance(self.value, str):
            return f'string "{self.value}"'
        if isinstance(self.value, list):
            return "a list"
        if isinstance(self.value, dict):
            return "an object"
        if self.value is None or isinstance(self.value, bool):
            return self.written
        return f"number {self.written}"


class Entries(dict):
    """The keys of a config. Of one that is given twice the last counts; `listed` has both."""

    def __init__(self, listed=()):
        super().__init__((entry.name, entry) for entry in listed)
        self.listed = listed


def read_config(framework, path):
    """The entries of a config file. It is read by the parser that the programs have, so that nothing is JSON to one and not to
    the other. Raises Failure with file:line:column."""
    import json
    reader = os.path.join(framework, "start_scheduler")
    try:
        found = json.loads(output_of([reader, f"--print_config={path}"], READ_LIMIT))
        if "error" in found:
            raise Failure(CONFIG, found["error"])
        return Entries([Entry(key["name"], key["line"], f"{path}:{key['line']}:{key['column']}", key["value"], key["written"])
                        for key in found["keys"]])
    except (ValueError, KeyError, TypeError):
        raise Failure(CONFIG, f"{path}: cannot be read by {reader}: is it of another version?") from None


def nearest(word, words):
    """', did you mean ...' or nothing."""
    import difflib
    close = difflib.get_close_matches(word, words, 1, 0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


def limits_of(spec):
    least, most = spec.get("min"), spec.get("max")
    text = ""
    if least is not None:
        text += (" > " if spec.get("exclusive_min") else " >= ") + f"{least:.17g}".rstrip()
    if most is not None:
        text += (" and" if text else "") + f" <= {most:.17g}"
    return text


def file_exists(name):
    if os.path.exists(name):
        return True
    import glob
    return bool(glob.glob(os.path.expanduser(name)))


def why_not_input(name):
    if name == "-":  # standard input; worker 0 reads it
        return "standard input is a terminal, want a file or a pipe" if os.isatty(0) else ""
    if not file_exists(name):
        return f"no such file or folder: {name}"
    if os.path.isfile(name) and not os.access(name, os.R_OK):
        return f"cannot be read: {name}"
    return ""


def why_not_output(name):
    folder = os.path.abspath(name)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        return f"{folder} is not a folder"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} is not writable"


def number_in(value):
    """The number that a config's value stands for, or None. Numbers in quotes count, as they do in the programs."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return None
    return value if isinstance(value, (int, float)) and abs(value) != float("inf") and value == value else None


def check_entry(spec, entry, look_at_files):
    """Raises Failure when the entry does not fit what the schema says about its key."""
    kind = spec.get("type", "string")
    place = f'{entry.place}: key "{entry.name}"'

    def wrong(want):
        raise Failure(CONFIG, f"{place}: found {entry.found()}, want {want}")

    if kind in ("int", "double"):
        number = number_in(entry.value)
        want = ("an integer" if kind == "int" else "a number") + limits_of(spec)
        least, most = spec.get("min"), spec.get("max")
        if kind == "int" and least is not None and least == most:  # a switch: the number, or nothing
            want = f"{most:.17g}, or no such key"
        if number is None or (kind == "int" and number != int(number)):
            wrong(want)
        if least is not None and (number <= least if spec.get("exclusive_min") else number < least):
            wrong(want)
        if most is not None and number > most:
            wrong(want)
        return
    if kind == "bool":
        if not isinstance(entry.value, bool) and str(entry.value) not in ("0", "1", "true", "false"):
            wrong("true or false")
        return
    if kind == "doubles":
        values = entry.value if isinstance(entry.value, list) else [entry.value]
        limits = limits_of(spec)
        least, most = spec.get("min"), spec.get("max")
        for number in map(number_in, values or [None]):
            if (number is None or (most is not None and number > most) or
                    (least is not None and (number <= least if spec.get("exclusive_min") else number < least))):
                wrong("a list of numbers" + (limits and ", each" + limits))
        return
    if kind == "strings":
        for text in entry.value if isinstance(entry.value, list) else [entry.value]:
            if not isinstance(text, str):
                wrong("a list of strings")
            if spec.get("choices") and text not in spec["choices"]:
                wrong("a list of " + ", ".join(spec["choices"]))
        return
    if kind == "files":
        names = entry.value if isinstance(entry.value, list) else [entry.value]
        if not all(isinstance(name, str) for name in names):
            wrong("a file, folder or pattern, or a list of them")
        if not spec.get("required") and names == [""]:
            return
        if not names:
            wrong("at least one file")
        for name in names if look_at_files else []:
            why = why_not_input(name)
            if why:
                raise Failure(CONFIG, f"{place}: {why}")
        return
    text = entry.value
    if not isinstance(text, str):
        wrong("a string")
    choices = spec.get("choices")
    if choices and text not in choices:
        wrong("one of " + ", ".join(choices) + nearest(text, choices))
    if not text:
        if spec.get("required"):
            wrong("a name")
        return
    why = ""
    if kind == "file" and look_at_files:
        why = why_not_input(text) or (f"is a folder, want a file: {text}" if os.path.isdir(text) else "")
    elif kind == "plugin" and "/" in text and look_at_files:
        why = "" if os.path.exists(text) else f"no such file: {text}"
    elif kind == "folder_out" and look_at_files:
        why = why_not_output(text)
        why = why and f"cannot write to {text}: {why}"
    if why:
        raise Failure(CONFIG, f"{place}: {why}")


def check_config(schema, path, entries, look_at_files):
    """Raises Failure for the first thing that is wrong, in file order; missing keys come last."""
    specs = {spec["name"]: spec for spec in schema["keys"] if isinstance(spec, dict) and "name" in spec}
    first = {}
    for entry in entries.listed:
        if entry.name not in specs:
            raise Failure(CONFIG, f'{entry.place}: key "{entry.name}" is unknown{nearest(entry.name, list(specs))} '
                                  "(allowed keys: " + ", ".join(specs) + ")")
        if entry.name in first:
            raise Failure(CONFIG, f'{entry.place}: key "{entry.name}" is given twice, first in line {first[entry.name]}')
        first[entry.name] = entry.line
        check_entry(specs[entry.name], entry, look_at_files)
    given = {name for name, entry in entries.items() if entry.value not in ("", [], [""])}
    for spec in specs.values():
        others = spec.get("required_unless", [])
        if (spec.get("required") or (others and given.isdisjoint(others))) and spec["name"] not in given:
            allowed = spec.get("type", "string") + limits_of(spec)
            if spec.get("choices"):
                allowed += ": " + ", ".join(spec["choices"])
            raise Failure(CONFIG, f'{path or "no -c given"}: key "{spec["name"]}" is missing ({allowed}): '
                                  + spec.get("help", "") + ("; not needed with " + " or ".join(others) if others else ""))


def reads_standard_input(schema, entries):
    """Whether an input of the config is "-"."""
    keys = entries
    if schema:
        keys = [spec["name"] for spec in schema["keys"] if isinstance(spec, dict) and spec.get("type") == "files"]
    values = [entries[key].value for key in keys if key in entries]
    return any("-" in value if isinstance(value, list) else value == "-" for value in values)


def plugin_folders(schema, entries):
    """The folders of the plug-ins that the config names by path."""
    keys = ["update_file", "filter_file", "handle_file"]  # what the configs of Paracel 0.3 call them
    if schema:
        keys += [spec["name"] for spec in schema["keys"] if isinstance(spec, dict) and spec.get("type") == "plugin"]
    named = [entries[key].value for key in keys if key in entries]
    paths = [value for value in named if isinstance(value, str)]
    # A program without a schema may call its keys as it likes.
    paths += [text for entry in entries.values() for text in texts_in(entry.value) if text.endswith(".so")]
    return list(dict.fromkeys(os.path.dirname(os.path.abspath(path)) for path in paths if "/" in path))


def texts_in(value):
    """The strings in a value of a config, at any depth."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for one in inner for text in texts_in(one)]
