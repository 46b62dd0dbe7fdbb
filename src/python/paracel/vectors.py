# SPDX-License-Identifier: BSD-3-Clause
"""Vectors of words, with the calls of gensim's KeyedVectors."""
import numpy as np


class WordVectors:
    """Vectors by word. ``vectors["word"]`` is a vector, of a list of words an array of theirs.

    Parameters
    ----------
    words : sequence of str
    vectors : array of shape (words, vector_size)

    Attributes
    ----------
    index_to_key : list of str
        The words, in the order of the rows.
    key_to_index : dict of str to int
    vectors : array of shape (words, vector_size)

    Examples
    --------
    >>> import numpy as np
    >>> import paracel
    >>> wv = paracel.WordVectors(["king", "man", "woman", "queen"], np.array([[2.0, 1], [1, 0], [0, 1], [1, 2]]))
    >>> wv.most_similar(["king", "woman"], ["man"], topn=1)[0][0]
    'queen'
    >>> round(wv.similarity("man", "woman"), 3)
    0.0
    """

    def __init__(self, words, vectors):
        self.index_to_key = [str(w) for w in words]
        self.key_to_index = {w: i for i, w in enumerate(self.index_to_key)}
        self.vectors = np.asarray(vectors)
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.key_to_index) or len(self.index_to_key) != len(self.vectors):
            raise ValueError(f"found {len(self.key_to_index)} different words and vectors of shape {self.vectors.shape}, want a "
                             "row for each word")

    @property
    def vector_size(self):
        return self.vectors.shape[1]

    def __len__(self):
        return len(self.index_to_key)

    def __contains__(self, word):
        return word in self.key_to_index

    def __getitem__(self, words):
        return self.vectors[self._places(words)] if not isinstance(words, str) else self.vectors[self._places([words])[0]]

    def _places(self, words):
        for w in words:
            if w not in self.key_to_index:
                raise KeyError(f"found no vector of {w!r}, want a word that occurred often enough")
        return [self.key_to_index[w] for w in words]

    def _unit(self):
        length = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        return np.divide(self.vectors, length, out=np.zeros(self.vectors.shape), where=length > 0)

    def similarity(self, one, other):
        """The cosine of two words' vectors.

        Parameters
        ----------
        one, other : str

        Returns
        -------
        float
        """
        a, b = self[one].astype(np.float64), self[other].astype(np.float64)
        length = np.linalg.norm(a) * np.linalg.norm(b)
        return float(a @ b / length) if length > 0 else 0.0

    def most_similar(self, positive=(), negative=(), topn=10):
        """The words whose vectors have the greatest cosine with the sum of the positive ones, each of length 1, less that of the
        negative ones. These words themselves are left out.

        Parameters
        ----------
        positive, negative : word or list of words
        topn : int

        Returns
        -------
        list of (word, cosine)
        """
        positive, negative = (self._places([w] if isinstance(w, str) else w) for w in (positive, negative))
        if not positive and not negative:
            raise ValueError("found no word, want at least one")
        unit = self._unit()
        target = unit[positive].sum(axis=0) - unit[negative].sum(axis=0)
        length = np.linalg.norm(target)
        cosines = unit @ target / (length if length > 0 else 1.0)
        cosines[[*positive, *negative]] = -np.inf
        best = np.argsort(-cosines, kind="stable")[:topn]
        return [(self.index_to_key[i], float(cosines[i])) for i in best if np.isfinite(cosines[i])]

    def save_word2vec_format(self, path, binary=False):
        """Writes the form of word2vec.c, which gensim reads: a line of the numbers of words and of columns, then a word a line,
        with its numbers. Words with blanks are refused.

        Parameters
        ----------
        path : path
        binary : bool
            Numbers are 4-byte floats, otherwise text.
        """
        for w in self.index_to_key:
            if not w or any(c.isspace() for c in w):
                raise ValueError(f"found word {w!r}, want words without blanks in this form")
        rows = np.ascontiguousarray(self.vectors, dtype="<f4")
        with open(path, "wb") as out:
            out.write(f"{len(self)} {self.vector_size}\n".encode())
            for w, row in zip(self.index_to_key, rows):
                numbers = row.tobytes() if binary else " ".join(map(str, row)).encode()
                out.write(w.encode() + b" " + numbers + b"\n")

    @classmethod
    def load_word2vec_format(cls, path, binary=False):
        """Reads that form, of any writer: after a vector there may be a line end, or none.

        Parameters
        ----------
        path : path
        binary : bool
            Numbers are 4-byte floats, otherwise text.

        Returns
        -------
        WordVectors

        Raises
        ------
        ValueError
            The file has another form, or ends too early.
        """
        with open(path, "rb") as file:
            head = file.readline().split()
            if len(head) != 2 or not all(n.isdigit() for n in head):
                raise ValueError(f"{path}:1: found no header, want the numbers of words and of columns")
            count, size = map(int, head)
            words, rows = [], []
            for i in range(count):
                word, row = cls._binary(file, size) if binary else cls._text(file)
                if row is None or len(row) != size:
                    raise ValueError(f"{path}: vector {i + 1}: found {0 if row is None else len(row)} numbers, want {size}")
                words.append(word.decode("utf-8", "surrogateescape"))
                rows.append(row)
        return cls(words, np.array(rows, dtype=np.float32).reshape(count, size))

    @staticmethod
    def _text(file):
        fields = file.readline().rstrip().split(b" ")
        try:
            return fields[0], np.array(fields[1:], dtype=np.float32)
        except ValueError:
            return fields[0], None

    @staticmethod
    def _binary(file, size):
        word = bytearray()
        while (c := file.read(1)) not in (b" ", b""):
            if c != b"\n" or word:
                word += c
        return bytes(word), np.frombuffer(file.read(4 * size)[:4 * size], dtype="<f4") if c else None
