// SPDX-License-Identifier: BSD-3-Clause
//
// Calls functions of libdeadly_updates.so that end, block or fill their process, while all other workers count.
//
//   sandboxed WAY,WAY,...   worker 0: each way in an update, a bupdate, one of many keys and a filter
//   sandboxed staged WAY    worker 0 stages one update, under BSP
//
// Worker 0 prints the errors that it received, any value that has changed but should not have, and at the end what the
// others have counted, 200 each, with the default function and with a plug-in function that dies in other calls.
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/run.hpp>
#include <paracel/table.hpp>

namespace {

const std::string plugin = "libdeadly_updates.so";

class sandboxed : public paracel::paralg {
 public:
  explicit sandboxed(std::vector<std::string> ways) : paralg(paracel::Comm()), ways_(std::move(ways)) {}

  void solve() override {
    const bool staged = ways_.front() == "staged";
    if (staged) set_consistency(paracel::consistency_model::bsp);
    if (get_worker_id() == 0) {
      for (const auto* key : {"counter", "other counter"}) paracel_write(key, 0.0);
      for (const auto& key : keys_) paracel_write(key, 1.0);
    }
    paracel_sync();
    if (get_worker_id() != 0) {
      for (int i = 0; i < 200 && !staged; ++i) {
        paracel_bupdate("counter", 1.0);
        paracel_bupdate("other counter", 1.0, plugin, "deadly_segv");
      }
    } else if (staged) {
      paracel_update(keys_[1], -1.0, plugin, "deadly_" + ways_.at(1));
    } else {
      for (const auto& way : ways_) die(way);
    }
    iter_commit();
    paracel_sync();
    if (get_worker_id() == 0)
      std::printf("counted %g and %g\n", paracel_read<double>("counter"), paracel_read<double>("other counter"));
  }

 private:
  template <class F>
  void tell(const std::string& what, const F& f) {
    try {
      f();
      std::printf("%s: nothing happened\n", what.c_str());
    } catch (const paracel::plugin_error& e) {
      std::printf("%s: %s\n", what.c_str(), e.what());
    }
    for (const auto& key : keys_) {
      const auto value = paracel_read<double>(key);
      if (value != expected_) std::printf("%s: %s is %g, not %g\n", what.c_str(), key.c_str(), value, expected_);
    }
  }

  void die(const std::string& way) {
    const auto function = "deadly_" + way;
    tell(way + " update", [&] { (void)paracel_update(keys_[1], -1.0, plugin, function).get(); });
    tell(way + " bupdate", [&] { paracel_bupdate(keys_[1], -1.0, plugin, function); });
    tell(way + " filter", [&] { (void)paracel_read_special<double>(plugin, "deadly_filter_" + way); });
    // In a request for many keys the others are updated, as with a function that throws.
    const auto set = paracel_prepare(keys_);
    tell(way + " set", [&] {
      try {
        (void)paracel_update(set, std::vector<double>{1, -1, 1}, {plugin, function}).get();
      } catch (const paracel::plugin_error&) {
        for (const auto i : {0, 2}) paracel_bupdate(keys_[static_cast<std::size_t>(i)], -1.0);
        throw;
      }
    });
  }

  const std::vector<std::string> ways_;
  const std::vector<std::string> keys_{"deadly 0", "deadly 1", "deadly 2"};
  const double expected_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words;
  std::istringstream list(argv[1]);
  for (std::string word; std::getline(list, word, ',');) words.push_back(word);
  if (words.front() == "staged") words.push_back(argv[2]);
  return paracel::run(argc, argv, [&] { sandboxed(words).solve(); });
}
