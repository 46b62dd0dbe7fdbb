// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/request_failures.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <paracel/error.hpp>

namespace paracel {

namespace {

// How many failures are kept, after the first of them was thrown, in case their futures are asked.
constexpr std::size_t most_kept_failures = 4096;

}  // namespace

void throw_status(net::status why, const std::string& text, const std::string& doing) {
  const auto line = text.empty() ? doing + ": " + net::name_of(why) : text;
  switch (why) {
    case net::status::not_found:
      throw key_error(line);
    case net::status::type_mismatch:
      throw type_error(line, exit_status::plugin);
    case net::status::plugin_failed:
    case net::status::unknown_function:
      throw plugin_error(line);
    case net::status::deadline_exceeded:
      throw network_error(line, true, exit_status::timeout);
    case net::status::job_ended:
      throw job_error(line, exit_status::failure);
    default:
      throw error(doing + ": " + net::name_of(why) + (text.empty() ? "" : ": " + text));
  }
}

void request_failures::record(sequence number, net::status result, std::string_view text, std::string doing) {
  failed_.push_back({number, {result, text}, std::move(doing), nullptr});
  if (on_failure_) on_failure_(number, nullptr, text_of(failed_.back()));
}

void request_failures::record(sequence number, std::exception_ptr error) {
  failed_.push_back({number, {}, {}, std::move(error)});
  if (on_failure_) on_failure_(number, nullptr, text_of(failed_.back()));
}

void request_failures::record(const std::shared_ptr<shared_update>& u, net::status result, std::string_view text) {
  if (std::ranges::find(joint_, u) != joint_.end()) return;
  u->result = result;
  u->text = text;
  joint_.push_back(u);
  if (on_failure_) on_failure_(0, &u->sent, u->text);
}

std::string request_failures::text_of(const failed_request& f) {
  try {
    raise(f);
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::string request_failures::reason(sequence number) const {
  const auto found = std::ranges::find(failed_, number, &failed_request::number);
  return found == failed_.end() ? "" : text_of(*found);
}

std::string request_failures::reason(const std::vector<sequence>* sent) const {
  const auto found = std::ranges::find(joint_, sent, [](const auto& u) { return &u->sent; });
  return found == joint_.end() ? "" : (*found)->text;
}

void request_failures::raise(const failed_request& f) {
  if (f.error) std::rethrow_exception(f.error);
  throw_status(f.how.result, f.how.text, f.doing);
}

bool request_failures::finish(sequence number) {
  client_.wait(number);
  return number == 0 || take(number);
}

void request_failures::finish(const std::shared_ptr<shared_update>& u) {
  for (const auto s : u->sent) client_.wait(s);
  take(u);
  if (u->result != net::status::ok) throw_status(u->result, u->text, "updating \"" + u->name + "\"");
}

bool request_failures::take(sequence number) {
  if (!missing_.empty() && missing_.erase(number) != 0) return false;
  if (failed_.empty()) return true;
  const auto found = std::ranges::find(failed_, number, &failed_request::number);
  if (found == failed_.end()) return true;
  const auto failed = std::move(*found);
  failed_.erase(found);
  raise(failed);
}

void request_failures::throw_first() {
  const auto joint = std::exchange(joint_, {});
  std::optional<failed_request> first;
  for (auto& f : failed_) {
    if (!std::exchange(f.told, true) && !first) first = f;
  }
  std::erase_if(failed_, [](const auto& f) { return f.number == 0; });  // these have no futures
  if (failed_.size() > most_kept_failures)
    failed_.erase(failed_.begin(), failed_.end() - static_cast<std::ptrdiff_t>(most_kept_failures));
  if (first) raise(*first);
  if (!joint.empty())
    throw_status(joint.front()->result, joint.front()->text, "updating \"" + joint.front()->name + "\"");
}

}  // namespace paracel
