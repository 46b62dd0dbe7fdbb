// SPDX-License-Identifier: BSD-3-Clause
//
// The C++ side of a Paralg, and what shares its life: arrays, tables and futures hold the job, and find it closed
// instead of gone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <paracel/consistency.hpp>
#include <paracel/detail/saved_state.hpp>
#include <paracel/paralg.hpp>
#include <paracel/types.hpp>

#include "host.hpp"
#include "signatures.hpp"
#include "value.hpp"

namespace paracel::py {

class algorithm final : public paralg {
 public:
  algorithm(const std::string& output, int rounds, const consistency& c) : paralg("", Comm(), output, rounds, c) {}
  void checkpoint_state(saved_state& to) override {
    if (on_save) on_save(to);
  }
  void restore_state(const saved_states& from) override {
    if (on_restore) on_restore(from);
  }
  using parameter_access::bupdate_function;
  using parameter_access::update_function;

  std::function<void(saved_state&)> on_save;
  std::function<void(const saved_states&)> on_restore;
};

/// Thread-safety: with the GIL, on the job's thread.
class job {
 public:
  /// Something that must be destroyed before the algorithm.
  class part {
   public:
    virtual ~part() = default;
    virtual void drop() = 0;
  };

  explicit job(std::unique_ptr<algorithm> of);
  ~job();
  job(const job&) = delete;
  job& operator=(const job&) = delete;

  /// Throws: error when it is closed.
  [[nodiscard]] algorithm& get() const {
    if (algorithm_ == nullptr) throw error("the Paralg is closed");
    return *algorithm_;
  }
  [[nodiscard]] bool closed() const noexcept { return algorithm_ == nullptr; }
  /// The object of Python is gone: checkpoints have nobody to ask any more.
  void forget_owner() noexcept {
    if (algorithm_ == nullptr) return;
    algorithm_->on_save = nullptr;
    algorithm_->on_restore = nullptr;
  }
  /// Waits for updates in flight, unless `failed`. Throws: nothing; leaving the job reports what failed.
  void close(bool failed);
  void enter(part* p) { parts_.insert(p); }
  void remove(part* p) { parts_.erase(p); }
  /// Keeps the target of a read whose future is gone until all requests have been answered.
  void keep_target(std::shared_ptr<void> target) { targets_.push_back(std::move(target)); }
  void all_answered() { targets_.clear(); }

 private:
  std::unique_ptr<algorithm> algorithm_;
  std::unordered_set<part*> parts_;
  std::vector<std::shared_ptr<void>> targets_;
};

/// Every open one.
void close_all_jobs(bool failed);

/// What Python's Paralg is.
struct paralg_object {
  std::shared_ptr<job> of;

  paralg_object() = default;
  paralg_object(const paralg_object&) = delete;
  paralg_object& operator=(const paralg_object&) = delete;
  ~paralg_object() {
    if (of != nullptr) of->forget_owner();
  }
  [[nodiscard]] algorithm& get() const {
    if (of == nullptr) throw error("the Paralg is not initialised: call super().__init__() first");
    return of->get();
  }
};

/// None: the registered one; (file, function) or (file, function, {hyper-parameter: number}).
plugin_function function_of(nb::handle from);
consistency consistency_of(const std::string& model, int staleness);
const char* name_of_model(consistency_model model);

/// The future of a call.
class future_object {
 public:
  using result = std::function<nb::object(bool found)>;
  future_object(std::shared_ptr<job> of, async_result from, std::shared_ptr<void> target = {}, result convert = {})
      : of_(std::move(of)), from_(std::move(from)), target_(std::move(target)), convert_(std::move(convert)) {}
  future_object(future_object&&) = default;
  ~future_object() {
    if (of_ != nullptr && target_ != nullptr && !done_ && !of_->closed()) of_->keep_target(std::move(target_));
  }
  any_result get();
  void wait();
  [[nodiscard]] bool ready();
  [[nodiscard]] const async_result& request() const noexcept { return from_; }

 private:
  std::shared_ptr<job> of_;
  async_result from_;
  std::shared_ptr<void> target_;
  result convert_;
  bool done_ = false;
  shared_object value_;
};

void bind_parameters(nb::class_<paralg_object>& c, nb::module_& m);
void bind_key_sets(nb::class_<paralg_object>& c, nb::module_& m);
void bind_job(nb::class_<paralg_object>& c, nb::module_& m);
void bind_comm(nb::class_<paralg_object>& c, nb::module_& m);
void bind_arrays(nb::module_& m);
void bind_loading(nb::class_<paralg_object>& c, nb::module_& m);
void bind_queue(nb::module_& m);
void bind_schema(nb::module_& m);

}  // namespace paracel::py
