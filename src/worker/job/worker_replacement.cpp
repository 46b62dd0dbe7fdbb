// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/worker_replacement.hpp"

#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "net/protocol.hpp"

namespace paracel {

namespace {

constexpr std::size_t most_reported_ranges = 1024;  // in a heartbeat: 40 kB of the longest numbers

const std::string cannot_be_replaced = "a dead worker cannot be replaced (--on-worker-death): ";

}  // namespace

std::optional<recovery_file::commit> worker_replacement::open(options o) {
  options_ = std::move(o);
  if (options_.folder.empty()) return {};
  file_ = std::make_unique<recovery_file>(options_.folder, options_.job, options_.rank, options_.outlives_host);
  return file_->last();
}

void worker_replacement::save(std::size_t part, std::size_t loops) {
  const bool could_be_replaced = obstacle_.empty();
  loop_ends(part);
  if (could_be_replaced && !obstacle_.empty() && options_.rank == 0) warn_of_obstacle();
  if (!parts_.at(part).asked) check_repeatable();
  recovery_file::commit c{
      .clock = clock() + 1, .collectives = collectives_.commit(loops), .cannot = obstacle_, .parts = {}};
  if (c.cannot.empty()) c.cannot = unrecorded_;
  std::string unsaved;
  try {
    if (c.cannot.empty()) c.parts = parts_.to_bytes(part);
  } catch (const std::exception& e) {  // the algorithm's
    unsaved = short_text(e.what());
    c.cannot = "its state cannot be saved: " + unsaved;
  }
  if (auto why = file_->write(c); !why.empty()) unsaved = std::move(why);
  if (std::exchange(unsaved_, unsaved) != unsaved)
    options_.warn(unsaved.empty() ? "its state is saved again: it can be replaced when it dies"
                                  : cannot_be_replaced + "its state cannot be saved: " + unsaved);
  const mutex_lock lock(mutex_);
  reported_ = std::move(c.collectives);
}

/// The servers drop what the clients of a dead process send; a replacement that does not know all of them could not say
/// which.
void worker_replacement::add_client(std::uint64_t id) {
  if (!is_on()) return;
  try {
    return file_->add_client(id);
  } catch (const error& e) {
    unrecorded_ = e.what();
  }
  file_->mark(clock(), unrecorded_);
  options_.warn(cannot_be_replaced + unrecorded_);
}

void worker_replacement::forbid(const std::string& why) {
  if (!obstacle_.empty()) return;
  obstacle_ = why;
  if (is_on()) warn_of_obstacle();
}

void worker_replacement::warn_of_obstacle() const { options_.warn(cannot_be_replaced + obstacle_); }

// ---- collectives, messages, loops -----------------------------------------------------------------------------------

std::uint64_t worker_replacement::next_collective() {
  const auto number = collectives_.next();
  if (is_on()) check_caught_up();
  return number;
}

std::uint64_t worker_replacement::next_message(std::uint32_t rank, bool is_sent) {
  if (std::exchange(messages_clock_, clock()) != clock()) message_counts_.clear();
  return message_counts_[{rank, is_sent}]++;
}

void worker_replacement::loop_begins(std::size_t part) {
  if (!parts_.at(part).asked) loop_begins_of(part);
}

std::size_t worker_replacement::loop_begins_of(std::size_t part) {
  (void)parts_.asks(part);
  if (!is_on()) return 0;
  const auto loops = collectives_.loop_begins();
  check_caught_up();
  return loops;
}

void worker_replacement::loop_ends(std::size_t part) {
  if (is_on() && obstacle_.empty() && !parts_.at(part).asked)
    obstacle_ = "its program uses neither first_iteration nor resumable_loop";
}

// ---- replacing another process --------------------------------------------------------------------------------------

void worker_replacement::begin_again(std::optional<recovery_file::commit> last, std::uint64_t collectives) {
  is_replacement_ = true;
  if (!is_on()) throw error("the replacement of a dead worker needs the folder with its saved state");
  if (!last) return collectives_.begin_again({}, collectives);
  parts_.from_bytes(last->parts);
  {
    const mutex_lock lock(mutex_);
    reported_ = last->collectives;
  }
  collectives_.begin_again(std::move(last->collectives), collectives);
}

void worker_replacement::take_over(const std::function<std::unique_ptr<server_group>()>& open_client) {
  const auto before = file_->clients();  // without the one that is opened now
  const auto client = open_client();
  const kvclt::call fence{.what = net::verb::fence, .clock = clock()};
  for (;;) {
    client->refresh_membership();
    const auto epoch = client->servers().epoch;
    std::string failure;
    client->broadcast(fence, {}, std::as_bytes(std::span(before)), [&](const kv_result& r) {
      if (!r.ok()) failure = r.text();
    });
    client->refresh_membership();
    if (client->servers().epoch != epoch) continue;  // the head of a partition may have been its replica until now
    if (!failure.empty())
      throw error("a server did not accept the new worker of rank " + std::to_string(options_.rank) + ": " + failure);
    break;
  }
  if (clock() != 0) client->wait(client->clock_request(net::verb::clock_tick, clock(), nullptr));
  check_caught_up();
}

void worker_replacement::check_caught_up() {
  if (collectives_.caught_up()) caught_up_.store(true, std::memory_order_relaxed);
}

void worker_replacement::check_repeatable() {
  if (!is_replacement_ || obstacle_.empty()) return;
  options_.abort("worker " + std::to_string(options_.rank) + " is the replacement of a dead process, and " + obstacle_ +
                 ": what that process had done may count twice");
}

void worker_replacement::report(nlohmann::json& body) const {
  if (!is_on()) return;
  body["caught_up"] = caught_up_.load(std::memory_order_relaxed);
  const mutex_lock lock(mutex_);
  body["collectives"] = {{"again", enclosing_ranges(reported_.ranges, most_reported_ranges)}, {"from", reported_.from}};
}

}  // namespace paracel
