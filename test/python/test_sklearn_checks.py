#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""scikit-learn's own checks of all estimators: with Debian's scikit-learn, and the newest one.

    test_sklearn_checks.py             all estimators
    test_sklearn_checks.py NAME ...    some

An expected failure that passes is a failure. Every public estimator is in TESTED or in EXCLUDED; those of TESTED with expected
failures (`_expected_failures` of the class) have at most six, each with its reason. The number of checks is asserted: a tag may
silently leave most of them out.
"""
import functools
import os
import subprocess
import sys
import traceback
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import NEWEST, PYTHON, in_package, in_site  # noqa: E402

in_package("sklearn")

import paracel  # noqa: E402
import sklearn  # noqa: E402
from paracel._estimator import ProgramEstimator  # noqa: E402
from sklearn.utils import estimator_checks  # noqa: E402

# By scikit-learn's version: how many checks it has for each. Of a version that is not listed: at least as many as of the
# newest one that is, less a tenth.
CHECKS = {
    (1, 2): {
        "BernoulliNB": 50, "ElasticNet": 47, "FactorizationMachineClassifier": 51, "FactorizationMachineRegressor":
        47, "GaussianNB": 50, "GradientBoostingClassifier": 50, "GradientBoostingRegressor": 46, "KMeans": 44,
        "Lasso": 47, "LinearSVC": 51, "LinearSVR": 47, "LogisticRegression": 51, "MultinomialNB": 51,
        "RandomForestClassifier": 50, "RandomForestRegressor": 46, "Ridge": 47, "SoftmaxRegression": 51,
        "TruncatedSVD": 34,
    },
    (1, 9): {
        "BernoulliNB": 63, "ElasticNet": 60, "FactorizationMachineClassifier": 65, "FactorizationMachineRegressor":
        60, "GaussianNB": 63, "GradientBoostingClassifier": 63, "GradientBoostingRegressor": 59, "KMeans": 58,
        "Lasso": 60, "LinearSVC": 64, "LinearSVR": 60, "LogisticRegression": 64, "MultinomialNB": 64,
        "RandomForestClassifier": 63, "RandomForestRegressor": 59, "Ridge": 60, "SoftmaxRegression": 64,
        "TruncatedSVD": 47,
    },
}
# Where the defaults are not meant for the checks' few rows, or end too early for what they compare.
PARAMETERS = {
    "GradientBoostingClassifier": {"min_samples_leaf": 5},
    "GradientBoostingRegressor": {"min_samples_leaf": 5},
    "LinearSVR": {"tol": 1e-9},
    "LogisticRegression": {"tol": 1e-10},
    "SoftmaxRegression": {"tol": 1e-10},
}
EXCLUDED = {
    "ALS": "fit takes users, items and ratings, or their matrix",
    "GradientBoostingRanker": "fit needs the rows' groups, which the checks do not have",
    "LatentDirichletAllocation": "documents are whole counts of words; the checks have fractions",
    "MatrixFactorization": "fit takes users, items and ratings, or their matrix",
    "SpectralClustering": "fit takes the weights of a graph's edges, a square matrix",
    "Word2Vec": "fit takes text",
}
MOST_FAILURES = 6


def estimators():
    """All public ones."""
    public = (getattr(paracel, name) for name in dir(paracel) if not name.startswith("_"))
    return {c.__name__: c for c in public if isinstance(c, type) and issubclass(c, ProgramEstimator)}


def checks_of(estimator):
    """The checks of an estimator, as (name, function)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(estimator_checks, "estimator_checks_generator"):
            pairs = list(estimator_checks.estimator_checks_generator(estimator))
        else:
            pairs = [(e, c) for e, c in estimator_checks.check_estimator(_without_expected(estimator), generate_only=True)]
    for checked, check in pairs:
        yield _name(check), functools.partial(check, checked)


def _without_expected(estimator):
    """Of scikit-learn below 1.6, whose generator would skip the expected failures instead of running them."""
    estimator_checks._maybe_skip = lambda _, check: check
    return estimator


def _name(check):
    """The function's name and its arguments, if there are any."""
    while hasattr(check, "__wrapped__"):
        check = check.__wrapped__
    if isinstance(check, functools.partial):
        more = ",".join(f"{k}={v}" for k, v in check.keywords.items())
        return check.func.__name__ + (f"({more})" if more else "")
    return check.__name__


class SklearnChecks(unittest.TestCase):
    only = None

    def test_each_estimator_is_in_one_list(self):
        wanted = CHECKS[max(CHECKS)].keys()
        self.assertEqual(sorted([*wanted, *EXCLUDED]), sorted(estimators()))

    def test_expected_failures_are_few_and_have_reasons(self):
        for name, cls in estimators().items():
            with self.subTest(name):
                self.assertLessEqual(len(cls._expected_failures), MOST_FAILURES)
                for check, reason in cls._expected_failures.items():
                    self.assertGreater(len(reason), 20, check)

    def test_checks(self):
        version = tuple(int(n) for n in sklearn.__version__.split(".")[:2])
        for name, cls in estimators().items():
            if name in EXCLUDED or (self.only and name not in self.only):
                continue
            with self.subTest(name):
                self.check(name, cls, version)

    def check(self, name, cls, version):
        failed, ran, left = [], 0, dict(cls._expected_failures)
        for check, run in checks_of(cls(**PARAMETERS.get(name, {}))):
            ran += 1
            plain = check.partition("(")[0]
            expected = check if check in cls._expected_failures else plain
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    run()
            except unittest.SkipTest:
                continue
            except Exception:
                if expected not in cls._expected_failures:
                    failed.append(f"{check}:\n{traceback.format_exc(limit=-6)}")
                left.pop(expected, None)
                continue
        failed += [f"{check} passes, want it to fail: {reason}" for check, reason in left.items()
                   if not self.of_other_version(check)]
        print(f"{name}: {ran} checks, {len(cls._expected_failures) - len(left)} fail as expected, {len(failed)} failed")
        sys.stdout.flush()
        if version in CHECKS:
            self.assertEqual(ran, CHECKS[version][name], "number of checks")
        else:
            self.assertGreaterEqual(ran, 0.9 * CHECKS[max(CHECKS)][name], "number of checks")
        self.assertEqual(failed, [], "\n".join(failed))

    @staticmethod
    def of_other_version(check):
        """Whether this scikit-learn has no such check."""
        return not hasattr(estimator_checks, check.partition("(")[0])


def main():
    SklearnChecks.only = [a for a in sys.argv[1:] if not a.startswith("-")]
    print(f"scikit-learn {sklearn.__version__}")
    done = unittest.main(argv=sys.argv[:1], exit=False)
    status = 0 if done.result.wasSuccessful() else 1
    if os.environ.get("PARACEL_TEST_NEWEST"):
        return status
    if not os.path.isdir(NEWEST):
        print(f"the newest scikit-learn is not tested: no {NEWEST}, which tool/setup.sh --test creates")
        return status
    newest = subprocess.run([PYTHON, "-B", *sys.argv], env=in_site(NEWEST, PARACEL_TEST_NEWEST="1"), check=False)
    return status or newest.returncode


if __name__ == "__main__":
    sys.exit(main())
