#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Generates the input of a half step of als from the results of a factorization with biases.

It consists of ratings r - mu - b_i, and item factors with a leading 1, whose counterpart becomes the user's bias.

    generate_data.py --mean X --item_bias FILE --ratings FILE --item_factors FILE --new_ratings FILE --new_item_factors FILE

Item biases are `item<tab>bias` a line, ratings `user,item,rating` (or tabs), item factors `item<tab>x|x|...`. Ratings of items
without a bias are dropped.
"""
import argparse
import sys


def fields_of(file, fewest, separators="\t,"):
    for number, line in enumerate(file, 1):
        text = line.rstrip("\n")
        if not text:
            continue
        separator = next((s for s in separators if s in text), "\t")
        fields = text.split(separator)
        if len(fields) < fewest:
            raise ValueError(f"{file.name}:{number}: found {text!r}, want {fewest} fields")
        yield fields


def generate(o):
    """Returns: how many ratings were written, and dropped."""
    with open(o.item_bias, encoding="utf-8") as file:
        bias = {fields[0]: float(fields[1]) for fields in fields_of(file, 2)}
    written = dropped = 0
    with open(o.ratings, encoding="utf-8") as file, open(o.new_ratings, "w", encoding="utf-8") as out:
        for user, item, rating, *_ in fields_of(file, 3):
            if item in bias:
                out.write(f"{user},{item},{float(rating) - o.mean - bias[item]!r}\n")
                written += 1
            else:
                dropped += 1
    with open(o.item_factors, encoding="utf-8") as file, open(o.new_item_factors, "w", encoding="utf-8") as out:
        for item, factors, *_ in fields_of(file, 2, "\t"):
            out.write(f"{item}\t1.0|{factors}\n")
    return written, dropped


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mean", type=float, required=True, help="mean of all ratings, mu")
    for name in ("item_bias", "ratings", "item_factors", "new_ratings", "new_item_factors"):
        parser.add_argument("--" + name, required=True)
    try:
        written, dropped = generate(parser.parse_args())
    except (OSError, ValueError) as error:
        sys.exit(f"generate_data.py: error: {error}")
    print(f"ratings {written}\ndropped {dropped}")


if __name__ == "__main__":
    main()
