# SPDX-License-Identifier: BSD-3-Clause
"""Models as the programs write them: a folder with model.json, which names the files of arrays."""
import json
import os

import numpy as np


class Model:
    """A manifest and its arrays.

    Attributes
    ----------
    manifest : dict
        model.json without the key ``arrays``.
    arrays : dict of str to ndarray
    ids : dict of str to ndarray
        Of arrays whose rows have ids: numbers (uint64) or names (object).
    metrics : list of dict
        Of a model that a program has just written: the lines of metrics.jsonl.
    """

    metrics: tuple[dict, ...] | list[dict] = ()

    def __init__(self, manifest, arrays, ids):
        self.manifest, self.arrays, self.ids = manifest, arrays, ids

    @classmethod
    def read(cls, folder):
        """Reads a folder, or its model.json. Raises ValueError for what is no model."""
        path = os.path.join(folder, "model.json") if os.path.isdir(folder) else os.fspath(folder)
        try:
            with open(path, encoding="utf-8") as file:
                manifest = json.load(file)
            described = manifest.pop("arrays")
        except (OSError, ValueError, KeyError, AttributeError) as e:
            raise ValueError(f"{path}: found no model of a program, want a folder with its model.json: {e}") from None
        top = os.path.dirname(path)
        text = manifest.get("format") == "text"
        arrays, ids = {}, {}
        for name, about in described.items():
            try:
                files = [os.path.join(top, f) for f in about["files"]]
                arrays[name] = (_from_text if text else _from_npy)(files, about)
                if "ids" in about:
                    of_files = [os.path.join(top, f) for f in about["ids"]]
                    ids[name] = _ids(of_files, about["id_kind"], text)
            except (OSError, ValueError, KeyError, EOFError) as e:
                raise ValueError(f"{path}: the array {name} cannot be read, the model is not complete: {e}") from None
        return cls(manifest, arrays, ids)

    def write(self, folder):
        """Writes a folder that the programs read. Creates it; files of the same names are replaced."""
        os.makedirs(folder, exist_ok=True)
        described = {}
        for name, array in self.arrays.items():
            file = name + "_0.npy"
            np.save(os.path.join(folder, file), array)
            about = {"dtype": array.dtype.str, "shape": list(array.shape), "files": [file]}
            if name in self.ids:
                names = self.ids[name].dtype == object
                id_file = name + "_id_0" + (".txt" if names else ".npy")
                path = os.path.join(folder, id_file)
                if names:
                    with open(path, "w", encoding="utf-8", errors="surrogateescape") as out:
                        out.writelines(f"{i}\n" for i in self.ids[name])
                else:
                    np.save(path, self.ids[name])
                about.update(rows=[len(array)], ids=[id_file], id_kind="name" if names else "number")
            described[name] = about
        with open(os.path.join(folder, "model.json"), "w", encoding="utf-8") as out:
            json.dump({**self.manifest, "format": "npy", "arrays": described}, out, indent=2)


def metrics_of(folder):
    """The lines of metrics.jsonl, or none."""
    path = os.path.join(folder, "metrics.jsonl")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _from_npy(files, about):
    parts = [np.load(f) for f in files]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _from_text(files, about):
    numbers = []
    for file in files:
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                row = line.rstrip("\n").split("\t")[-1] if about.get("keyed") else line
                numbers += [float(n) for n in row.split("|") if n.strip()]
    return np.array(numbers).astype(about["dtype"]).reshape(about["shape"])


def _ids(files, kind, text):
    if not text and kind == "number":
        return np.concatenate([np.load(f) for f in files])
    names = []
    for file in files:
        with open(file, encoding="utf-8", errors="surrogateescape") as lines:
            names += [line.rstrip("\n").split("\t")[0] for line in lines]
    return np.array(names, dtype=np.uint64) if kind == "number" else np.array(names, dtype=object)
