// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "ps/sarray.h"

namespace ps {

/// The type of the elements of an array in a message.
enum DataType { CHAR, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT, DOUBLE, OTHER };

template <class V, class W>
constexpr bool SameType() {
  return std::is_same_v<std::remove_cv_t<V>, W>;
}

template <class V>
constexpr DataType GetDataType() {
  using T = std::remove_cv_t<V>;
  if constexpr (std::is_same_v<T, float>) return FLOAT;
  else if constexpr (std::is_same_v<T, double>) return DOUBLE;
  else if constexpr (std::is_same_v<T, char>) return CHAR;
  else if constexpr (std::is_integral_v<T>) {
    constexpr int log2_size = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return static_cast<DataType>((std::is_signed_v<T> ? INT8 : UINT8) + log2_size);
  } else return OTHER;
}

/// A process of the job, or of a worker process one of its customers that was started.
struct Node {
  static constexpr int kEmpty = -32768;
  enum Role { SERVER, WORKER, SCHEDULER };

  [[nodiscard]] std::string DebugString() const;
  [[nodiscard]] std::string ShortDebugString() const;

  Role role = SCHEDULER;
  int id = kEmpty;
  int customer_id = 0;
  std::string hostname;
  int port = kEmpty;
  bool is_recovery = false;  ///< it has taken the place of one that died
};

/// A message of the system itself.
struct Control {
  enum Command : std::uint8_t { EMPTY, TERMINATE, ADD_NODE, BARRIER, ACK, HEARTBEAT, LEAVE, DEAD, REFUSED };
  [[nodiscard]] bool empty() const { return cmd == EMPTY; }

  Command cmd = EMPTY;
};

struct Meta {
  static constexpr int kEmpty = Node::kEmpty;
  [[nodiscard]] std::string DebugString() const;

  int head = kEmpty;  ///< of a SimpleApp its head, of a KVWorker its cmd
  int app_id = kEmpty;
  int customer_id = kEmpty;
  int timestamp = kEmpty;
  int sender = kEmpty;  ///< node ids
  int recver = kEmpty;
  int priority = 0;
  bool request = false;
  bool push = false;
  bool pull = false;
  bool simple_app = false;
  bool failed = false;        ///< a response to a request that could not be handled: body says why
  std::uint32_t process = 0;  ///< of a request which process sent it; its response has the same
  bool same_keys = false;     ///< a response with the keys of its request, which are not sent again
  std::string body;
  std::vector<DataType> data_type;  ///< of each array
  Control control;
};

struct Message {
  /// Adds an array, without a copy.
  template <class V>
  void AddData(const SArray<V>& values) {
    meta.data_type.push_back(GetDataType<V>());
    data.emplace_back(SArray<char>(values));
  }
  [[nodiscard]] std::string DebugString() const;

  Meta meta;
  std::vector<SArray<char>> data;
};

}  // namespace ps
