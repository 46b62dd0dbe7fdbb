// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/comm.hpp>

namespace paracel {

namespace {
[[noreturn]] void without_messages() { throw error("this communicator has collectives only: no messages, no split"); }
}  // namespace

void comm_backend::send(const message_address&, byte_vector, bool, patience) { without_messages(); }
comm_backend::ticket comm_backend::post(const message_address&) { without_messages(); }
void comm_backend::give_up(ticket) noexcept {}
std::optional<received_message> comm_backend::take(ticket, patience) { without_messages(); }
std::shared_ptr<comm_backend> comm_backend::split(int) { without_messages(); }
void comm_backend::send_kept(std::size_t, std::span<const std::byte>) { without_messages(); }
comm_backend::kept_message comm_backend::receive_kept(std::size_t) { without_messages(); }
bool comm_backend::is_gone(std::size_t) { without_messages(); }
void comm_backend::attend(std::size_t, bool) { without_messages(); }
void comm_backend::begin_exchange(std::span<const std::span<const std::byte>>, std::span<const std::span<std::byte>>) {
  without_messages();
}
std::optional<std::size_t> comm_backend::finish_exchange(patience) { without_messages(); }

}  // namespace paracel
