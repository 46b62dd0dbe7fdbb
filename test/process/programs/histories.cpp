// SPDX-License-Identifier: BSD-3-Clause
//
// Workers read and change a few shared keys, one operation at a time, and record each operation, its reply, and when it
// was sent and answered. Afterwards each key's history is checked for linearizability.
//
//   histories FOLDER SECONDS KEYS     the job: worker r writes FOLDER/r
//   histories check FILE...           exit status 0 if the histories in the files are linearizable, 1 otherwise
//
//   line of a file     s key kind argument expected sent     before an operation is sent
//                      a result answered                     when it is answered; none if the worker died before
//
// All values of a key are distinct: the upper bits of written values are unique, and added values are positive. So a
// value identifies the change that produced it, and a compare-and-swap can be described by values: it expects the
// version with which a value was read.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>

#include "test/support/linearizability.hpp"

namespace {

using steady = std::chrono::steady_clock;
using paracel::test::never;
using paracel::test::timed;

struct operation {
  char kind = 0;              // r read, w write, a add, i add and get, c compare and swap
  std::int64_t argument = 0;  // written or added
  std::int64_t expected = 0;  // of c: the value read with the version; 0: the key did not exist
  std::int64_t result = 0;    // read, or the new value; of c: 1 or 0
  bool answered = false;
};

/// Whether the operation, executed on a key with this value (0: missing), gives the recorded reply.
bool explains(std::int64_t& value, const operation& o) {
  switch (o.kind) {
    case 'r':
      return value == o.result;
    case 'w':
      value = o.argument;
      return true;
    case 'a':
      value += o.argument;
      return true;
    case 'i':
      value += o.argument;
      return !o.answered || value == o.result;
    case 'c': {
      const bool fits = value == o.expected;
      if (fits) value = o.argument;
      return !o.answered || fits == (o.result != 0);
    }
    default:
      return false;
  }
}

// ---- the job --------------------------------------------------------------------------------------------------------

class prober : public paracel::paralg {
 public:
  prober(const std::string& folder, double seconds, int keys)
      : paralg(paracel::Comm()), seconds_(seconds), keys_(keys), random_(get_worker_id() + 1) {
    const auto path = folder + "/" + std::to_string(get_worker_id());
    file_ = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (file_ < 0) throw paracel::error("cannot write " + path);
  }
  ~prober() override { ::close(file_); }
  prober(const prober&) = delete;
  prober& operator=(const prober&) = delete;

  void solve() override {
    paracel_sync();
    const auto end = steady::now() + std::chrono::duration<double>(seconds_);
    std::vector<std::uint64_t> version(static_cast<std::size_t>(keys_));
    std::vector<std::int64_t> seen(version.size());  // with that version
    for (std::int64_t n = 1; steady::now() < end; ++n) {
      const auto k = random_() % version.size();
      const auto key = std::string("k").append(std::to_string(k));
      const auto fresh = ((static_cast<std::int64_t>(get_worker_id() + 1) << 20) + n) << 24;
      const auto little = static_cast<std::int64_t>(random_() % 1000 + 1);
      switch (random_() % 6) {
        case 0:
        case 1:
          begin(k, 'r', 0, 0);
          seen[k] = 0;
          version[k] = paracel_read_version(key, seen[k]);
          end_with(seen[k]);
          break;
        case 2:
          begin(k, 'w', fresh, 0);
          paracel_write(key, fresh);
          end_with(0);
          break;
        case 3:
          begin(k, 'a', little, 0);
          paracel_update(key, little).get();
          end_with(0);
          break;
        case 4: {
          begin(k, 'i', little, 0);
          end_with(paracel_incr(key, little));
          break;
        }
        default: {
          begin(k, 'c', fresh, seen[k]);
          auto expected = version[k];
          end_with(paracel_cas(key, expected, fresh) ? 1 : 0);
        }
      }
      if (n == 1 && get_worker_id() == 0) report_progress({1, 1, 0});
    }
    paracel_sync();
    auto longest = longest_;
    get_comm().allreduce(longest, paracel::reduce_op::max);
    if (get_worker_id() == 0) std::printf("longest operation %.3f s\n", longest);
  }

 private:
  static std::int64_t now() { return steady::now().time_since_epoch().count(); }

  void begin(std::size_t key, char kind, std::int64_t argument, std::int64_t expected) {
    sent_ = now();
    std::array<char, 128> line;
    const int n = std::snprintf(line.data(), line.size(), "s %zu %c %lld %lld %lld\n", key, kind,
                                static_cast<long long>(argument), static_cast<long long>(expected),
                                static_cast<long long>(sent_));
    put(line.data(), n);
  }
  void end_with(std::int64_t result) {
    const auto at = now();
    longest_ = std::max(longest_, static_cast<double>(at - sent_) * 1e-9);
    std::array<char, 64> line;
    const int n = std::snprintf(line.data(), line.size(), "a %lld %lld\n", static_cast<long long>(result),
                                static_cast<long long>(at));
    put(line.data(), n);
  }
  /// Each line is passed to the system immediately, so that it survives if the worker is killed.
  void put(const char* line, int bytes) const {
    if (::write(file_, line, static_cast<std::size_t>(bytes)) != bytes) throw paracel::error("cannot write a history");
  }

  double seconds_;
  int keys_;
  std::mt19937_64 random_;
  int file_ = -1;
  std::int64_t sent_ = 0;
  double longest_ = 0;
};

// ---- the check ------------------------------------------------------------------------------------------------------

/// By key: each client's operations on it, in order.
using histories = std::map<std::size_t, std::vector<std::vector<timed<operation>>>>;

/// Returns: the number of operations. Throws: data_error with file and line.
std::size_t read(const char* path, std::size_t client, std::size_t clients, histories& into) {
  std::ifstream file(path);
  if (!file) throw paracel::data_error(std::string(path) + ": cannot be opened");
  std::size_t operations = 0;
  std::size_t number = 0;
  timed<operation>* open = nullptr;
  for (std::string text; std::getline(file, text);) {
    ++number;
    std::istringstream line(text);
    char what = 0;
    line >> what;
    if (what == 's') {
      std::size_t key = 0;
      timed<operation> o;
      line >> key >> o.operation.kind >> o.operation.argument >> o.operation.expected >> o.sent;
      o.answered = never;
      auto& of_key = into[key];
      of_key.resize(clients);
      open = &of_key[client].emplace_back(o);
      ++operations;
    } else if (what == 'a' && open != nullptr) {
      line >> open->operation.result >> open->answered;
      open->operation.answered = true;
      open = nullptr;
    } else {
      line.setstate(std::ios::failbit);
    }
    // A worker may have been killed while writing its last line.
    if (!line && !file.eof())
      throw paracel::data_error(std::string(path) + ":" + std::to_string(number) + ": not a line");
  }
  return operations;
}

/// Unanswered reads carry no information.
void leave_out_unknown_reads(histories& of) {
  for (auto& [key, clients] : of) {
    for (auto& client : clients) {
      std::erase_if(client, [](const auto& o) { return o.answered == never && o.operation.kind == 'r'; });
    }
  }
}

int check(int count, char** files) {
  histories all;
  std::size_t operations = 0;
  for (int f = 0; f < count; ++f) {
    operations += read(files[f], static_cast<std::size_t>(f), static_cast<std::size_t>(count), all);
  }
  leave_out_unknown_reads(all);
  bool good = operations != 0;
  for (const auto& [key, clients] : all) {
    if (paracel::test::is_linearizable(clients, std::int64_t{0}, explains)) continue;
    std::printf("key %zu: no order explains what was seen\n", key);
    good = false;
  }
  std::printf("%s: %zu operations, %zu keys\n", good ? "linearizable" : "NOT linearizable", operations, all.size());
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 2 && std::strcmp(argv[1], "check") == 0) return check(argc - 2, argv + 2);
    paracel::main_env environment(argc, argv);
    if (argc < 4) {
      std::fprintf(stderr, "histories: error: want histories FOLDER SECONDS KEYS, or histories check FILE...\n");
      return 2;
    }
    prober(argv[1], std::atof(argv[2]), std::atoi(argv[3])).solve();
    return 0;
  } catch (const paracel::error& e) {
    std::fprintf(stderr, "histories: error: %s\n", e.what());
    return e.status();
  }
}
