// SPDX-License-Identifier: BSD-3-Clause
//
// Calls a function of libdeadly_updates.so that terminates its server, and continues with the remaining ones.
//
//   deadly WHAT FUNCTION     WHAT: key | set | rows | filter | staged | many
//
// Worker 0 prints the errors that it got, and at the end the total that all workers have counted with the default
// function, which must be unaffected: 100 each.
#include <cstdio>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/run.hpp>
#include <paracel/table.hpp>

namespace {

const std::string plugin = "libdeadly_updates.so";

class deadly : public paracel::paralg {
 public:
  deadly(std::string what, std::string function)
      : paralg(paracel::Comm()), what_(std::move(what)), function_(std::move(function)) {}

  void solve() override {
    if (what_ == "staged") set_consistency(paracel::consistency_model::bsp);
    const std::vector<std::string> keys{"deadly 0", "deadly 1", "deadly 2"};
    if (get_worker_id() == 0) {
      paracel_write("counter", 0.0);
      for (const auto& k : keys) paracel_write(k, 1.0);
    }
    paracel::table<double> rows(*this, "rows", 2, paracel::row_init::zeros(), {plugin, "deadly_in_place", {}});
    paracel_sync();
    if (what_ == "many" || get_worker_id() == 0) {
      try {
        call(keys, rows);
      } catch (const paracel::error& e) {
        std::printf("worker %zu was told: %s\n", get_worker_id(), e.what());
      }
    }
    for (int i = 0; i < 100; ++i) paracel_update("counter", 1.0);
    iter_commit();
    paracel_sync();
    if (get_worker_id() != 0) return;
    std::printf("counted %g, %s is %g\n", paracel_read<double>("counter"), keys[1].c_str(),
                paracel_read<double>(keys[1]));
  }

 private:
  void call(const std::vector<std::string>& keys, paracel::table<double>& rows) {
    if (what_ == "key") {
      paracel_bupdate(keys[1], -1.0, plugin, function_);
    } else if (what_ == "many") {  // all workers, with other keys too
      for (const auto& k : keys) {
        try {
          paracel_bupdate(k, k == keys[1] ? -1.0 : 1.0, plugin, function_);
        } catch (const paracel::plugin_error&) {
        }
      }
      paracel_bupdate(keys[1], -1.0, plugin, function_);
    } else if (what_ == "set") {
      const auto set = paracel_prepare({keys[1]});
      (void)paracel_update(set, std::vector<double>{-1}, {plugin, function_}).get();
      paracel_bupdate(keys[1], -1.0, plugin, function_);
    } else if (what_ == "rows") {
      const std::vector<std::uint64_t> ids{7};
      rows.bupdate(ids, std::vector<double>{-1, -1});
    } else if (what_ == "filter") {
      (void)paracel_read_special<double>(plugin, function_);
    } else if (what_ == "staged") {
      paracel_update(keys[1], -1.0, plugin, function_);
    }
  }

  const std::string what_, function_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return paracel::run(argc, argv, [&] { deadly(words.at(0), words.at(1)).solve(); });
}
