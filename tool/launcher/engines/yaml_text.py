# SPDX-License-Identifier: BSD-3-Clause
"""Writes YAML: mappings, lists, texts, numbers and booleans, in the subset that versions 1.1 and 1.2 read alike."""
import json
import re

# What needs no quotes, and what looks like it but means a boolean or nothing in version 1.1.
PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(?::[A-Za-z0-9_./-]+)*")
WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
# What double quotes may contain only as an escape, besides what JSON escapes.
ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
# Lines that a block keeps as they are.
BLOCK = re.compile("(?:[!-~\xa0-\u2027\u2030-\ud7ff][\t -~\xa0-\u2027\u2030-\ud7ff]*\n)(?:[\t -~\xa0-\u2027\u2030-\ud7ff]*\n)*")


class Octal(int):
    """The mode of a file."""


def scalar(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Octal):
        return f"{int(value):#05o}".replace("o", "")
    if isinstance(value, int):
        return str(value)
    if PLAIN.fullmatch(value) and value.lower() not in WORDS:
        return value
    return ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def lines_of(value, indent):
    """The lines of a mapping or a list that is not empty."""
    space = " " * indent
    if isinstance(value, dict):
        for key, inner in value.items():
            name = f"{space}{scalar(key)}:"
            if isinstance(inner, str) and "\n" in inner and BLOCK.fullmatch(inner) and not inner.endswith("\n\n"):
                yield f"{name} |"
                yield from (f"{space}  {line}" if line else "" for line in inner.split("\n")[:-1])
            elif isinstance(inner, (dict, list)) and inner:
                yield name
                yield from lines_of(inner, indent + (2 if isinstance(inner, dict) else 0))
            else:
                yield f"{name} {'{}' if inner == {} else '[]' if inner == [] else scalar(inner)}"
        return
    for inner in value:
        if isinstance(inner, dict):
            first, *rest = lines_of(inner, indent + 2)
            yield f"{space}- {first[indent + 2:]}"
            yield from rest
        else:
            yield f"{space}- {scalar(inner)}"


def yaml_text(documents):
    return "".join("---\n" + "\n".join(lines_of(one, 0)) + "\n" for one in documents)
