# SPDX-License-Identifier: BSD-3-Clause
"""Words."""
import numpy as np

from paracel._estimator import Parameter, ProgramEstimator, loads, random_state
from paracel._inputs import Text
from paracel._run import Job, Words
from paracel._sklearn import NotFittedError


def _lines(text):
    """Text, or an iterable of sentences (texts, or lists of words), as the bytes of lines."""
    if isinstance(text, (str, bytes)):
        return Text(text)
    return Text("".join((s if isinstance(s, str) else " ".join(s)).replace("\n", " ") + "\n" for s in text))


def wc(text, *, tokens="space", **job):
    """Counts words.

    Parameters
    ----------
    text : str, bytes or iterable of str
    tokens : str
        ``space``: runs of bytes that are not white space; ``paracel``: of ``[-A-Za-z0-9_]``.

    Returns
    -------
    dict of str to int
        The most frequent first, equally frequent ones by their bytes.
    """
    model = Job(**job).run("wc", {"tokens": tokens, "dump": True}, {"input": _lines(text)}, words=Words("wc"))
    words, counts = model.ids["counts"], model.arrays["counts"]
    order = sorted(range(len(words)), key=lambda i: (-int(counts[i]), str(words[i]).encode()))
    return {str(words[i]): int(counts[i]) for i in order}


@loads("word2vec")
class Word2Vec(ProgramEstimator):
    """Word vectors by skip-gram or CBOW. Program: ``word2vec``.

    ``model["word"]`` is a vector, ``"word" in model`` whether there is one.

    Attributes
    ----------
    words_ : array of str of shape (words,)
        The most frequent first.
    vectors_ : array of float32 of shape (words, vector_size)
    """

    _program = "word2vec"
    _parameters = {
        "vector_size": Parameter(100, "k", "Length of a vector."),
        "window": Parameter(5, "window", "Words on each side."),
        "min_count": Parameter(5, "min_count", "Words that occur less often are left out."),
        "method": Parameter("skip_gram", "method", "``skip_gram`` or ``cbow``."),
        "negatives": Parameter(5, "negatives", "Other words for each word."),
        "max_iter": Parameter(5, "rounds", "Passes over the text."),
        "learning_rate": Parameter(None, "alpha", "First step size; None: the program's."),
        "random_state": random_state(),
    }

    def fit(self, X, y=None):
        """Fits the model. y is ignored.

        Parameters
        ----------
        X : str, bytes or iterable of sentences
            A line is a sentence; of an iterable each element, a text or a list of words.

        Returns
        -------
        self
        """
        self._take(self._run({"input": _lines(X)}))
        return self

    def _take(self, model):
        super()._take(model)
        self.words_, self.vectors_ = model.ids["vectors"], model.arrays["vectors"]
        self._place = {word: i for i, word in enumerate(self.words_.tolist())}

    def __contains__(self, word):
        return word in self._fitted()

    def __getitem__(self, word):
        return self.vectors_[self._fitted()[word]]

    def _fitted(self):
        if not hasattr(self, "_place"):
            raise NotFittedError(f"this {type(self).__name__} has not been fitted: call fit first")
        return self._place

    def most_similar(self, positive, negative=(), topn=10):
        """The words whose vectors have the greatest cosine with the sum of the positive ones less that of the negative ones.

        Parameters
        ----------
        positive, negative : word or list of words

        Returns
        -------
        list of (word, cosine)
        """
        positive, negative = ([w] if isinstance(w, str) else list(w) for w in (positive, negative))
        place = self._fitted()
        unit = self.vectors_ / np.linalg.norm(self.vectors_, axis=1, keepdims=True)
        target = sum(unit[place[w]] for w in positive) - sum((unit[place[w]] for w in negative), np.zeros(unit.shape[1]))
        cosines = unit @ target / np.linalg.norm(target)
        cosines[[place[w] for w in [*positive, *negative]]] = -np.inf
        best = np.argsort(-cosines, kind="stable")[:topn]
        return [(str(self.words_[i]), float(cosines[i])) for i in best if np.isfinite(cosines[i])]
