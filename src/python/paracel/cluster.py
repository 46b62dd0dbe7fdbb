# SPDX-License-Identifier: BSD-3-Clause
"""Clusters."""
import numpy as np

from paracel._estimator import (Parameter, ProgramEstimator, loads, random_state, samples, warm_start, weighed_rows,
                                weight_failures)
from paracel._inputs import Table
from paracel._model import Model
from paracel._sklearn import ClusterMixin, TransformerMixin, check_data, check_is_fitted, check_weight


@loads("kmeans")
class KMeans(ClusterMixin, TransformerMixin, ProgramEstimator):
    """K-means: k-means++ in parallel, then Lloyd's iteration or mini-batches. Program: ``kmeans``.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, features)
    labels_ : array of int of shape (rows,)
    inertia_ : float
    n_iter_ : int

    Examples
    --------
    >>> import paracel
    >>> model = paracel.KMeans(n_clusters=2, random_state=1).fit([[0.0], [1.0], [10.0], [11.0]])
    >>> sorted(model.cluster_centers_.ravel().tolist()), float(model.inertia_)
    ([0.5, 10.5], 1.0)
    """

    _program = "kmeans"
    _expected_failures = weight_failures("the first centres are drawn at random, a row by a function of its number")
    _parameters = {
        "n_clusters": Parameter(8, "kclusters", "Number of centres."),
        "n_init": Parameter(1, "n_init", "Runs from different initial centres, of which the best is kept."),
        "max_iter": Parameter(300, "rounds", "Maximum number of passes over the points."),
        "tol": Parameter(0.0, "tolerance", "End when the inertia decreases by less than this fraction; 0: when no point "
                                           "changes its centre."),
        "batch_size": Parameter(0, "batch_size", "Mini-batches of this many points; 0: none."),
        "metric": Parameter("euclidean", "metric", "``euclidean``, ``cosine``, or for columns latitude and longitude in degrees "
                                                   "``haversine``."),
        "init": Parameter(None, None, "First centres: array of shape (n_clusters, features). None: drawn by k-means||.",
                          type="Any"),
        "warm_start": warm_start("Its centres are the first ones, and `n_init` is 1."),
        "random_state": random_state(),
    }

    _begins = None  # the model of the first centres

    def _centres(self, init):
        centers = np.array(init, dtype=np.float64)
        if centers.shape != (self.n_clusters, self.n_features_in_) or not np.isfinite(centers).all():
            raise ValueError(f"parameter init: found an array of shape {centers.shape}, want finite numbers of shape "
                             f"{(self.n_clusters, self.n_features_in_)}")
        names = getattr(self, "feature_names_in_", np.empty(0)).tolist()
        about = {"algorithm": "kmeans", "settings": {"metric": self.metric}, "names": names}
        return Model(about, {"centers": centers, "counts": np.zeros(len(centers))}, {})

    def fit(self, X, y=None, sample_weight=None):
        """Finds the centres.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (rows, features)
        y : ignored
        sample_weight : array of shape (rows,), optional

        Returns
        -------
        self
        """
        X = check_data(self, X, reset=not self._goes_on())
        if X.shape[0] < self._number("n_clusters"):
            raise ValueError(f"parameter n_clusters: found {self.n_clusters}, want at most n_samples={X.shape[0]}")
        rows, _, weight = weighed_rows(X, None, check_weight(sample_weight, X))
        if self.init is not None and not self._goes_on():
            self._begins = self._centres(self.init)
        try:
            self._take(self._run(self._inputs(rows, weight), {"type": "rows"}))
        finally:
            self.__dict__.pop("_begins", None)
        if rows is not X:
            self.labels_ = np.argmin(self._nearest(X)[0], axis=1).astype(np.int32)
        return self

    def _goes_on(self):
        return super()._goes_on() or self._begins is not None

    def _earlier(self):
        return super()._earlier() if self._begins is None else self._begins

    @staticmethod
    def _inputs(X, weight=None):
        return {"input": samples(X), **({} if weight is None else {"row_weights": Table(weight)})}

    def _take(self, model):
        super()._take(model)
        if "labels" in model.arrays:
            self.labels_ = model.arrays.pop("labels").astype(np.int32)
        self.cluster_centers_ = model.arrays["centers"]
        self.n_features_in_ = self.cluster_centers_.shape[1]
        self.inertia_, self.n_iter_ = model.manifest["objective"], model.manifest["rounds"]

    def save(self, folder):
        """Writes the model into a folder that the program reads with the key ``model``, and `paracel.load_model`."""
        check_is_fitted(self)
        arrays = {**self.model_.arrays, "labels": self.labels_.astype(np.uint64)}
        Model(self._named().manifest, arrays, self.model_.ids).write(folder)

    def _nearest(self, X):
        """Labels and squared distances from the centres."""
        check_is_fitted(self)
        X = check_data(self, X, reset=False)
        centers = self.cluster_centers_
        points = X.toarray() if hasattr(X, "toarray") else np.asarray(X, dtype=np.float64)
        if self.metric == "haversine":
            points, centers = _on_sphere(points), _on_sphere(centers)
        elif self.metric == "cosine":
            length = np.sqrt((points ** 2).sum(axis=1, keepdims=True))
            points = np.divide(points, length, out=np.zeros_like(points), where=length > 0)
        squares = np.stack([((points - c) ** 2).sum(axis=1) for c in centers], axis=1)
        return squares, X.dtype

    def predict(self, X):
        """The number of the nearest centre of each row.

        Returns
        -------
        array of int of shape (rows,)
        """
        return np.argmin(self._nearest(X)[0], axis=1).astype(np.int32)

    def transform(self, X):
        """The distance of each row from each centre; with cosine of the rows of length 1, with haversine through the globe.

        Returns
        -------
        array of shape (rows, n_clusters)
        """
        squares, dtype = self._nearest(X)
        return np.sqrt(squares).astype(dtype if dtype == np.float32 else np.float64)

    def get_feature_names_out(self, input_features=None):
        """Names of the columns of `transform`.

        Returns
        -------
        array of str of shape (n_clusters,)
        """
        check_is_fitted(self)
        return np.array([f"kmeans{k}" for k in range(len(self.cluster_centers_))], dtype=object)

    def score(self, X, y=None, sample_weight=None):
        """Minus the inertia of the rows.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (rows, features)
        y : ignored
        sample_weight : array of shape (rows,), optional

        Returns
        -------
        float
        """
        least = self._nearest(X)[0].min(axis=1)
        return -(least if sample_weight is None else least * np.asarray(sample_weight)).sum()

    def _own_tags(self):
        return {"preserves_dtype": [np.float64, np.float32]}


def _on_sphere(degrees):
    latitude, longitude = np.radians(degrees).T
    return np.stack([np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)], axis=1)


class SpectralClustering(ClusterMixin, ProgramEstimator):
    """Clusters of a graph by the eigenvectors of its normalised Laplacian. Program: ``spectral_clustering``.

    Attributes
    ----------
    labels_ : array of int of shape (vertices,)
        -1: a vertex without edges.
    eigenvalues_ : array of shape (n_clusters,)

    Examples
    --------
    >>> import numpy as np
    >>> import paracel
    >>> two = np.kron(np.eye(2), np.ones((3, 3))) - np.eye(6)  # two triangles
    >>> two[2, 3] = two[3, 2] = 0.1
    >>> a, b = np.split(paracel.SpectralClustering(n_clusters=2).fit(two).labels_, 2)
    >>> len(set(a)), len(set(b)), bool(a[0] != b[0])
    (1, 1, True)
    """

    _program = "spectral_clustering"
    _parameters = {
        "n_clusters": Parameter(8, "kclusters", "Number of clusters, and of eigenvectors."),
        "n_init": Parameter(10, "n_init", "Runs of k-means, of which the best is kept."),
        "max_iter": Parameter(10000, "rounds", "Maximum number of steps for the eigenvectors."),
        "tol": Parameter(1e-10, "tolerance", "Their greatest residual."),
        "random_state": random_state(),
    }

    def fit(self, X, y=None):
        """Finds clusters. y is ignored.

        Parameters
        ----------
        X : SciPy sparse matrix or array of shape (vertices, vertices)
            Weights of the edges, symmetric.

        Returns
        -------
        self
        """
        X = check_data(self, X, reset=True)
        if X.shape[0] != X.shape[1]:
            raise ValueError(f"found X of shape {X.shape}, want a square matrix of weights")
        edges = X.tocoo() if hasattr(X, "tocoo") else None
        rows, columns = (edges.row, edges.col) if edges is not None else np.nonzero(X)
        weights = edges.data if edges is not None else X[rows, columns]
        inputs = {"input": Table(rows, columns, weights), "vertices": Table(np.arange(X.shape[0]))}
        model = self._run(inputs, {"duplicates": "max"})
        self.labels_ = np.full(X.shape[0], -1, dtype=np.int32)
        self.labels_[model.ids["label"].astype(np.int64)] = model.arrays["label"]
        self.eigenvalues_ = model.arrays["eigenvalues"]
        self._take(model)
        return self
