# SPDX-License-Identifier: BSD-3-Clause
"""Words and topics."""
import os
import shutil

import numpy as np

from paracel._estimator import Parameter, ProgramEstimator, loads, random_state, samples, warm_start
from paracel._docs import complete
from paracel._inputs import Text
from paracel._run import Job, Words, job_of, memory_folder
from paracel._sklearn import NotFittedError, TransformerMixin, check_data, check_is_fitted


def _lines(text):
    """Text, or an iterable of sentences (texts, or lists of words), as the bytes of lines."""
    if isinstance(text, (str, bytes)):
        return Text(text)
    try:
        return Text("".join((s if isinstance(s, str) else " ".join(s)).replace("\n", " ") + "\n" for s in text))
    except TypeError:
        raise ValueError("found text that is neither a str, bytes nor an iterable of sentences, each a str or a list of "
                         "str") from None


@complete
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

    Examples
    --------
    >>> import paracel
    >>> paracel.wc("to be or not to be")
    {'be': 2, 'to': 2, 'not': 1, 'or': 1}
    """
    model = job_of("wc", job).run("wc", {"tokens": tokens, "dump": True}, {"input": _lines(text)}, words=Words("wc"))
    words, counts = model.ids["counts"], model.arrays["counts"]
    order = sorted(range(len(words)), key=lambda i: (-int(counts[i]), str(words[i]).encode(errors="surrogateescape")))
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

    Examples
    --------
    >>> import paracel
    >>> model = paracel.Word2Vec(vector_size=8, min_count=1).fit(["the cat sat", "the dog sat", "a cat ran"] * 20)
    >>> model["cat"].shape, "bird" in model
    ((8,), False)
    """

    _program = "word2vec"
    _parameters = {
        "vector_size": Parameter(100, "k", "Length of a vector."),
        "window": Parameter(5, "window", "Words on each side."),
        "min_count": Parameter(5, "min_count", "Words that occur less often are left out."),
        "method": Parameter("skip_gram", "method", "``skip_gram`` or ``cbow``."),
        "negatives": Parameter(5, "negatives", "Other words for each word."),
        "max_iter": Parameter(5, "rounds", "Passes over the text."),
        "learning_rate": Parameter(None, "alpha", "First step size; None: the program's.", type="float | None"),
        "warm_start": warm_start("Words that it has go on, others begin as new ones."),
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
        topn : int
            How many.

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


@loads("lda")
class LatentDirichletAllocation(TransformerMixin, ProgramEstimator):
    """Topics of documents, by collapsed Gibbs sampling or online variational inference. Program: ``gLDA``.

    Attributes
    ----------
    components_ : array of shape (n_components, words)
        How often each word has each topic.

    Examples
    --------
    >>> import paracel
    >>> counts = [[9, 9, 0, 0], [8, 9, 0, 1], [0, 0, 9, 8], [0, 1, 9, 9]]
    >>> shares = paracel.LatentDirichletAllocation(n_components=2).fit_transform(counts)
    >>> first, second = shares[0].argmax(), shares[3].argmax()
    >>> bool(first != second)
    True
    """

    _program = "gLDA"
    _parameters = {
        "n_components": Parameter(10, "k_topics", "Number of topics."),
        "doc_topic_prior": Parameter(0.1, "alpha", "Prior of a topic in a document."),
        "topic_word_prior": Parameter(0.1, "beta", "Prior of a word in a topic."),
        "method": Parameter("gibbs", "method", "``gibbs`` or ``online``."),
        "max_iter": Parameter(100, "iters", "Sweeps over the documents."),
        "warm_start": warm_start("Its counts of words are the start."),
        "random_state": random_state(),
    }

    def fit(self, X, y=None):
        """Fits the model. y is ignored.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (documents, words)
            Whole numbers: how often each document has each word.

        Returns
        -------
        self
        """
        X = check_data(self, X, reset=not self._goes_on())
        self._take(self._run({"input": samples(X)}, {"input_format": "table"}))
        return self

    def _take(self, model):
        super()._take(model)
        words = model.ids["word_topic"]
        rows = model.arrays["word_topic"].astype(np.float64)
        place = words.astype(np.int64) - 1 if words.dtype != object else np.arange(len(words))
        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = int(place.max()) + 1
        self.components_ = np.zeros((rows.shape[1], self.n_features_in_))
        self.components_[:, place] = rows.T

    def transform(self, X):
        """The share of each topic in each document.

        Returns
        -------
        array of shape (documents, n_components)
        """
        check_is_fitted(self)
        X = check_data(self, X, reset=False)
        if self.model_.manifest["text"]:
            raise ValueError("found a model of words that are texts, want documents as the program reads them: gLDA")
        folder = memory_folder()
        try:
            self.model_.write(os.path.join(folder, "model"))
            config = {"model_input": os.path.join(folder, "model"), "input_format": "table"}
            found = Job().run("gLDA", {**config, "format": "npy"}, {"predict_input": samples(X)}, words=self._words())
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        shares = np.empty((X.shape[0], len(self.components_)))
        shares[found.ids["predictions"].astype(np.int64)] = found.arrays["predictions"]
        return shares

    def get_feature_names_out(self, input_features=None):
        """Names of the columns of `transform`.

        Returns
        -------
        array of str of shape (n_components,)
        """
        check_is_fitted(self)
        return np.array([f"latentdirichletallocation{k}" for k in range(len(self.components_))], dtype=object)
