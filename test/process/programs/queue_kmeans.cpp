// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include <paracel/com_queue.hpp>
#include <paracel/run.hpp>

using numbers = std::vector<double>;
using table = std::vector<numbers>;

/// The row of `centres` nearest to x.
std::size_t nearest(const table& centres, const numbers& x) {
  std::size_t best = 0;
  double least = HUGE_VAL;
  for (std::size_t k = 0; k < centres.size(); ++k) {
    double d = 0;
    for (std::size_t j = 0; j < x.size(); ++j) d += (x[j] - centres[k][j]) * (x[j] - centres[k][j]);
    if (d < least) least = d, best = k;
  }
  return best;
}

/// k-means: the first k rows of the file are the first centres.
table kmeans(paracel::paralg& job, const table& rows, std::size_t k) {
  paracel::com_queue q(job);
  q.init_with_broadcast_data("centres", table(rows.begin(), rows.begin() + std::min(k, rows.size())));
  q.init_with_partitioned_data("rows", std::cref(rows));
  q.add([](paracel::com_context& c) {
    const auto& centres = c.get_obj<table>("centres");
    const auto width = centres[0].size() + 1;  // for each centre the sum of its rows, and their number
    auto& sums = c.put_obj("sums", numbers(centres.size() * width));
    for (const auto& x : c.get_obj<const table>("rows")) {
      auto* sum = &sums[nearest(centres, x) * width];
      for (const double v : x) *sum++ += v;
      ++*sum;
    }
  });
  q.add(paracel::all_reduce("sums"));
  q.add([](paracel::com_context& c) {
    auto& centres = c.get_obj<table>("centres");
    const auto before = centres;
    const auto* sum = c.get_obj<numbers>("sums").data();
    for (auto& centre : centres) {
      const auto n = sum[centre.size()];
      for (auto& v : centre) v = n > 0 ? *sum / n : v, ++sum;
      ++sum;
    }
    c.put_obj("done", before == centres);
  });
  q.set_compare_criterion_of_node0([](paracel::com_context& c) { return c.get_obj<bool>("done"); });
  q.set_max_iter(300);
  q.close_with([](paracel::com_context& c) { return c.get_obj<table>("centres"); });
  return q.exec<table>();
}

int main(int argc, char** argv) {
  return paracel::run(argc, argv, [&] {
    if (argc < 3) throw paracel::usage_error("queue_kmeans FILE K");
    paracel::paralg job{paracel::Comm()};
    table rows;
    for (const auto& line : job.paracel_load(argv[1])) {
      std::istringstream in(line);
      for (auto& row = rows.emplace_back(); in.good(); in.ignore()) in >> row.emplace_back();
    }
    const auto centres = kmeans(job, rows, std::strtoul(argv[2], nullptr, 10));
    if (job.get_worker_id() != 0) return;
    for (const auto& centre : centres) {
      for (const double v : centre) std::printf("%a ", v);
      std::printf("\n");
    }
  });
}
