// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/collective_service.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/reduction.hpp"

namespace paracel::srv {
namespace {

using net::collective_kind;
using net::collective_request;

/// What all ranks must agree on, in words; two ranks agree when the words are the same.
std::string describe(const collective_request& r, std::size_t contribution_bytes) {
  std::string text = name_of(r.kind);
  if (r.kind == collective_kind::reduce) {
    const auto width = element_bytes(r.tag);
    text += std::string(" (") + net::name_of(r.op) + " of " +
            std::to_string(width == 0 ? 0 : contribution_bytes / width) + " " + name_of(element_of(r.tag)) + ")";
  } else if (r.kind == collective_kind::bcast) {
    text += " (from rank " + std::to_string(r.root) + ")";
  }
  return text + " among " + std::to_string(r.size) + " ranks";
}

std::string name_of_operation(std::uint32_t comm, std::uint64_t number) {
  return "collective " + std::to_string(number) + " of communicator " + std::to_string(comm);
}

/// Why this contribution can never be folded, or nullptr.
const char* malformed(const collective_request& r, std::span<const std::byte> bytes) {
  if (r.kind == collective_kind::reduce) {
    if (!is_numeric(r.tag)) return "only arrays of numbers can be reduced";
    if (bytes.size() % element_bytes(r.tag) != 0) return "the length is not a multiple of the element size";
  }
  if (r.kind == collective_kind::alltoall) {
    std::span<const std::byte> block;
    std::uint32_t blocks = 0;
    while (blocks < r.size && net::take_block(bytes, block)) ++blocks;
    if (blocks != r.size || !bytes.empty()) return "all-to-all needs one block for each rank";
  }
  return nullptr;
}

shared_buffer copy_of(std::span<const std::byte> bytes) {
  return bytes.empty() ? shared_buffer{} : shared_buffer::copy_of(bytes);
}

void answer(completion& done, const shared_buffer& bytes, value_tag tag) {
  net::reply_header fields;
  fields.tag = tag;
  answer_with(done, bytes, fields);
}

/// Writes length-prefixed blocks into a buffer whose size is known in advance.
class block_writer {
 public:
  explicit block_writer(std::size_t bytes) : out_(shared_buffer::allocate(bytes)), at_(out_.mutable_data()) {}
  void put(std::span<const std::byte> block) {
    const std::uint64_t size = block.size();
    std::memcpy(at_, &size, 8);
    if (!block.empty()) std::memcpy(at_ + 8, block.data(), block.size());
    at_ += 8 + block.size();
  }
  shared_buffer take() { return std::move(out_); }

 private:
  shared_buffer out_;
  std::byte* at_;
};

}  // namespace

void collective_service::handle(const net::request_view& in, shared_buffer tail, completion done) {
  collective_request r;
  std::span<const std::byte> in_body;
  if (const char* reason = net::decode(in, r, in_body)) return done.fail(net::status::bad_request, reason);
  if (r.size > limits_.max_ranks)
    return done.fail(net::status::bad_request, "a collective among " + std::to_string(r.size) + " ranks: the job has " +
                                                   std::to_string(limits_.max_ranks));
  const auto contribution = tail ? tail.bytes() : in_body;
  if (is_message(r.kind)) return pass_message(r, tail ? std::move(tail) : copy_of(in_body), std::move(done));
  const auto name = name_of_operation(r.comm, r.operation);

  if (kept_ && r.comm == 0 && answer_again(r, contribution.size(), done)) return;
  auto it = open_.find({r.comm, r.operation});
  if (it == open_.end()) {
    if (!make_room()) return done.fail(net::status::too_large, "too many collectives are waiting for other ranks");
    it = open_.try_emplace({r.comm, r.operation}).first;
    it->second.parts.resize(r.size);
    for (auto gone = ejected_.lower_bound({r.comm, 0}); gone != ejected_.end() && gone->first.first == r.comm; ++gone)
      if (gone->first.second < r.size) leave_out(it->second, gone->first.second);
  }
  auto& o = it->second;
  if (const auto gone = ejected_.find({r.comm, r.rank}); gone != ejected_.end())
    return done.fail(net::status::bad_request, gone->second);
  if (r.rank < o.parts.size() && o.parts[r.rank].arrived)
    return done.fail(net::status::bad_request, "rank " + std::to_string(r.rank) + " took part in " + name + " twice");

  if (o.failed.empty()) {
    const char* reason = malformed(r, contribution);
    if (reason != nullptr) fail(o, "rank " + std::to_string(r.rank) + " in " + name + ": " + reason);
  }
  if (o.failed.empty() && parked_bytes_ + contribution.size() > limits_.max_parked_bytes)
    fail(o, name + " is too large: more than " + std::to_string(limits_.max_parked_bytes) +
                " bytes would wait for other ranks");
  if (o.failed.empty()) {
    const auto mine = describe(r, contribution.size());
    std::string others;
    std::string theirs;
    for (std::uint32_t rank = 0; rank < o.parts.size(); ++rank) {
      const auto& p = o.parts[rank];
      if (!p.arrived || p.absent) continue;
      theirs = describe(p.request, p.bytes.size());
      if (theirs == mine) break;  // the first one represents all that were accepted
      others += (others.empty() ? "" : ", ") + std::to_string(rank);
    }
    if (!others.empty())
      fail(o, "the ranks disagree about " + name + ": rank " + std::to_string(r.rank) + " calls " + mine + ", rank " +
                  others + " calls " + theirs);
  }
  if (o.failed.empty()) {
    for (std::uint32_t rank = 0; rank < r.size; ++rank) {
      const auto gone = departed_.find({r.comm, rank});
      if (gone == departed_.end()) continue;
      fail(o,
           "rank " + std::to_string(r.rank) + " calls " + describe(r, contribution.size()) + ", but " + gone->second);
      break;
    }
  }

  ++o.arrived;
  if (!o.failed.empty()) {
    if (r.rank < o.parts.size()) o.parts[r.rank].arrived = true;
    done.fail(net::status::bad_request, o.failed);
    erase_if_all_came(it);
    return;
  }
  auto& mine = o.parts[r.rank];
  mine.arrived = true;
  mine.request = r;
  mine.bytes = tail ? std::move(tail) : copy_of(in_body);
  mine.done = std::move(done);
  parked_bytes_ += mine.bytes.size();
  ++waiting_;
  if (kept_ && r.comm == 0 && o.arrived < o.parts.size()) messages_.calls(r.rank, mine.bytes);
  finish(it);
}

void collective_service::pass_message(const collective_request& r, shared_buffer bytes, completion done) {
  if (!kept_ || r.comm != 0)
    return done.fail(net::status::bad_request,
                     "messages pass through the scheduler only in jobs that replace dead workers");
  const message_log::number n{r.clock, r.operation};
  if (r.kind == collective_kind::send) {
    if (messages_.bytes() + bytes.size() > limits_.max_parked_bytes)
      return done.fail(net::status::too_large,
                       "more than " + std::to_string(limits_.max_parked_bytes) +
                           " bytes of messages would wait for their receivers, or were received "
                           "in iterations that are not committed");
    messages_.send({r.rank, r.root}, n, std::move(bytes));
    return done.ok();
  }
  if (messages_.receive({r.root, r.rank}, n, std::move(done))) return;
  if (const auto gone = departed_.find({r.comm, r.root}); gone != departed_.end())
    return messages_.fail(r.root, "rank " + std::to_string(r.rank) + " waits for a message, but " + gone->second);
  for (const auto& [key, o] : open_)
    if (key.first == 0 && r.root < o.parts.size() && o.parts[r.root].done)
      return messages_.calls(r.root, o.parts[r.root].bytes);
}

/// When all have arrived, answers all and forgets the operation.
void collective_service::finish(operations::iterator it) {
  auto& o = it->second;
  if (o.arrived < o.parts.size()) return;
  if (const auto* first = speaker(o); first != nullptr && o.failed.empty()) {
    const auto name = name_of_operation(it->first.first, it->first.second);
    const auto root = first->request.root;
    if (first->request.kind == collective_kind::bcast && o.parts[root].absent)
      fail(o, name + " is a bcast from rank " + std::to_string(root) + ", but " + ejected_.at({it->first.first, root}));
    else if (largest_answer(o) > limits_.max_answer_bytes)
      fail(o, name + ": the result is larger than " + std::to_string(limits_.max_answer_bytes) + " bytes");
    else complete(it->first, o);
  }
  open_.erase(it);
}

/// The first rank that has contributed, which all others agree with.
const collective_service::part* collective_service::speaker(const operation& o) {
  const auto it = std::ranges::find(o.parts, false, &part::absent);
  return it == o.parts.end() ? nullptr : &*it;
}

void collective_service::leave_out(operation& o, std::uint32_t rank) {
  o.parts[rank].arrived = o.parts[rank].absent = true;
  ++o.arrived;
}

std::size_t collective_service::largest_answer(const operation& o) {
  std::vector<std::size_t> answers;
  const auto kind = speaker(o)->request.kind;
  if (kind == collective_kind::alltoall) answers.assign(o.parts.size(), 8 * o.parts.size());
  else answers.assign(1, kind == collective_kind::allgather ? 8 * o.parts.size() : 0);
  for (const auto& p : o.parts) {
    if (kind == collective_kind::alltoall) {
      auto rest = p.bytes.bytes();
      std::span<const std::byte> block;
      for (std::size_t i = 0; i < answers.size() && net::take_block(rest, block); ++i) answers[i] += block.size();
    } else if (kind == collective_kind::allgather) {
      answers[0] += p.bytes.size();
    } else {
      answers[0] = std::max(answers[0], p.bytes.size());
    }
  }
  return *std::ranges::max_element(answers);
}

/// Answers a collective that is already complete: a rank that calls it now replaces a process that had called it.
bool collective_service::answer_again(const collective_request& r, std::size_t contribution_bytes, completion& done) {
  auto& called = called_[r.rank];
  called = std::max(called, r.operation + 1);
  shared_buffer bytes;
  value_tag tag = value_tag::none;
  std::string why;
  switch (kept_->find(r.operation, r.rank, describe(r, contribution_bytes), bytes, tag, why)) {
    case collective_log::found::no:
      return false;
    case collective_log::found::yes:
      answer(done, bytes, tag);
      return true;
    case collective_log::found::dropped:
    case collective_log::found::differs:
      break;
  }
  done.fail(net::status::bad_request, name_of_operation(r.comm, r.operation) + ": " + why);
  return true;
}

void collective_service::replace(std::uint32_t rank) {
  messages_.replace(rank);
  for (auto& [key, o] : open_) {
    if (key.first != 0 || rank >= o.parts.size()) continue;
    auto& p = o.parts[rank];
    if (!p.done) continue;
    parked_bytes_ -= p.bytes.size();
    --waiting_;
    --o.arrived;
    p = {};  // the process that is gone gets a reply that is never read
  }
}

void collective_service::complete(const operation_key& key, operation& o) {
  auto& parts = o.parts;
  const auto first = speaker(o)->request;
  const bool keeps = kept_.has_value() && key.first == 0;
  const auto what = keeps ? describe(first, parts[first.rank].bytes.size()) : std::string();
  std::vector<shared_buffer> own;  // to be logged
  const auto answer_all = [&](const shared_buffer& bytes, value_tag tag) {
    for (auto& p : parts)
      if (!p.absent) answer(p.done, bytes, tag);
    if (keeps) kept_->keep(key.second, what, tag, bytes);
  };
  for (const auto& p : parts) {
    parked_bytes_ -= p.bytes.size();
    waiting_ -= p.absent ? 0 : 1;
  }
  switch (first.kind) {
    case collective_kind::barrier:
      for (auto& p : parts)
        if (!p.absent) p.done.ok();
      if (keeps) kept_->keep(key.second, what, value_tag::none, {});
      break;
    case collective_kind::bcast:
      answer_all(parts[first.root].bytes, parts[first.root].request.tag);
      break;
    case collective_kind::reduce: {
      // The first contribution's memory becomes the result, unless it is shared.
      auto& from = parts[first.rank].bytes;
      auto result = from.unique() ? std::move(from) : copy_of(from.bytes());
      const auto element = element_of(first.tag);
      const std::span into(result.mutable_data(), result.size());
      for (std::size_t rank = first.rank + 1; rank < parts.size(); ++rank)
        if (!parts[rank].absent) fold(element, into, parts[rank].bytes.bytes(), first.op);
      answer_all(result, first.tag);
      break;
    }
    case collective_kind::allgather: {
      std::size_t total = 0;
      for (const auto& p : parts) total += 8 + p.bytes.size();
      block_writer out(total);
      for (const auto& p : parts) out.put(p.bytes.bytes());
      answer_all(out.take(), value_tag::none);
      break;
    }
    case collective_kind::alltoall: {
      // rest[r] iterates over rank r's row; each column takes the next block of every row.
      std::vector<std::span<const std::byte>> rest;
      std::vector<std::span<const std::byte>> column(parts.size());
      for (const auto& p : parts) rest.push_back(p.bytes.bytes());
      for (auto& p : parts) {
        std::size_t total = 0;
        for (std::size_t rank = 0; rank < parts.size(); ++rank) {
          // Checked on arrival; an absent rank has none.
          [[maybe_unused]] const bool whole = net::take_block(rest[rank], column[rank]);
          total += 8 + column[rank].size();
        }
        block_writer out(total);
        for (const auto& block : column) out.put(block);
        const auto mine = out.take();
        if (!p.absent) answer(p.done, mine, value_tag::none);
        if (keeps) own.push_back(mine);
      }
      if (keeps) kept_->keep(key.second, what, value_tag::none, {}, std::move(own));
      break;
    }
    case collective_kind::send:
    case collective_kind::receive:
      break;  // handled by pass_message
  }
}

void collective_service::fail(operation& o, std::string text) {
  o.failed = std::move(text);
  for (auto& p : o.parts) {
    if (!p.done) continue;
    p.done.fail(net::status::bad_request, o.failed);
    parked_bytes_ -= p.bytes.size();
    p.bytes = {};
    --waiting_;
  }
}

void collective_service::erase_if_all_came(operations::iterator it) {
  if (it->second.arrived >= it->second.parts.size()) open_.erase(it);
}

/// Makes room for one more operation by dropping a failed one. A rank that still calls that one reopens it and waits,
/// which takes a program whose ranks disagree thousands of times.
bool collective_service::make_room() {
  if (open_.size() < limits_.max_operations) return true;
  for (auto it = open_.begin(); it != open_.end(); ++it) {
    if (it->second.failed.empty()) continue;
    open_.erase(it);
    return true;
  }
  return false;
}

void collective_service::fail_all(net::status why, std::string_view text) {
  for (auto& [key, o] : open_)
    for (auto& p : o.parts)
      if (p.done) p.done.fail(why, text);
  messages_.fail_all(why, text);
  open_.clear();
  waiting_ = 0;
  parked_bytes_ = 0;
}

void collective_service::depart(std::uint32_t comm, std::uint32_t rank, const std::string& who) {
  departed_[{comm, rank}] = who;
  for (auto it = open_.lower_bound({comm, 0}); it != open_.end() && it->first.first == comm; ++it) {
    auto& o = it->second;
    if (!o.failed.empty() || rank >= o.parts.size() || o.parts[rank].arrived) continue;
    fail(o, name_of_operation(comm, it->first.second) + " waits for rank " + std::to_string(rank) + ", but " + who);
  }
  if (comm == 0) messages_.fail(rank, "a message is awaited from rank " + std::to_string(rank) + ", but " + who);
}

void collective_service::eject(std::uint32_t comm, std::uint32_t rank, const std::string& who) {
  if (!ejected_.emplace(std::pair(comm, rank), who).second) return;
  for (auto it = open_.lower_bound({comm, 0}); it != open_.end() && it->first.first == comm;) {
    const auto here = it++;
    auto& o = here->second;
    if (rank >= o.parts.size() || o.parts[rank].arrived) continue;
    leave_out(o, rank);
    finish(here);
  }
}

}  // namespace paracel::srv
