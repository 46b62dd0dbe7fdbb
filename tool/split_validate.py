#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Splits ratings (user,item,rating a line) for als_validate: items whose id ends in 0, 1 or 2 are for validation.

    split_validate.py RATINGS TRAINING VALIDATION [--endings 0,1,2]
"""
import argparse
import sys


def split(ratings, training, validation, endings):
    """Returns: how many lines went to each. Blank lines are dropped. Raises: ValueError with file:line."""
    counts = [0, 0]
    for number, line in enumerate(ratings, 1):
        if not line.strip():
            continue
        fields = line.strip().split(",")
        if len(fields) < 2:
            raise ValueError(f"{ratings.name}:{number}: found {line.strip()!r}, want user,item,rating")
        held_out = fields[1].endswith(endings)
        counts[held_out] += 1
        (validation if held_out else training).write(line if line.endswith("\n") else line + "\n")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("ratings", "training", "validation"):
        parser.add_argument(name)
    parser.add_argument("--endings", default="0,1,2", help="last digits of the ids of held-out items (default 0,1,2)")
    o = parser.parse_args()
    try:
        with open(o.ratings, encoding="utf-8") as ratings, open(o.training, "w", encoding="utf-8") as training, \
                open(o.validation, "w", encoding="utf-8") as validation:
            kept, held = split(ratings, training, validation, tuple(o.endings.split(",")))
    except (OSError, ValueError) as error:
        sys.exit(f"split_validate.py: error: {error}")
    print(f"training {kept}\nvalidation {held}")


if __name__ == "__main__":
    main()
