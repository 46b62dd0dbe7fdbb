# SPDX-License-Identifier: BSD-3-Clause
"""als_validate_numpy.py RATINGS FACTORS HELD_OUT LAMBDA...: for each lambda the users' factors for given factors of the
items, normal equations by NumPy, and the errors on the ratings and on the held-out ones."""
import sys

import numpy

import reading

train, held_out = reading.table(sys.argv[1]), reading.table(sys.argv[3])
with open(sys.argv[2], "rb") as file:
    text = file.read().replace(b"|", b" ")
width = len(text[:text.index(b"\n")].split())
given = numpy.fromstring(text, sep=" ").reshape(-1, width)
given = given[numpy.argsort(given[:, 0])]
item_ids, h = given[:, 0], numpy.ascontiguousarray(given[:, 1:])
k = h.shape[1]


def known(ids, among):
    place = numpy.minimum(numpy.searchsorted(among, ids), len(among) - 1)
    return place, among[place] == ids


train = train[numpy.argsort(train[:, 0], kind="stable")]
train = train[known(train[:, 1], item_ids)[1]]
user_ids, user = numpy.unique(train[:, 0], return_inverse=True)
item, value = known(train[:, 1], item_ids)[0], train[:, 2]
begin = numpy.searchsorted(user, numpy.arange(len(user_ids) + 1))
held_user, has_user = known(held_out[:, 0], user_ids)
held_item, has_item = known(held_out[:, 1], item_ids)
usable = has_user & has_item
held_user, held_item, held_value = held_user[usable], held_item[usable], held_out[usable, 2]
gram, right = numpy.empty((len(user_ids), k, k)), numpy.empty((len(user_ids), k, 1))
for u in range(len(user_ids)):
    rows = h[item[begin[u]:begin[u + 1]]]
    gram[u] = rows.T @ rows
    right[u, :, 0] = value[begin[u]:begin[u + 1]] @ rows


def rmse(w, users, items, values):
    squares = 0.0
    for first in range(0, len(users), 100000):
        part = slice(first, first + 100000)
        squares += ((values[part] - (w[users[part]] * h[items[part]]).sum(axis=1)) ** 2).sum()
    return (squares / len(users)) ** 0.5


best, best_lambda = numpy.inf, None
for word in sys.argv[4:]:
    w = numpy.empty((len(user_ids), k))
    for first in range(0, len(w), 5000):
        part = slice(first, first + 5000)
        w[part] = numpy.linalg.solve(gram[part] + float(word) * numpy.eye(k), right[part])[:, :, 0]
    error = rmse(w, held_user, held_item, held_value)
    print("lambda %s train_rmse %.17g validate_rmse %.17g" % (word, rmse(w, user, item, value), error))
    if error < best:
        best, best_lambda = error, word
print("best_lambda", best_lambda)
