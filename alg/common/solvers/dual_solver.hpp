// SPDX-License-Identifier: BSD-3-Clause
//
// Support vector machines by coordinate ascent on the dual problem: F(w) = |w|^2/2 + sum_i U_i loss(x_i.w, y_i) with
// the hinge loss or the epsilon-insensitive one (U_i = C weight_i). With one dual variable b_i per row
//
//     D(b) = sum_i (y_i b_i - epsilon |b_i|) - |w|^2/2       w = sum_i b_i x_i       D(b) <= F(w), equal at the optimum
//     hinge: y_i b_i in [0, U_i]      epsilon-insensitive: b_i in [-U_i, U_i]
//
// A step is ten passes. In a pass each worker goes through its own rows in random order and sets each b_i to its best
// value; rows at a bound that push against it are left out of the following passes. After every few rows the workers
// sum their changes of w: a direction along which D is a parabola. All of it is taken or, if the changes of different
// workers together overshoot, the part up to the maximum. D never falls; F - D, with the least F so far, bounds the
// distance of F from its minimum.
//
// Source: C.-J. Hsieh, K.-W. Chang, C.-J. Lin, S. Keerthi, S. Sundararajan, "A dual coordinate descent method for
// large-scale linear SVM", ICML 2008; C.-H. Ho, C.-J. Lin, "Large-scale linear support vector regression", JMLR 13,
// 2012; C.-P. Lee, D. Roth, "Distributed box-constrained quadratic optimization for dual linear SVM", ICML 2015 (the
// line search).
#pragma once

#include <vector>

#include "margin_solver.hpp"

namespace paracel::alg {

/// As fit_margins, for a loss with a kink; the bias must be penalised. `start`: the b to begin with, of this worker's
/// rows, within their bounds; null, on every worker: 0. `watch`: with the least F so far. A collective.
/// Cost: after every 512 rows of all workers, every worker sends every other one 12 bytes per changed weight (with
/// dense rows, per weight); a step has about eleven passes, most of them over a part of the rows.
margin_fit fit_dual(paralg& job, const sample_rows& rows, const std::vector<double>& weights, const margin_loss& loss,
                    const margin_settings& settings, const std::vector<double>* start,
                    const optim::validation& held_out, const margin_watch& watch);

}  // namespace paracel::alg
