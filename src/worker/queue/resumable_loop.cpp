// SPDX-License-Identifier: BSD-3-Clause
//
// What a checkpoint stores for a loop, in the saved state of its paralg:
//
//     loop.<n>.done          iterations done
//     loop.<n>.stopped       whether it had ended before its limit
//     loop.<n>.kept.<name>   its variables
//     loop.<n>.<i>.<m>. ...  the same for the m-th loop inside its iteration i
//
// n and m count from 0 and have ten digits, so that names sort in the order of the loops.
#include <paracel/resumable_loop.hpp>

#include <algorithm>

#include <paracel/paralg.hpp>

namespace paracel {
namespace {

std::string numbered(const std::string& before, std::size_t n) {
  const auto digits = std::to_string(n);
  return before + std::string(digits.size() < 10 ? 10 - digits.size() : 0, '0') + digits + ".";
}

}  // namespace

void resumable_loop::refuse_missing(const std::string& name) {
  throw error("the checkpoint has no \"" + name + "\" for this loop: it is of another version of this program");
}

resumable_loop::~resumable_loop() {
  if (open_ && job_ != nullptr) std::erase(job_->open_loops_, this);
}

resumable_loop& resumable_loop::keep_with(saver save, restorer restore) {
  if (begun_) throw error("resumable_loop: keep() was called after the loop had begun");
  kept_.emplace_back(std::move(save), std::move(restore));
  return *this;
}

void resumable_loop::begin() {
  begun_ = true;
  open_ = true;
  if (job_ == nullptr) return;
  auto* outer = job_->open_loops_.empty() ? nullptr : job_->open_loops_.back();
  siblings_ = outer != nullptr ? numbered(outer->prefix_, static_cast<std::size_t>(outer->done_)) : paralg::loop_prefix;
  prefix_ = numbered(siblings_, outer != nullptr ? outer->loops_inside_++ : job_->loops_++);
  level_ = job_->begin_loop();
  commits_ = always_ || job_->commits_matter();
  auto& known = job_->loop_state_;
  if (known.get(prefix_ + "done", done_)) {
    if (!job_->loop_state_is_own_ && !same_)
      throw config_error(
          "the checkpoint is of a different number of workers, whose parts of this computation cannot be "
          "redistributed among " +
          std::to_string(job_->get_worker_size()));
    known.get(prefix_ + "stopped", stopped_);
    for (const auto& [save, restore] : kept_) restore(known, prefix_ + "kept.");
    known.erase(prefix_ + "kept.");
    resumed_ = true;
  }
  job_->open_loops_.push_back(this);
}

bool resumable_loop::is_first() const { return job_ == nullptr || prefix_ == numbered(paralg::loop_prefix, 0); }

void resumable_loop::save(saved_state& to) const {
  to.put(prefix_ + "done", done_);
  to.put(prefix_ + "stopped", stopped_);
  for (const auto& [save, restore] : kept_) save(to, prefix_ + "kept.");
}

void resumable_loop::commit() {
  if (job_ != nullptr) job_->loop_state_.erase(numbered(prefix_, static_cast<std::size_t>(done_)));  // loops inside it
  loops_inside_ = 0;
  ++done_;
  if (commits_) job_->commit_loop(level_);
}

void resumable_loop::finish() {
  open_ = false;
  if (commits_) save(job_->loop_state_);
  if (job_ != nullptr) std::erase(job_->open_loops_, this);
}

bool resumable_loop::next(std::int64_t limit) {
  if (!begun_) begin();
  else if (!open_) return false;
  if (running_) commit();
  if (stopped_ || done_ >= limit) {
    finish();
    return false;
  }
  // With a higher limit than before the loop continues, and what followed it is repeated.
  if (!std::exchange(running_, true) && job_ != nullptr)
    job_->loop_state_.erase_between(prefix_ + "~", siblings_ + "~");
  return true;
}

}  // namespace paracel
