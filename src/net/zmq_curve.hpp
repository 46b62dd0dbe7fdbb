// SPDX-License-Identifier: BSD-3-Clause
//
// Encryption and admission of tcp connections, all of them here. An encrypted job has one key pair, made for it by the
// launcher, whose secret half each of its processes reads (job_key.hpp). Each connection is encrypted with keys of its
// own (CURVE), so that what was recorded cannot be read with the job's key later. The side that binds is CURVE's
// server, always; the side that connects proves by the job's public key that it talks to the job, and by the secret one
// that it belongs to it: every bound socket asks a handler of ZeroMQ's authentication protocol, which admits the holder
// of that pair and nobody else, and without a handler admits nobody.
//
// Both sides may use one pair, because each box of the handshake is for another pair of keys or has a nonce with
// another prefix: none can be sent back as another.
//
// Source: CurveZMQ (rfc.zeromq.org/spec/26), ZAP (rfc.zeromq.org/spec/27).
#pragma once

#include <array>
#include <string>
#include <thread>

#include <zmq.hpp>

#include "net/job_key.hpp"

namespace paracel::net {

/// The key pair of a job, in the form that ZeroMQ takes. Thread-safety: const-concurrent.
class zmq_curve {
 public:
  enum class side { bound, connecting };
  /// Bytes that encryption adds to a frame.
  static constexpr std::size_t frame_overhead = 64;

  /// Throws: network_error when ZeroMQ was built without CURVE.
  explicit zmq_curve(const curve_secret& secret);

  /// What this socket binds or connects from now on is encrypted. Throws: network_error if ZeroMQ cannot promise to
  /// admit nobody when the handler is missing.
  void secure(zmq::socket_t& socket, side which) const;

  /// A function of libsodium as libzmq finds it, once ZeroMQ has been started; null: this build of libzmq has none.
  [[nodiscard]] static void* library_function(const char* name) noexcept;

  /// As the client's key arrives in a request of ZAP.
  using public_key = std::array<char, 32>;
  [[nodiscard]] const public_key& open_key() const noexcept { return open_; }

 private:
  static constexpr std::size_t text_size = 41;
  std::array<char, text_size> secret_text_{};
  std::array<char, text_size> open_text_{};
  public_key open_{};
};

/// A thread that answers the authentication requests of a context. Thread-safety: none.
class zmq_admission {
 public:
  /// Before the first secured socket of the context is bound. Throws: network_error.
  zmq_admission(zmq::context_t& context, const zmq_curve& key);
  /// The context has been shut down. Blocks: until the thread ends.
  ~zmq_admission() { thread_.join(); }
  zmq_admission(const zmq_admission&) = delete;
  zmq_admission& operator=(const zmq_admission&) = delete;

 private:
  std::thread thread_;
};

}  // namespace paracel::net
