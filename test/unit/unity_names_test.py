#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Files compiled together (PARACEL_UNITY) have the same meaning as separately. The compiler rejects identical definitions in the
anonymous namespaces of two files; this test finds what it accepts silently: a name in one file's anonymous namespace that
overloads or hides another file's, or one from a header."""
import collections
import glob
import os
import re
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Text without names: comments, raw strings, strings, characters.
SILENT = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M)
TYPE = re.compile(r"(?:struct|class|enum(?: class)?|union|concept) (\w+) ?(?:final\b|:|$|=)")
declaration = collections.namedtuple("declaration", "name scope anonymous file")


def without_template(head):
    while head.startswith("template"):
        depth = 0
        for i, letter in enumerate(head):
            depth += (letter == "<") - (letter == ">" and head[i - 1] != "-")
            if letter == ">" and depth == 0:
                break
        head = head[i + 1:].strip()
    return head


def name_of(head):
    """The name declared by the start of a declaration; none for a class member defined outside its class."""
    head = without_template(re.sub(r"\[\[.*?\]\]", "", head).strip())
    if re.match(r"(friend|static_assert|extern|catch|else)\b|using (?!\w+ =)", head):
        return None
    found = re.match(r"using (\w+) =", head) or TYPE.match(head) or re.search(r"(?<![\w:~])([A-Za-z_]\w*) ?(?:\(|=|\[|$)", head)
    return found[1] if found else None


def declarations(file, text):
    """The names that a file declares at namespace scope."""
    text = re.sub(r"(?<=\d)'(?=\d)", "", text)  # 1'000
    text = DIRECTIVE.sub("", SILENT.sub(lambda found: " " if found[0][0] == "/" else "0", text))
    found, scopes, begin = set(), [], 0  # None: something else than a namespace
    for mark in re.finditer(r"[{};]", text):
        head = " ".join(text[begin:mark.start()].split())
        begin = mark.end()
        if mark[0] == "}":
            scopes = scopes[:-1]
            continue
        namespace = re.match(r"(?:inline )?namespace ?([\w:]*)$", head) if mark[0] == "{" else None
        if namespace and None not in scopes:
            scopes.append(namespace[1])
            continue
        name = name_of(head) if None not in scopes and head else None
        if name:
            inner = tuple(part for scope in scopes for part in scope.split("::") if part)
            found.add(declaration(name, inner, "" in scopes or head.startswith("static "), file))
        if mark[0] == "{":
            scopes.append(None)
    return found


def clashes(found):
    """Pairs of declarations where the first may be found instead of the second."""
    inside = collections.defaultdict(set)  # file: scopes in which it has code
    names = collections.defaultdict(list)
    for one in found:
        inside[one.file].update(one.scope[:i] for i in range(len(one.scope) + 1))
        names[one.name].append(one)
    pairs = []
    for same in names.values():
        for one in same:
            for other in same:
                outer = one.scope[:len(other.scope)] == other.scope and one.file != other.file
                if one.anonymous and outer and (not other.anonymous or one.scope in inside[other.file]):
                    pairs.append((one, other))
    return sorted(pairs)


class UnityNames(unittest.TestCase):
    def found_in(self, **files):
        return [(one.name, one.file, other.file) for one, other in
                clashes({d for file, text in files.items() for d in declarations(file, text)})]

    def test_it_notices_what_hides_or_overloads(self):
        a = "namespace p { namespace {\nint twice(long x) { return x; }\n} }"
        self.assertEqual(self.found_in(a=a, h="namespace p { template <class T> int twice(T x); }"), [("twice", "a", "h")])
        self.assertEqual(self.found_in(a=a, b=a.replace("long", "int")), [("twice", "a", "b"), ("twice", "b", "a")])
        self.assertEqual(self.found_in(a=a.replace("p {", "p::q {"), h="namespace p { constexpr int twice = 2; }"),
                         [("twice", "a", "h")])

    def test_it_lets_be_what_is_not_found_or_found_first(self):
        a = "namespace p::q { namespace { struct box { int x; }; } }"
        self.assertEqual(self.found_in(a=a, h="namespace p::r { struct box {}; }"), [])
        self.assertEqual(self.found_in(a=a, b="namespace p { namespace { struct box {}; } }"), [])
        self.assertEqual(self.found_in(a=a, h="namespace p { struct other { struct box {}; }; } // struct box {};"), [])
        self.assertEqual(self.found_in(a=a, b="namespace p { other::box f() { box x; } }"), [])

    def test_no_name_of_one_file_means_something_else_in_the_next(self):
        def files(*patterns):
            return [path for p in patterns for path in glob.glob(os.path.join(SOURCE, p), recursive=True)]

        programs = re.compile(r"/(start|ask|send)_\w+\.cpp$")  # of one file each
        apart = os.path.join(SOURCE, "src", "python", "")  # never in a unity build
        library = [path for path in files("src/**/*.cpp", "server/**/*.cpp")
                   if not programs.search(path) and not path.startswith(apart)]
        self.assertGreater(len(library), 50)
        headers = [path for path in files("include/**/*.hpp", "src/**/*.hpp", "server/**/*.hpp") if not path.startswith(apart)]
        groups = [library + headers, files("alg/common/*/*.?pp")]
        for folder in sorted({os.path.dirname(path) for path in files("alg/*/*.cpp")}):
            groups.append([path for path in glob.glob(folder + "/*") if path.endswith((".hpp", ".cpp"))])
        found = set()
        for group in groups:
            names = set()
            for path in dict.fromkeys(group):
                with open(path, encoding="utf-8") as file:
                    names |= declarations(os.path.relpath(path, SOURCE), file.read())
            found.update(f"{one.file}: {one.name} ({other.file})" for one, other in clashes(names))
        self.assertEqual(found, set(), "\n" + "\n".join(sorted(found)))


if __name__ == "__main__":
    unittest.main()
