// SPDX-License-Identifier: BSD-3-Clause
//
// One request to the scheduler of a running job, or to a thread of a server, for prun.py and for users: the reply's
// body is printed on stdout.
//
// Exit status: 0 answered, 1 refused (the reason is on stderr), 2 wrong usage, 13 no reply in time.
#include <signal.h>
#include <sys/prctl.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <gflags/gflags.h>

#include <paracel/error.hpp>

#include "net/job_key.hpp"
#include "net/protocol.hpp"
#include "net/rendezvous.hpp"
#include "net/zmq_transport.hpp"

DEFINE_string(rendezvous, "", "address of the scheduler, or of a thread of a server");
DEFINE_string(job, "", "id of the job, 16 hex digits");
DEFINE_string(verb, "stats", "request to send, by its name in the protocol");
DEFINE_string(body, "", "the request's body, JSON; - : read it from standard input");
DEFINE_double(timeout, 3, "seconds to wait for the reply");

// gflags calls this when it cannot parse the command line; it prints the reason on stderr itself.
namespace GFLAGS_NAMESPACE {
extern void (*gflags_exitfunc)(int);
}

namespace {

using namespace paracel;

constexpr std::size_t most_body_bytes = std::size_t{1} << 20;  // as in server/scheduler/control_body.cpp

net::verb verb_named(const std::string& name) {
  for (int v = 1; v < 256; ++v) {
    if (name == net::name_of(static_cast<net::verb>(v))) return static_cast<net::verb>(v);
  }
  throw usage_error("--verb=" + name + ": the protocol has no such verb");
}

/// Command lines can be read by every user of the host.
std::string standard_input() {
  std::string text;
  std::array<char, 1 << 16> piece;
  while (const auto n = std::fread(piece.data(), 1, piece.size(), stdin)) {
    text.append(piece.data(), n);
    if (text.size() > most_body_bytes) throw usage_error("the body is longer than a control message can be");
  }
  return text;
}

int run() {
  if (FLAGS_rendezvous.empty()) throw usage_error("--rendezvous is missing");
  if (!(FLAGS_timeout > 0 && FLAGS_timeout < 1e6)) throw usage_error("--timeout must be a positive number of seconds");
  net::take_job_key();
  net::request_header h;
  h.what = verb_named(FLAGS_verb);
  h.job = net::parse_job_id(FLAGS_job);
  h.sequence = 1;
  h.low_watermark = 1;
  const auto body = FLAGS_body == "-" ? standard_input() : FLAGS_body;
  h.body_bytes = static_cast<std::uint32_t>(body.size());
  net::request_bytes head;
  net::encode(h, head);

  net::zmq_transport over;
  const auto port = over.open();
  port->send(port->connect(FLAGS_rendezvous), {.head = head, .body = net::bytes_of(body)});
  net::incoming in;
  // Counts the time it has waited, not the time it was suspended with the job.
  constexpr std::chrono::milliseconds turn{50};
  for (std::chrono::duration<double> waited{}; waited.count() < FLAGS_timeout; waited += turn) {
    if (!port->receive(in, turn)) continue;
    net::reply_view answer;
    if (const char* wrong = net::decode(in.frame, in.tail.size(), answer); wrong != nullptr)
      throw protocol_error(wrong);
    const auto text = net::text_of(answer.body);
    const bool ok = answer.header.result == net::status::ok;
    auto* const to = ok ? stdout : stderr;
    std::fwrite(text.data(), 1, text.size(), to);
    std::fputc('\n', to);
    return ok ? exit_status::ok : exit_status::failure;
  }
  std::fprintf(stderr, "%s does not answer\n", FLAGS_rendezvous.c_str());
  return exit_status::scheduler_lost;
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the parent waits for the reply
  GFLAGS_NAMESPACE::gflags_exitfunc = [](int status) { std::_Exit(status == 0 ? 0 : exit_status::usage); };
  gflags::SetUsageMessage("one request to the scheduler of a running job");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    const int status = run();
    std::fflush(nullptr);
    std::_Exit(status);  // a transport would wait for a peer that does not exist
  } catch (const error& e) {
    std::fprintf(stderr, "send_request: error: %s\n", e.what());
    return e.status();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "send_request: error: %s\n", e.what());
    return exit_status::failure;
  }
}
