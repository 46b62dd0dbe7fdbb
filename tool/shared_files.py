#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""shared_files.py OUT PROGRAM ...: files for editors and manuals from what programs say of themselves. The installation runs it.

    OUT/paracel/schema/NAME.json   JSON Schema of a program's config, from --schema
    OUT/man/man1/prun.py.1, paracel-NAME.1
"""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from launcher.commands.completion import options_of, parser_of  # noqa: E402
from launcher.common.exit_status import MEANING  # noqa: E402
from launcher.programs.program import COMMANDS, SCHEMA_MARK  # noqa: E402

TEXT = {"type": "string"}


def one_or_many(item):
    return {"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]}


def property_of(key):
    """JSON Schema of a key's value."""
    number = {name: key[of] for name, of in (("minimum", "min"), ("maximum", "max")) if of in key}
    if key.get("exclusive_min"):
        number["exclusiveMinimum"] = number.pop("minimum")
    text = {"type": ["string", "integer"]} if key.get("or_numbers") else dict(TEXT)
    if "choices" in key:
        text["enum"] = key["choices"]
    kind = key["type"]
    shape = {"int": {"type": "integer", **number}, "double": {"type": "number", **number}, "bool": {"type": "boolean"},
             "doubles": one_or_many({"type": "number", **number}),
             "strings": {"anyOf": [text, {"type": "array", "items": text}]},
             "files": one_or_many(TEXT)}.get(kind, text)
    return {"description": key["help"], **({"default": key["default"]} if "default" in key else {}), **shape}


def json_schema(own):
    """Of a config, from what --schema prints. A config that includes another one may leave out what is required."""
    required = [key["name"] for key in own["keys"] if key["required"]]
    conditions = [{"anyOf": [{"required": [name]} for name in (key["name"], *key["required_unless"])]}
                  for key in own["keys"] if "required_unless" in key]
    properties = {key["name"]: property_of(key) for key in own["keys"]}
    properties["include"] = {"description": "a config whose keys this one has, too, or a list of them", **one_or_many(TEXT)}
    properties["$schema"] = {"description": "of this file, for editors", **TEXT}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": f"config of {own['program']}", "type": "object",
            "properties": properties, "additionalProperties": False,
            "anyOf": [{"required": ["include"]}, {"required": required, "allOf": conditions} if conditions else
                      {"required": required}]}


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.split("\n"))


def page(name, title, sections):
    """A manual page. sections: [(heading, roff)]"""
    lines = [f'.TH "{roff(name.upper())}" 1 "" "Paracel" "Paracel"', ".SH NAME", f"{roff(name)} \\- {roff(title)}"]
    for heading, body in sections:
        lines += [f".SH {heading}", body.rstrip("\n")]
    return "\n".join(lines) + "\n"


def described(action):
    """An option as roff: what it is called, what it means."""
    value = f" \\fI{roff(action.metavar or action.dest.upper())}\\fR" if action.nargs is None else ""
    names = ", ".join(f"\\fB{roff(name)}\\fR" for name in action.option_strings)
    return f".TP\n{names}{value}\n{roff(action.help)}\n"


def launcher_page():
    job = parser_of(None)
    body = "".join(described(action) for action in dict.fromkeys(options_of(job).values()))
    commands = ""
    for command in COMMANDS:
        parser = parser_of(command)
        if parser is None:
            continue
        commands += f".SS {command}\n{roff(parser.description)}\n"
        commands += "".join(described(action) for action in dict.fromkeys(options_of(parser).values()))
    usage = "\n.br\n".join(roff(line.strip().removeprefix("usage: ")) for line in job.format_usage().strip().splitlines())
    statuses = "".join(f".TP\n{number}\n{roff(word)}\n" for number, word in MEANING.items())
    return page("prun.py", "runs jobs of Paracel", [
        ("SYNOPSIS", usage), ("DESCRIPTION", roff(job.description) + " It starts one scheduler, the servers and the workers."),
        ("OPTIONS", body), ("COMMANDS", commands), ("EXIT STATUS", statuses)])


def datagen_page():
    said = subprocess.run([sys.executable, os.path.join(HERE, "datagen.py"), "--help"], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, check=True).stdout
    return page("paracel-datagen", "generates input for the programs of Paracel", [
        ("SYNOPSIS", "\\fBparacel\\-datagen\\fR \\-m KIND \\-o FILE [options]"), ("OPTIONS", f".nf\n{roff(said)}\n.fi")])


def program_page(own, summary):
    name = f"paracel-{own['program']}"
    keys = ""
    for key in own["keys"]:
        facts = [key["type"]] + ([f"one of {', '.join(key['choices'])}"] if "choices" in key else [])
        facts += [f"{'>' if key.get('exclusive_min') else '>='} {key['min']}"] if "min" in key else []
        facts += [f"<= {key['max']}"] if "max" in key else []
        facts += ["required"] if key["required"] else []
        facts += [f"required without {' or '.join(key['required_unless'])}"] if "required_unless" in key else []
        facts += [f"default {json.dumps(key['default'])}"] if "default" in key else []
        keys += f".TP\n\\fB{roff(key['name'])}\\fR\n{roff(key['help'])} ({roff(', '.join(facts))})\n"
    return page(name, summary or f"the program {own['program']} of Paracel", [
        ("SYNOPSIS", f"\\fBprun.py\\fR \\-w WORKERS \\-p SERVERS \\-c CONFIG.json {roff(own['program'])}\n.br\n"
                     f"\\fB{roff(name)}\\fR \\-\\-cfg_file CONFIG.json [\\-\\-set KEY=VALUE]"),
        ("DESCRIPTION", "Runs as a job under prun.py, or in one process. The config is a JSON object with these keys; the key "
                        "\\fBinclude\\fR names files whose keys it has, too, and \\fB\\-\\-set\\fR replaces a key."),
        ("KEYS", keys), ("SEE ALSO", "\\fBprun.py\\fR(1)")])


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def own_schema(path):
    """What a program says of its config, and its summary; (None, "") of another file."""
    try:
        with open(path, "rb") as file:
            if not os.access(path, os.X_OK) or SCHEMA_MARK not in file.read():
                return None, ""
        said = [subprocess.run([path, option], stdin=subprocess.DEVNULL, capture_output=True, check=True, text=True).stdout
                for option in ("--schema", "--help")]
        return json.loads(said[0]), said[1].split("\n")[0].partition(": ")[2]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        sys.exit(f"shared_files.py: error: {path}: {error}")


def main(out, *programs):
    write(os.path.join(out, "man", "man1", "prun.py.1"), launcher_page())
    write(os.path.join(out, "man", "man1", "paracel-datagen.1"), datagen_page())
    for path in filter(os.path.exists, programs):  # not all need to have been built
        name = os.path.basename(path)
        own, summary = own_schema(path)
        if own is not None:
            write(os.path.join(out, "paracel", "schema", f"{name}.json"), json.dumps(json_schema(own), indent=1) + "\n")
            write(os.path.join(out, "man", "man1", f"paracel-{name}.1"), program_page(own, summary))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: shared_files.py OUT PROGRAM ...")
    main(*sys.argv[1:])
