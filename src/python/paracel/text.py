# SPDX-License-Identifier: BSD-3-Clause
"""Words and topics."""
import numpy as np

from paracel._estimator import Parameter, ProgramEstimator, loads, random_state, samples, warm_start
from paracel._docs import complete
from paracel._inputs import Text
from paracel._run import Job, Words, job_of, memory_folder
from paracel._sklearn import NotFittedError, TransformerMixin, check_data, check_is_fitted
from paracel.vectors import WordVectors


def _lines(text):
    """Text, or an iterable of sentences (texts, or lists of words), as the bytes of lines."""
    if isinstance(text, (str, bytes)):
        return Text(text)
    try:
        return Text("".join((s if isinstance(s, str) else " ".join(s)).replace("\n", " ") + "\n" for s in text))
    except TypeError:
        raise ValueError("found text that is neither a str, bytes nor an iterable of sentences, each a str or a list of "
                         "str") from None


def _are_texts(X):
    """Whether they are documents as texts or lists of words, not rows of numbers."""
    if isinstance(X, np.ndarray) or not isinstance(X, (list, tuple)) or not X:
        return isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.kind in "UO" and all(isinstance(d, str) for d in X)
    return all(isinstance(d, str) or (isinstance(d, (list, tuple)) and all(isinstance(w, str) for w in d)) for d in X)


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
    wv : WordVectors
        The vectors by word, with the calls of gensim's.
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
        "loss": Parameter("negative_sampling", "loss", "``negative_sampling`` or ``hierarchical_softmax``, which no fit goes on "
                                                       "from."),
        "negatives": Parameter(5, "negatives", "Other words for each word."),
        "sample": Parameter(0.001, "sample", "Words that are a greater share of the text are thinned out; 0: none."),
        "batch_size": Parameter(0, "batch_size", "Words between two exchanges of vectors; 0: the program's."),
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

    def _config(self):
        config = super()._config()
        if self.loss == "hierarchical_softmax":
            del config["negatives"]
        return config

    def _take(self, model):
        super()._take(model)
        self.words_, self.vectors_ = model.ids["vectors"], model.arrays["vectors"]
        self.wv = WordVectors(self.words_, self.vectors_)

    def _fitted(self):
        if not hasattr(self, "wv"):
            raise NotFittedError(f"this {type(self).__name__} has not been fitted: call fit first")
        return self.wv

    def __contains__(self, word):
        return word in self._fitted()

    def __getitem__(self, word):
        return self._fitted()[word]

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
        return self._fitted().most_similar(positive, negative, topn)


@loads("lda")
class LatentDirichletAllocation(TransformerMixin, ProgramEstimator):
    """Topics of documents, by collapsed Gibbs sampling or online variational inference. Program: ``gLDA``.

    Attributes
    ----------
    words_ : array of str of shape (words,)
        Of documents that are texts: the words, in the order of `components_`.
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
        "sampler": Parameter("sparse", "sampler", "gibbs: ``sparse``, exact, or ``mh``, a Metropolis-Hastings chain."),
        "optimize_every": Parameter(0, "optimize_every", "gibbs: sweeps between two fits of the priors; 0: they stay."),
        "batch_size": Parameter(128, "batch_size", "online: documents between two changes of the topics."),
        "learning_offset": Parameter(10.0, "learning_offset", "online: as scikit-learn's."),
        "learning_decay": Parameter(0.7, "learning_decay", "online: as scikit-learn's."),
        "tol": Parameter(0.0, "tolerance", "End when the likelihood or bound changes by less than this fraction between two "
                                           "reports, which are every 10 sweeps."),
        "warm_start": warm_start("Its counts of words are the start."),
        "random_state": random_state(),
    }

    def fit(self, X, y=None):
        """Fits the model. y is ignored.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (documents, words), or list of documents
            Whole numbers: how often each document has each word. Or texts, or lists of words.

        Returns
        -------
        self
        """
        if _are_texts(X):
            self._take(self._run({"input": _lines(X)}, {"input_format": "text"}))
        else:
            X = check_data(self, X, reset=not self._goes_on())
            self._take(self._run({"input": samples(X)}, {"input_format": "table"}))
        return self

    def _config(self):
        config = super()._config()
        for key in ("sampler", "optimize_every") if self.method == "online" else ("batch_size", "learning_offset",
                                                                                  "learning_decay"):
            del config[key]
        return config

    def _take(self, model):
        super()._take(model)
        words = model.ids["word_topic"]
        if model.manifest["text"]:
            self.words_, self.n_features_in_ = words, len(words)
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
        if self.model_.manifest["text"]:
            if not _are_texts(X):
                raise ValueError("found documents as counts, want texts or lists of words, as those of the fit were")
            documents, count, how = _lines(X), len(X), {"input_format": "text"}
        else:
            X = check_data(self, X, reset=False)
            documents, count, how = samples(X), X.shape[0], {"input_format": "table"}
        with memory_folder() as folder:
            self.model_.write(folder)
            found = Job().run("gLDA", {"model_input": folder, **how}, {"predict_input": documents}, words=self._words())
        shares = np.empty((count, len(self.components_)))
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
