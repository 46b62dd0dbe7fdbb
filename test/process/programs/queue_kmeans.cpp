// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdio>
#include <sstream>

#include <paracel/com_queue.hpp>
#include <paracel/run.hpp>

using table = std::vector<std::vector<double>>;

int main(int argc, char** argv) {  // queue_kmeans FILE K: the first K rows of whole numbers are the first centres
  return paracel::run(argc, argv, [&] {
    paracel::paralg job{paracel::Comm()};
    table rows;
    for (const auto& line : job.paracel_load(argv[1])) {
      std::istringstream in(line);
      for (auto& row = rows.emplace_back(); in.good(); in.ignore()) in >> row.emplace_back();
    }
    paracel::com_queue q(job);
    q.init_with_broadcast_data("centres", table(rows.begin(), rows.begin() + std::min<long>(std::stol(argv[2]), rows.size())));
    q.init_with_partitioned_data("rows", rows);
    q.add([](paracel::com_context& c) {  // of each centre: the sum of the rows that are nearest to it, and their number
      const auto& centres = c.get_obj<table>("centres");
      const auto width = centres[0].size();
      auto& sums = c.put_obj("sums", std::vector<double>(centres.size() * (width + 1)));
      for (const auto& row : c.get_obj<const table>("rows")) {
        const auto distance = [&](const std::vector<double>& centre) {
          double sum = 0;
          for (std::size_t j = 0; j < width; ++j) sum += (row[j] - centre[j]) * (row[j] - centre[j]);
          return sum;
        };
        auto* to = &sums[(std::ranges::min_element(centres, {}, distance) - centres.begin()) * (width + 1)];
        for (std::size_t j = 0; j < width; ++j) to[j] += row[j];
        ++to[width];
      }
    });
    q.add(paracel::all_reduce("sums"));
    q.add([](paracel::com_context& c) { 
      auto& centres = c.get_obj<table>("centres");
      const auto before = centres;
      const auto* sum = c.get_obj<std::vector<double>>("sums").data();
      for (auto& centre : centres) {
        const auto n = sum[centre.size()];
        for (auto& x : centre) x = *sum++ / n;
        ++sum;
      }
      c.put_obj("moved", before != centres);
    });
    q.set_compare_criterion_of_node0([](paracel::com_context& c) { return !c.get_obj<bool>("moved"); });
    q.close_with([](paracel::com_context& c) { return c.get_obj<table>("centres"); });
    const auto centres = q.exec<table>();
    if (job.get_worker_id() != 0) return;
    for (const auto& centre : centres)
      for (const double x : centre) std::printf("%a%c", x, &x == &centre.back() ? '\n' : ' ');
  });
}
