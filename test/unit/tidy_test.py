#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Style rules that a program can check: a licence line in each source file, no tabs, no long lines or files, C++ formatted
by clang-format, no unfinished work, file names in snake_case, the fixed top level; and no class with too many members."""
import os
import re
import shutil
import subprocess
import sys
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOP = {"CMakeLists.txt", "LICENSE", "README.md", "include", "src", "alg", "server", "tool", "prun.py", "default", "test", "doc"}
LONGEST = 130  # columns of Python, scripts and CMake; the limit for C++ is in .clang-format
MOST_LINES = 600
# Words of this repository before standard terms took their place.
OLD_WORDS = r"""
    whoever anew asked_again kept_answers held_replies waiting_room unread_guard membership_board key_payloads
    parasrv_between stay_alone everybody_knows refuse_twice roster chain_lines copies_view clock_copies
    partition_state table_family shard_many rows_service ask_scheduler loop_surroundings crier busy_function scan_host
    collective_hub small_function text_number config_tree line_care question_line unread_replies descriptor_limit
    time_source entry_twice watch_load data_reader id_dictionary name_table number_set entry_store sparse_builder
    byte_source kept_request collective_numbers key_parts kvclt_groups? parasrv_many many_parameters comm_self
    row_client joint_update graph_part id_index repeated_edge face_newton l1_descent group_link top_lists linear_job
    graph_job begins_alone ask_others tell_new_server send_apart answer_here close_front failed_later take_within
    give_up_lines message_front peer_front find_no_room look_whether_\w+ look_after\w* look_at_number"""
MOST_FUNCTIONS = 40  # members of a class, in whatever files they are defined
MOST_FIELDS = 32
# Classes with more functions, and why they are not divided.
LARGE_CLASSES = {
    "paralg": "what an algorithm derives from, by the names of Paracel 0.3",
    "parameter_access": "the calls of an algorithm: each form of read, write and update",
    "bulk_access": "the same for many keys",
    "Comm": "a communicator's operations, by the names of Paracel 0.3",
    "parasrv": "what parameter_access calls, form by form",
    "session": "a worker's way to the scheduler, which its parts share",
    "server_group": "kvclt's calls for all servers, and their answers through changes of membership",
    "peer_collectives": "each collective, by messages and through shared memory",
    "shard": "a handler for each verb on keys",
    "row_service": "a handler for each verb on rows",
    "partition_store": "keys, rows, staged updates and applied requests of a partition change together or not at all",
    "change_log": "a note for each kind of change",
    "key_store": "one-line accessors of the tables and of the memory limit",
    "row_table": "one-line accessors of rows, slots and slabs",
    "scheduler": "a handler for each control verb, over the same seats",
}
LICENCE = "SPDX-License-Identifier: BSD-3-Clause"


def files():
    """Files of the repository; without one (an unpacked archive) or without git, all files outside build folders."""
    if shutil.which("git"):
        listed = subprocess.run(["git", "-C", SOURCE, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True,
                                stdin=subprocess.DEVNULL)
        if listed.returncode == 0 and listed.stdout:
            return [name for name in listed.stdout.splitlines() if os.path.exists(os.path.join(SOURCE, name))]
    found = []
    for folder, folders, names in os.walk(SOURCE):
        folders[:] = [f for f in folders if not f.startswith(("build", ".", "__pycache__"))]
        found += [os.path.relpath(os.path.join(folder, name), SOURCE) for name in names]
    return found


def text_of(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
        return file.read()


# What has no members: comments, directives, raw strings, strings, characters.
SILENT = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
                    r"'(?:\\.|[^'\\\n])+'", re.S | re.M)
BLOCK = re.compile(r"(?<![^;{}\x01])([^;{}\x01]*)\{([^{}]*)\}")  # an innermost one, and what stands before it
CLASS = re.compile(r"\b(?:class|struct) (?:\w+\([^)]*\) )?([\w:]+)(?: final)?(?: :[^:].*)?$")
NO_MEMBER = re.compile(r"\s*(?:template\s*)?(?:using|friend|static_assert|enum|class|struct|union)\b|.*= delete$", re.S)


def without_templates(text):
    text, found = re.sub(r"operator\s*\W+?(?=\()", "operator_", text.replace("->", "")), 1
    while found:
        text, found = re.subn(r"<[^<>]*>", "", text)
    return re.sub(r"\[\[.*?\]\]", "", text)


def class_sizes(text):
    """[(class, functions, fields)], from the inner classes to the outer ones."""
    sizes = []

    def close(block):
        head = " ".join(without_templates(block[1]).split())
        name = CLASS.search(head)
        if name and not re.search(r"\benum\b|=", head):
            # \x01, a closed block, ends a function unless it is an initialiser, a default argument or a class.
            body = re.sub(r"\x01\s*(?=[,;()\x01])", "", block[2]).replace("\x01", ";")
            body = re.sub(r"\b(?:public|private|protected):", "", without_templates(body))
            members = [m for m in body.split(";") if m.strip() and not NO_MEMBER.match(m)]
            functions = sum("(" in m.split("=")[0] for m in members)
            sizes.append((name[1], functions, len(members) - functions))
        return ";" if re.search(r"\bnamespace\b", head) else block[1] + "\x01"

    text = SILENT.sub(lambda found: " " if found[0].lstrip()[0] in "/#" else "0", re.sub(r"(?<=\w)'(?=\w)", "", text))
    found = 1
    while found:
        text, found = BLOCK.subn(close, text)
    return sizes


class Tidy(unittest.TestCase):
    def sources(self):
        return [name for name in files() if name.endswith((".cpp", ".hpp", ".py", ".sh", "CMakeLists.txt", ".cmake.in"))]

    def test_every_source_file_names_its_licence_at_the_top(self):
        for name in self.sources():
            self.assertIn(LICENCE, "".join(text_of(name).splitlines(True)[:2]), name)

    def test_no_tab_no_trailing_blank_no_long_line(self):
        for name in self.sources():
            for number, line in enumerate(text_of(name).split("\n"), 1):
                place = f"{name}:{number}"
                self.assertNotIn("\t", line, place)
                self.assertNotIn("\r", line, place)
                self.assertEqual(line.rstrip(), line, place)
                self.assertLessEqual(len(line), LONGEST, place)

    def test_no_source_file_is_longer_than_600_lines(self):
        lengths = {name: len(text_of(name).splitlines()) for name in self.sources()}
        self.assertEqual({name: n for name, n in lengths.items() if n > MOST_LINES}, {}, "split by topic")

    def test_members_are_counted(self):
        self.assertEqual(class_sizes("""
            // class comment { void f(); };
            namespace n {
            template <class T> class outer final : public base<T, 2> {
             public:
              outer() : a_{1}, b_{2} {}
              outer(const outer&) = delete;
              [[nodiscard]] const T& at(std::size_t i) const { if (i) { return "{"[0]; } return a_; }
              template <class F> void each(const F& f, options o = {}) const;
              bool operator<(const outer&) const = default;
              using type = T;
             private:
              struct inner { int x = 0; std::function<void(int)> f{}; };
              enum class kind { a, b };
              std::map<int, std::pair<int, T>> map_;
              T a_ = T(1), b_{};
            };
            }"""), [("inner", 0, 2), ("outer", 4, 2)])

    def test_no_class_has_too_many_members(self):
        found = [(name, *size) for file in self.sources() if file.endswith((".hpp", ".cpp")) and not file.startswith("test/")
                 for name, *size in class_sizes(text_of(file))]
        self.assertEqual([c for c in found if c[2] > MOST_FIELDS], [], f"more than {MOST_FIELDS} fields: name the parts")
        self.assertEqual({name for name, functions, _ in found if functions > MOST_FUNCTIONS}, set(LARGE_CLASSES),
                         f"more than {MOST_FUNCTIONS} functions: name the parts, or say in LARGE_CLASSES why not")

    def test_cpp_is_as_clang_format_writes_it(self):
        """Versions differ in details; the one of Debian 12 is used."""
        if shutil.which("clang-format") is None:
            self.skipTest("clang-format is not installed")
        version = subprocess.run(["clang-format", "--version"], capture_output=True, text=True, check=True).stdout
        if " version 14." not in version:
            self.skipTest(f"the format is that of clang-format 14, not of {version.strip()}")
        names = [name for name in files() if name.endswith((".cpp", ".hpp"))]
        done = subprocess.run(["clang-format", "--dry-run", "--Werror", *names], cwd=SOURCE, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr[:2000]), (0, ""), "clang-format -i mends it")

    def test_nothing_is_left_to_do(self):
        left = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
        for name in self.sources() + [name for name in files() if name.endswith(".md")]:
            for number, line in enumerate(text_of(name).split("\n"), 1):
                self.assertIsNone(left.search(line), f"{name}:{number}")

    def test_words_are_those_of_the_field(self):
        old = re.compile(r"\b(" + "|".join(OLD_WORDS.split() + ["has the bits of"]) + r")\b", re.IGNORECASE)
        for name in self.sources() + [name for name in files() if name.endswith(".md")]:
            for number, line in enumerate(text_of(name).split("\n"), 1):
                if name != os.path.relpath(os.path.abspath(__file__), SOURCE):
                    self.assertIsNone(old.search(line), f"{name}:{number}: {line.strip()}")

    def test_names_of_files_are_snake_case(self):
        for name in self.sources():
            base = os.path.basename(name)
            # gLDA is the program's name in Paracel 0.3.
            if base not in ("CMakeLists.txt", "paracelConfig.cmake.in", "gLDA_main.cpp", "__init__.py"):
                self.assertRegex(base, r"^_?[a-z][a-z0-9_]*\.[a-z]+$", name)

    def test_the_top_level_is_fixed(self):
        for name in files():
            top = name.split("/")[0]
            if not top.startswith("."):
                self.assertIn(top, TOP)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
