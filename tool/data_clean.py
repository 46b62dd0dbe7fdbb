#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Cleans edges for Paracel 0.3's pagerank, and adds an edge to a sentinel from each vertex that has none.

Removes duplicate edges and lines that do not have two fields. Today's pagerank needs none of it: it reads vertices without edges
from `vertices`.

    data_clean.py EDGES OUTPUT [--sentinel 2147483648 | --no_sentinel]
"""
import argparse
import sys


def clean(edges, out, sentinel):
    """Returns: edges written, lines dropped, vertices that got the sentinel."""
    seen = set()
    dropped = 0
    for line in edges:
        fields = tuple(line.strip().split(","))
        if len(fields) != 2 or fields in seen:
            dropped += bool(line.strip())
            continue
        seen.add(fields)
        out.write(",".join(fields) + "\n")
    ends = sorted({b for _, b in seen} - {a for a, _ in seen}) if sentinel else []
    for vertex in ends:
        out.write(f"{vertex},{sentinel}\n")
    return len(seen), dropped, len(ends)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("edges")
    parser.add_argument("output")
    parser.add_argument("--sentinel", default="2147483648", help="vertex to which vertices without edges are linked (2147483648)")
    parser.add_argument("--no_sentinel", action="store_true", help="only remove duplicates and malformed lines")
    o = parser.parse_args()
    try:
        with open(o.edges, encoding="utf-8") as edges, open(o.output, "w", encoding="utf-8") as out:
            counts = clean(edges, out, "" if o.no_sentinel else o.sentinel)
    except OSError as error:
        sys.exit(f"data_clean.py: error: {error}")
    print("edges {}\ndropped {}\nsentinels {}".format(*counts))


if __name__ == "__main__":
    main()
