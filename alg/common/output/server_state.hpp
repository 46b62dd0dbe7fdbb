// SPDX-License-Identifier: BSD-3-Clause
//
// For algorithms that keep state in the servers, as in Paracel 0.3, if the config names a plug-in (`update_file`,
// `handle_file`): the config keys, and values that a plug-in function combines from the contributions of all workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>

namespace paracel::alg {

/// A plug-in and its functions as a config names them. Without a file nothing is kept in the servers.
struct state_plugin {
  std::string file{};
  std::vector<std::string> functions{};

  [[nodiscard]] bool given() const noexcept { return !file.empty(); }

  /// The key `functions_key`, a list of strings: names of the first few functions; `defaults`: those that the config
  /// does not name. Call it after k.plugin(file_key, file, ...). Throws: config_error for functions without a plug-in,
  /// which would have no effect, and for more names than `defaults` has.
  void functions_key(key_list& k, const char* file_key, const char* functions_key, const char* help,
                     std::vector<std::string> defaults);
  /// The same with a key of type string for each function.
  struct function_key {
    const char* key;
    const char* fallback;
    const char* help;
  };
  void function_keys(key_list& k, const char* file_key, std::initializer_list<function_key> keys);
};

/// Throws: config_error when one of `keys` is given, because it would have no effect: `key "x": <why>`.
void refuse_keys(const config& from, std::initializer_list<const char*> keys, const std::string& why);

/// Values to which every worker contributes, combined in the servers. A contribution is staged under a key of its
/// round; once all workers have committed, the first in rank order becomes the value, and the plug-in function updates
/// it with the others, in rank order; so the result is the same on every worker and in every run. The constructor
/// switches the paralg to BSP; each round is one of its iterations.
///
/// Thread-safety: none. Lifetime: the paralg must outlive it.
class server_fold {
 public:
  server_fold(paralg& job, std::string file);

  /// A collective. Throws: plugin_error when there is no such function or it fails; type_error when the function
  /// takes other types. Cost: an update, a commit, a read and a removal, each one round trip; the value is sent from
  /// each worker to a server and back.
  template <class V>
  [[nodiscard]] V combine(const std::string& name, const V& mine, const std::string& function) {
    const auto key = name + std::to_string(round_++);
    job_.paracel_update(key, mine, {file_, function});
    job_.iter_commit();
    auto all = job_.template paracel_read<V>(key);
    forget(key);
    return all;
  }

  /// The same with one value per worker: `mine` has this worker's contribution to each. Returns: this worker's value.
  template <class V>
  [[nodiscard]] V combine_own(const std::string& name, const std::vector<V>& mine, const std::string& function) {
    const auto round = '_' + std::to_string(round_++);
    for (std::size_t w = 0; w < mine.size(); ++w)
      job_.paracel_update(name + std::to_string(w) + round, mine[w], {file_, function});
    job_.iter_commit();
    const auto key = name + std::to_string(job_.get_worker_id()) + round;
    auto all = job_.template paracel_read<V>(key);
    forget(key);
    return all;
  }

 private:
  void forget(const std::string& key);

  paralg& job_;
  std::string file_;
  std::string last_;  // the key of the last round, which other workers may still read
  std::uint64_t round_ = 0;
};

}  // namespace paracel::alg
