// SPDX-License-Identifier: BSD-3-Clause
#include "worker/comm/comm_backend.hpp"

namespace paracel {

namespace {
[[noreturn]] void without_messages() { throw error("this communicator has neither messages nor split"); }
}  // namespace

void comm_backend::send(const message_address&, byte_vector, bool, patience) { without_messages(); }
comm_backend::ticket comm_backend::post(const message_address&) { without_messages(); }
void comm_backend::give_up(ticket) noexcept {}
std::optional<received_message> comm_backend::take(ticket, patience) { without_messages(); }
std::shared_ptr<comm_backend> comm_backend::split(int) { without_messages(); }
void comm_backend::attend(std::size_t, bool) { without_messages(); }

}  // namespace paracel
