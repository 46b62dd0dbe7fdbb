// SPDX-License-Identifier: BSD-3-Clause
#include "worker/comm/comm_scheduler.hpp"

#include <algorithm>
#include <utility>

#include "worker/comm/comm_group.hpp"
#include "worker/comm/stealing_messages.hpp"
#include "worker/job/peer_channels.hpp"

namespace paracel {

session& comm_scheduler::job() {
  if (!job_) job_ = find_job_();
  return *job_;
}

template <class Write>
std::span<const std::byte> comm_scheduler::exchange(net::collective_request& r, std::size_t bytes, Write&& write) {
  job().refuse_collective_of_command();  // before a number is used up
  r.operation = job_->replacement().next_collective();
  return ask(r, bytes, std::forward<Write>(write));
}

template <class Write>
std::span<const std::byte> comm_scheduler::ask(net::collective_request& r, std::size_t bytes, Write&& write) {
  r.rank = static_cast<std::uint32_t>(rank_);
  r.size = static_cast<std::uint32_t>(size_);
  net::request_header h;
  const auto front = net::encode(r, bytes, h);
  message_.assign(front.begin(), front.end());
  shared_buffer tail;
  if (net::travels_as_tail(bytes)) {
    tail = shared_buffer::allocate(bytes);
    write(tail.mutable_data());
  } else {
    message_.resize(front.size() + bytes);
    write(message_.data() + front.size());
  }
  const auto& answer = job_->ask(h, message_, std::move(tail));
  return job_->answer_tail() ? job_->answer_tail().bytes() : answer.body;
}

std::span<const std::byte> comm_scheduler::exchange(net::collective_request& r, std::span<const std::byte> mine) {
  return exchange(r, mine.size(), [&](std::byte* to) { std::ranges::copy(mine, to); });
}

std::vector<byte_vector> comm_scheduler::blocks_of(std::span<const std::byte> bytes) const {
  std::vector<byte_vector> out;
  std::span<const std::byte> block;
  while (net::take_block(bytes, block)) out.emplace_back(block.begin(), block.end());
  if (!bytes.empty() || out.size() != size_) throw protocol_error("a collective's result does not fit its ranks");
  return out;
}

void comm_scheduler::barrier() {
  net::collective_request r;
  exchange(r, {});
}

void comm_scheduler::bcast(byte_vector& data, std::size_t root) {
  net::collective_request r;
  r.kind = net::collective_kind::bcast;
  r.root = static_cast<std::uint32_t>(root);
  r.tag = value_tag::packed;
  const auto got = exchange(r, rank_ == root ? std::span<const std::byte>(data) : std::span<const std::byte>{});
  if (rank_ != root) data.assign(got.begin(), got.end());
}

void comm_scheduler::allreduce(value_tag element, std::span<std::byte> data, reduce_op op) {
  net::collective_request r;
  r.kind = net::collective_kind::reduce;
  r.op = op;
  r.tag = static_cast<value_tag>(static_cast<unsigned>(element) | 0x10U);
  const auto got = exchange(r, data);
  if (got.size() != data.size()) throw protocol_error("allreduce: the result has another length");
  std::ranges::copy(got, data.begin());
}

std::vector<byte_vector> comm_scheduler::allgather(std::span<const std::byte> mine) {
  net::collective_request r;
  r.kind = net::collective_kind::allgather;
  return blocks_of(exchange(r, mine));
}

std::vector<byte_vector> comm_scheduler::alltoall(const std::vector<byte_vector>& blocks) {
  net::collective_request r;
  r.kind = net::collective_kind::alltoall;
  // This rank's own block is not sent, and the others' are written once, straight into the message.
  const auto travels = [&](std::size_t w) {
    return w == rank_ ? std::span<const std::byte>() : std::span<const std::byte>(blocks[w]);
  };
  std::size_t bytes = 0;
  for (std::size_t w = 0; w < blocks.size(); ++w) bytes += 8 + travels(w).size();
  auto got = blocks_of(exchange(r, bytes, [&](std::byte* to) {
    for (std::size_t w = 0; w < blocks.size(); ++w) to = net::write_block(to, travels(w));
  }));
  got[rank_] = blocks[rank_];
  return got;
}

std::span<const std::byte> comm_scheduler::exchange_message(net::collective_kind kind, std::size_t other,
                                                            std::span<const std::byte> mine) {
  net::collective_request r;
  r.kind = kind;
  r.root = static_cast<std::uint32_t>(other);
  r.clock = job().finished();
  r.operation = job_->replacement().next_message(r.root, kind == net::collective_kind::send);
  return ask(r, mine.size(), [&](std::byte* to) { std::ranges::copy(mine, to); });
}

void comm_scheduler::send_kept(std::size_t to, std::span<const std::byte> bytes) {
  exchange_message(net::collective_kind::send, to, bytes);
}

logged_collectives::kept_message comm_scheduler::receive_kept(std::size_t from) {
  const auto got = exchange_message(net::collective_kind::receive, from, {});
  return {byte_vector(got.begin(), got.end()), job_->answer().header.count != 0};
}

/// Messages of work stealing may be lost with a worker that dies.
peer_channels& comm_scheduler::channels_for(const message_address& a) {
  return is_of_stealing(a) ? job().channels() : job().peers();
}

void comm_scheduler::send(const message_address& to, byte_vector bytes, bool waits, patience limit) {
  channels_for(to).send(to, shared_buffer::holding(std::move(bytes)), waits, limit);
}

comm_backend::ticket comm_scheduler::post(const message_address& from) { return channels_for(from).post(from); }

void comm_scheduler::give_up(ticket t) noexcept {
  if (job_) job_->channels().give_up(t);
}

std::optional<received_message> comm_scheduler::take(ticket t, patience limit) {
  if (!runs_commands()) return job().channels().take(t, limit);
  const peer_channels::side_work commands{
      session::command_interval, [this](const std::function<bool()>& waits) { job_->take_commands_in_barrier(waits); }};
  return job_->channels().take(t, limit, commands);
}

bool comm_scheduler::is_gone(std::size_t rank) { return job().channels().is_gone(static_cast<std::uint32_t>(rank)); }

/// Data in shared memory is lost with a worker: a replacement could not repeat it.
shared_memory* comm_scheduler::memory() {
  job().refuse_collective_of_command();
  if (job_->survives_deaths()) return nullptr;
  memory_.allowed = job_->shares_memory();
  return &memory_;
}

bool comm_scheduler::in_barrier(bool begins) {
  barriers_ += begins ? 1 : -1;
  return job().accepts_commands();
}

bool comm_scheduler::runs_commands() const { return barriers_ > 0 && job_ && job_->accepts_commands(); }

std::chrono::microseconds comm_scheduler::attends_every() const {
  return runs_commands() ? session::command_interval : comm_backend::attends_every();
}

/// A rank that has passed a barrier may send a command that relies on it. A group's memory is not known here.
void comm_scheduler::attend(std::size_t rank, bool doubts) {
  if (runs_commands())
    job_->take_commands_in_barrier([this, rank] {
      const auto* const all = memory_.all.get();
      return all == nullptr || !all->has_published(rank, all->step());
    });
  job().channels().attend(static_cast<std::uint32_t>(rank), doubts);
}

/// The group's messages go through another communicator of all ranks, like this one.
std::shared_ptr<comm_backend> comm_scheduler::split(int color) {
  return comm_group::of_color(std::make_shared<comm_scheduler>(rank_, size_, find_job_), *this, 0, splits_++, color,
                              {});
}

}  // namespace paracel
