#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Gathers the pages of the documents for MkDocs: every README and page of doc/, at the same place below the target, and each
source file that one of them links to as a page that shows it.

    stage.py SOURCE TARGET
"""
import glob
import os
import re
import shutil
import sys

LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#])")
LANGUAGE = {".hpp": "cpp", ".cpp": "cpp", ".py": "python", ".sh": "sh", ".json": "json"}
CODE = re.compile(r"(^```.*?^```|`[^`\n]*`|^ {4}.*?$)", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"^<!-- .* -->\n\n?", re.MULTILINE)


def pages_of(source):
    found = ["README.md", *(os.path.relpath(path, source) for pattern in ("doc/*.md", "*/**/README.md")
                            for path in glob.glob(os.path.join(source, pattern), recursive=True))]
    return sorted({page for page in found if not page.startswith("build")})


class Stage:
    def __init__(self, source, target):
        self.source, self.target = source, target
        self.pages = pages_of(source)
        self.shown = set()

    def write(self, path, text):
        path = os.path.join(self.target, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def text(self, path):
        with open(os.path.join(self.source, path), encoding="utf-8") as file:
            return file.read()

    def link(self, page, target):
        """Where a link leads in the site; shows the file that it leads to, if that is no page."""
        if target.startswith(("http://", "https://", "mailto:")):
            return target
        path = os.path.normpath(os.path.join(os.path.dirname(page), target))
        full = os.path.join(self.source, path)
        if not os.path.exists(full):
            raise SystemExit(f"stage.py: error: {page}: {target} does not exist")
        if os.path.isdir(full):
            if os.path.join(path, "README.md") not in self.pages:
                self.show_folder(path)
            return os.path.join(target, "README.md")
        if path in self.pages:
            return target
        if os.path.splitext(path)[1] in (".svg", ".png"):
            os.makedirs(os.path.dirname(os.path.join(self.target, path)), exist_ok=True)
            shutil.copyfile(full, os.path.join(self.target, path))
            return target
        self.show(path)
        return target + ".md"

    def show(self, path):
        if path not in self.shown:
            self.shown.add(path)
            fence = "`" * 6
            language = LANGUAGE.get(os.path.splitext(path)[1], "text")
            self.write(path + ".md", f"# {path}\n\n{fence} {{.{language} linenums=1}}\n{self.text(path)}{fence}\n")

    def show_folder(self, path):
        names = sorted(name for name in os.listdir(os.path.join(self.source, path))
                       if os.path.isfile(os.path.join(self.source, path, name)) and not name.startswith("."))
        for name in names:
            self.show(os.path.join(path, name))
        self.write(os.path.join(path, "README.md"), f"# {path}\n\n" + "".join(f"* [{name}]({name}.md)\n" for name in names))

    def page(self, page):
        # What is code has no links.
        parts = CODE.split(COMMENT.sub("", self.text(page)))
        for i in range(0, len(parts), 2):
            parts[i] = LINK.sub(lambda found: self.link(page, found[0]), parts[i])
        return "".join(parts)

    def run(self):
        shutil.rmtree(self.target, ignore_errors=True)
        for page in self.pages:
            self.write(page, self.page(page))
        for name in ("python.md", "style.css"):
            text = self.text(os.path.join("doc", "site", name))
            self.write(os.path.join("site", name) if name.endswith(".md") else name, text)


def main():
    if len(sys.argv) != 3:
        print("usage: stage.py SOURCE TARGET", file=sys.stderr)
        return 2
    Stage(*sys.argv[1:]).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
