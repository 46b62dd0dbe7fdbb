// SPDX-License-Identifier: BSD-3-Clause
//
// What a checkpoint saves of a worker in addition to the parameters: named values, of every type that can be a
// parameter, and the states of random engines.
//
//   void checkpoint_state(saved_state& to) override { to.put("loss", loss_); to.put("order", order_); }
//   void restore_state(const saved_states& from) override {
//     if (from.same_workers()) from.own().get("loss", loss_) && from.own().get("order", order_);
//   }
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/detail/value.hpp>
#include <paracel/error.hpp>

namespace paracel {

/// Thread-safety: none.
class saved_state {
 public:
  /// Replaces an existing value of that name.
  template <class T>
  void put(const std::string& name, const T& value) {
    const encoded<T> e(value);
    const auto v = e.view();
    values_[name] = {v.tag, {v.bytes.begin(), v.bytes.end()}};
  }
  /// False, with `into` unchanged: no value has this name. Throws: type_error when it has another type.
  template <class T>
  bool get(const std::string& name, T& into) const {
    const auto at = values_.find(name);
    if (at == values_.end()) return false;
    into = decode<T>({at->second.first, at->second.second});
    return true;
  }
  [[nodiscard]] bool contains(const std::string& name) const { return values_.contains(name); }
  /// Puts a value that is already encoded.
  void put_value(const std::string& name, const value_view& v) {
    values_[name] = {v.tag, {v.bytes.begin(), v.bytes.end()}};
  }
  /// `visitor(name, value)` for all values whose name begins with `prefix`, in name order.
  template <class F>
  void visit(const std::string& prefix, F&& visitor) const {
    for (auto at = values_.lower_bound(prefix); at != values_.end() && at->first.starts_with(prefix); ++at)
      visitor(at->first, value_view{at->second.first, at->second.second});
  }
  /// Removes the values whose name begins with `prefix`.
  void erase(const std::string& prefix) {
    std::erase_if(values_, [&](const auto& v) { return v.first.starts_with(prefix); });
  }
  /// Removes the values whose name is in [first, end), in string order.
  void erase_between(const std::string& first, const std::string& end) {
    values_.erase(values_.lower_bound(first), values_.lower_bound(end));
  }

  /// An engine of <random>: its state, not its seed. (counter_random needs none: it is made from seed, stream and row.)
  template <class Engine>
  void put_random(const std::string& name, const Engine& engine) {
    std::ostringstream text;
    text << engine;
    put(name, text.str());
  }
  template <class Engine>
  bool get_random(const std::string& name, Engine& into) const {
    std::string text;
    if (!get(name, text)) return false;
    std::istringstream in(text);
    in >> into;
    if (!in) throw type_error("\"" + name + "\" is not the state of this kind of random engine");
    return true;
  }

  /// For the framework: the encoding in a checkpoint, drawn in src/storage/README.md.
  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  /// Throws: protocol_error for anything that `to_bytes` does not write.
  static saved_state from_bytes(std::span<const std::byte> bytes);

 private:
  std::map<std::string, std::pair<value_tag, std::vector<std::byte>>> values_;
};

/// The saved states of a checkpoint's workers.
class saved_states {
 public:
  /// `all`: only this worker's if the number of workers is unchanged.
  saved_states(std::vector<saved_state> all, bool same_workers) : all_(std::move(all)), same_workers_(same_workers) {
    if (all_.empty()) all_.emplace_back();
  }
  /// Whether the job has as many workers as when the checkpoint was made; then each may restore its own.
  [[nodiscard]] bool same_workers() const noexcept { return same_workers_; }
  /// This worker's own; that of rank 0 if the number of workers has changed.
  [[nodiscard]] const saved_state& own() const noexcept { return all_.front(); }
  /// If the number of workers has changed, those of all workers of the checkpoint, by rank. One that had left saved
  /// nothing.
  [[nodiscard]] const std::vector<saved_state>& all() const noexcept { return all_; }

 private:
  std::vector<saved_state> all_;
  bool same_workers_;
};

}  // namespace paracel
