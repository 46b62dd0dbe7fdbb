// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ps/base.h"
#include "ps/internal/key_store.h"
#include "ps/simple_app.h"

namespace ps {

/// Keys in ascending order, each once, and their values: the i-th has lens[i] elements of vals, or without lens
/// vals.size() / keys.size().
template <class Val>
struct KVPairs {
  SArray<Key> keys;
  SArray<Val> vals;
  SArray<int> lens;
  int priority = 0;
};

namespace internal {

inline constexpr std::size_t most_copied_at_once = std::size_t{1} << 20U;  // bytes, by the thread that receives

/// Throws: dmlc::Error that says what is wrong with the lengths. `has_values`: there must be values for all keys.
template <class Val>
void check_lengths(const KVPairs<Val>& kvs, bool has_values, const char* where) {
  const auto n = kvs.keys.size();
  if (!kvs.lens.empty()) {
    CHECK_EQ(kvs.lens.size(), n) << where << ": want one length for each key";
    std::size_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      CHECK_GE(kvs.lens[i], 0) << where << ": lens[" << i << ']';
      sum += static_cast<std::size_t>(kvs.lens[i]);
    }
    if (has_values) CHECK_EQ(sum, kvs.vals.size()) << where << ": the lengths do not add up to the number of values";
  } else if (has_values) {
    CHECK(n == 0 ? kvs.vals.empty() : kvs.vals.size() % n == 0)
        << where << ": " << kvs.vals.size() << " values for " << n << " keys, and no lengths";
  }
}

/// The same, and for keys that do not ascend. Cost: a comparison a key.
template <class Val>
void check_pairs(const KVPairs<Val>& kvs, bool has_values, const char* where) {
  const auto* k = kvs.keys.data();
  std::size_t descents = 0;
  for (std::size_t i = 1; i < kvs.keys.size(); ++i) descents += static_cast<std::size_t>(k[i] <= k[i - 1]);
  if (descents > 0) {
    std::size_t i = 1;
    while (k[i] > k[i - 1]) ++i;
    LOG(FATAL) << where << ": keys[" << i << "] is " << k[i] << " after " << k[i - 1]
               << ": want unique keys in ascending order";
  }
  check_lengths(kvs, has_values, where);
}

/// Sends the arrays of a request or a response. Returns: whether the receiver can be reached.
template <class Val>
bool send_pairs(Message& m, const KVPairs<Val>& kvs) {
  if (!kvs.keys.empty()) {
    if (!m.meta.same_keys) m.AddData(kvs.keys);
    m.AddData(kvs.vals);
    if (!kvs.lens.empty()) m.AddData(kvs.lens);
  }
  return Postoffice::Get()->van()->Send(m) >= 0;
}

template <class T>
SArray<T> array_in(const Message& m, std::size_t i, const char* what) {
  CHECK_LT(i, m.data.size()) << "a message without " << what;
  CHECK_EQ(static_cast<int>(m.meta.data_type[i]), static_cast<int>(GetDataType<T>())) << "another type of " << what;
  return SArray<T>(m.data[i]);
}

/// The arrays of a message; `keys`: of its request. Throws: dmlc::Error when they cannot be those of a KVPairs<Val>.
template <class Val>
KVPairs<Val> pairs_in(const Message& m, const SArray<Key>& keys = {}) {
  KVPairs<Val> kvs;
  kvs.priority = m.meta.priority;
  if (m.data.empty()) return kvs;
  std::size_t i = 0;
  kvs.keys = m.meta.same_keys ? keys : array_in<Key>(m, i++, "keys");
  kvs.vals = array_in<Val>(m, i++, "values");
  if (i < m.data.size()) kvs.lens = array_in<int>(m, i++, "lengths");
  CHECK_EQ(i, m.data.size()) << "a message with more arrays than keys, values and lengths";
  return kvs;
}

}  // namespace internal

/// A worker's end: pushes and pulls values by key, each to and from the server that has the key.
///
/// Push, Pull and PushPull copy what they send; with ZPush, ZPull and ZPushPull the arrays are shared until the request
/// is finished, and must not change. All return the request's timestamp at once. Requests of one KVWorker reach a
/// server in the order of the calls. A callback runs on the customer's thread when the request has succeeded, before
/// Wait returns. Thread-safety: any thread. Throws: dmlc::Error for keys that do not ascend, and lengths that do not
/// fit. Cost: of a call, O(keys), and one message to each server that has one of them, and back.
template <class Val>
class KVWorker : public SimpleApp {
 public:
  using Callback = std::function<void()>;
  using SlicedKVs = std::vector<std::pair<bool, KVPairs<Val>>>;
  /// Fills sliced with what each server gets (whether it gets anything, and which).
  using Slicer = std::function<void(const KVPairs<Val>& send, const std::vector<Range>& ranges, SlicedKVs* sliced)>;

  KVWorker(int app_id, int customer_id) {
    slicer_ = [](const KVPairs<Val>& send, const std::vector<Range>& ranges, SlicedKVs* sliced) {
      DefaultSlicer(send, ranges, sliced);
    };
    obj_ = new Customer(
        app_id, customer_id, [this](const Message& m) { Process(m); }, [this](const Message& m) { return Quick(m); });
  }
  explicit KVWorker(int app_id) : KVWorker(app_id, 0) {}
  ~KVWorker() override {
    delete obj_;
    obj_ = nullptr;
  }

  int Push(const std::vector<Key>& keys, const std::vector<Val>& vals, const std::vector<int>& lens = {}, int cmd = 0,
           const Callback& cb = nullptr, int priority = 0) {
    return ZPush(SArray<Key>(keys), SArray<Val>(vals), SArray<int>(lens), cmd, cb, priority);
  }
  /// `vals` is resized if it is empty, and must otherwise have the right size; likewise lens.
  int Pull(const std::vector<Key>& keys, std::vector<Val>* vals, std::vector<int>* lens = nullptr, int cmd = 0,
           const Callback& cb = nullptr, int priority = 0) {
    return Start({SArray<Key>(keys), {}, {}, priority}, false, true, cmd, cb, output_of(vals), output_of(lens));
  }
  int PushPull(const std::vector<Key>& keys, const std::vector<Val>& vals, std::vector<Val>* outs,
               std::vector<int>* lens = nullptr, int cmd = 0, const Callback& cb = nullptr, int priority = 0) {
    CHECK_NOTNULL(outs);
    if (!outs->empty()) CHECK_EQ(outs->size(), vals.size()) << "PushPull: outs and vals differ in size";
    SArray<int> given;
    if (lens != nullptr) given = SArray<int>(*lens);
    return Start({SArray<Key>(keys), SArray<Val>(vals), given, priority}, true, true, cmd, cb, output_of(outs),
                 output_of(lens));
  }
  int ZPush(const SArray<Key>& keys, const SArray<Val>& vals, const SArray<int>& lens = {}, int cmd = 0,
            const Callback& cb = nullptr, int priority = 0) {
    return Start({keys, vals, lens, priority}, true, false, cmd, cb, {}, {});
  }
  int ZPull(const SArray<Key>& keys, SArray<Val>* vals, SArray<int>* lens = nullptr, int cmd = 0,
            const Callback& cb = nullptr, int priority = 0) {
    return Start({keys, {}, {}, priority}, false, true, cmd, cb, output_of(vals), output_of(lens));
  }
  int ZPushPull(const SArray<Key>& keys, const SArray<Val>& vals, SArray<Val>* outs, SArray<int>* lens = nullptr,
                int cmd = 0, const Callback& cb = nullptr, int priority = 0) {
    KVPairs<Val> kvs{keys, vals, {}, priority};
    if (lens != nullptr) kvs.lens = *lens;
    return Start(std::move(kvs), true, true, cmd, cb, output_of(outs), output_of(lens));
  }
  /// Blocks: until the request is finished. Throws: paracel::error when a server has died, or could not handle it.
  void Wait(int timestamp) override {
    try {
      obj_->WaitRequest(timestamp);
    } catch (...) {
      obj_->Settle();  // nothing is written to the caller's memory any more
      const std::lock_guard lock(mutex_);
      pending_.erase(timestamp);
      throw;
    }
  }
  /// How keys are divided among the servers from the next call on.
  void set_slicer(const Slicer& slicer) {
    CHECK(slicer);
    const std::lock_guard lock(mutex_);
    slicer_ = slicer;
  }

 private:
  /// Where pulled elements go: returns the memory for so many of them, null if the array has become `whole`, which may
  /// be null.
  template <class T>
  using Output = std::function<T*(std::size_t n, const SArray<T>* whole)>;
  template <class C>
  static auto output_of(C* to) {
    using T = std::remove_pointer_t<decltype(to->data())>;
    if (to == nullptr) return Output<T>();
    return Output<T>([to](std::size_t n, [[maybe_unused]] const SArray<T>* whole) -> T* {
      if constexpr (std::is_same_v<C, SArray<T>>) {
        if (whole != nullptr && to->capacity() == 0) {
          *to = *whole;
          return nullptr;
        }
      }
      if (to->empty()) to->resize(n);
      CHECK_EQ(to->size(), n) << "the array to pull into has the wrong size";
      return to->data();
    });
  }
  struct Pending {
    bool pull = false;
    Callback callback;
    Output<Val> vals;
    Output<int> lens;
    SArray<Key> keys;
    SlicedKVs sent;  // of which only the keys are needed
    std::vector<KVPairs<Val>> received;
    std::size_t responses = 0;
    std::size_t bytes = 0;  // of the responses that are here
  };

  static void DefaultSlicer(const KVPairs<Val>& send, const std::vector<Range>& ranges, SlicedKVs* sliced) {
    sliced->resize(ranges.size());
    const std::size_t n = send.keys.size();
    const bool has_values = !send.vals.empty();
    const std::size_t width = has_values && send.lens.empty() && n > 0 ? send.vals.size() / n : 0;
    std::size_t key = 0, value = 0;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      // The last range includes its end, the largest key.
      const auto end = i + 1 == ranges.size()
                           ? n
                           : static_cast<std::size_t>(std::lower_bound(send.keys.begin() + key, send.keys.end(),
                                                                       static_cast<Key>(ranges[i].end())) -
                                                      send.keys.begin());
      auto& [used, kvs] = (*sliced)[i];
      used = end > key;
      if (used) {
        kvs.keys = send.keys.segment(key, end);
        std::size_t values = width * (end - key);
        if (!send.lens.empty()) {
          kvs.lens = send.lens.segment(key, end);
          values = std::accumulate(kvs.lens.begin(), kvs.lens.end(), std::size_t{0},
                                   [](std::size_t sum, int l) { return sum + static_cast<std::size_t>(l); });
        }
        if (has_values) kvs.vals = send.vals.segment(value, value + values);
        value += values;
      }
      kvs.priority = send.priority;
      key = end;
    }
  }

  int Start(KVPairs<Val> kvs, bool push, bool pull, int cmd, const Callback& cb, Output<Val> vals, Output<int> lens) {
    internal::check_pairs(kvs, push, push ? (pull ? "KVWorker::PushPull" : "KVWorker::Push") : "KVWorker::Pull");
    const auto& servers = Postoffice::Get()->GetNodeIDs(kServerGroup);
    const int timestamp = obj_->NewRequest(kServerGroup);
    auto pending = std::make_shared<Pending>();
    std::size_t skipped = 0;
    try {
      const std::lock_guard lock(mutex_);
      slicer_(kvs, Postoffice::Get()->GetServerKeyRanges(), &pending->sent);
      CHECK_EQ(pending->sent.size(), servers.size()) << "the slicer returned parts for the wrong number of servers";
      for (const auto& part : pending->sent) skipped += part.first ? 0 : 1;
      pending->pull = pull;
      pending->callback = cb;
      pending->vals = std::move(vals);
      pending->lens = std::move(lens);
      pending->keys = kvs.keys;
      pending->received.resize(servers.size());
      pending->responses = skipped;
      if (skipped < servers.size()) pending_[timestamp] = pending;
    } catch (const std::exception& e) {
      obj_->Fail(timestamp, e.what());
      throw;
    }
    // The last response finishes the request, on the customer's thread; if there is none, this thread does.
    for (std::size_t i = 0; i < servers.size() && skipped < servers.size(); ++i)
      if (!pending->sent[i].first) obj_->AddResponseOf(timestamp, servers[i]);
    if (skipped == servers.size()) {
      Finish(timestamp, *pending);
      for (const int server : servers) obj_->AddResponseOf(timestamp, server);
    }
    for (std::size_t i = 0; i < servers.size(); ++i) {
      if (!pending->sent[i].first) continue;
      Message m;
      m.meta.app_id = obj_->app_id();
      m.meta.customer_id = obj_->customer_id();
      m.meta.request = true;
      m.meta.push = push;
      m.meta.pull = pull;
      m.meta.head = cmd;
      m.meta.timestamp = timestamp;
      m.meta.recver = servers[i];
      m.meta.priority = kvs.priority;
      bool sent = false;
      try {
        sent = internal::send_pairs(m, pending->sent[i].second);
      } catch (const std::exception& e) {
        Drop(timestamp, e.what());
        throw;
      }
      if (!sent)
        Drop(timestamp, "server " + std::to_string(i) + " (node " + std::to_string(servers[i]) +
                            "): " + Postoffice::Get()->van()->WhyGone(servers[i]));
    }
    return timestamp;
  }

  void Drop(int timestamp, const std::string& why) {
    obj_->Fail(timestamp, why);
    const std::lock_guard lock(mutex_);
    pending_.erase(timestamp);
  }

  /// The response of the i-th server; the last one finishes the request.
  void Responded(int timestamp, std::size_t server, KVPairs<Val> got) {
    std::shared_ptr<Pending> p;
    bool last = false;
    {
      const std::lock_guard lock(mutex_);
      const auto at = pending_.find(timestamp);
      if (at == pending_.end()) return;
      p = at->second;
      // A server that responds twice, to both of two processes that had this id.
      if (!p->sent[server].first) return;
      p->sent[server].first = false;
      p->received[server] = std::move(got);
      last = ++p->responses == p->received.size();
      if (last) pending_.erase(at);
    }
    if (last) Finish(timestamp, *p);
  }

  void Finish(int timestamp, Pending& p) {
    try {
      if (p.pull) Store(p);
      if (p.callback) p.callback();
    } catch (const std::exception& e) {
      obj_->Fail(timestamp, e.what());
    }
  }

  /// Writes what was pulled to where it belongs.
  static void Store(Pending& p) {
    std::vector<const KVPairs<Val>*> lists;
    std::size_t keys = 0, values = 0;
    for (std::size_t i = 0; i < p.received.size(); ++i) {
      const auto& got = p.received[i];
      const auto& asked = p.sent[i].second.keys;
      CHECK(got.keys.data() == asked.data() ||
            (got.keys.size() == asked.size() && std::equal(got.keys.begin(), got.keys.end(), asked.begin())))
          << "server " << i << " responded with other keys than it was asked for";
      internal::check_lengths(got, true, "the response of a server");
      keys += got.keys.size();
      values += got.vals.size();
      if (!got.keys.empty()) lists.push_back(&got);
    }
    CHECK_EQ(keys, p.keys.size()) << "the servers did not respond with all keys";
    std::sort(lists.begin(), lists.end(), [](const auto* a, const auto* b) { return a->keys[0] < b->keys[0]; });
    // The memory of the only response can be the caller's.
    Val* vals = p.vals ? p.vals(values, lists.size() == 1 ? &lists[0]->vals : nullptr) : nullptr;
    int* lens = p.lens ? p.lens(keys, nullptr) : nullptr;
    bool in_order = true;
    for (std::size_t i = 1; i < lists.size(); ++i) in_order = in_order && lists[i - 1]->keys.back() < lists[i]->keys[0];
    if (!in_order) return StoreMixed(p, lists, vals, lens);
    for (const auto* got : lists) {
      if (vals != nullptr) vals = std::copy(got->vals.begin(), got->vals.end(), vals);
      if (lens == nullptr) continue;
      if (!got->lens.empty()) lens = std::copy(got->lens.begin(), got->lens.end(), lens);
      else lens = std::fill_n(lens, got->keys.size(), static_cast<int>(got->vals.size() / got->keys.size()));
    }
  }

  /// The same for lists that overlap, as slicers of users make them.
  static void StoreMixed(const Pending& p, const std::vector<const KVPairs<Val>*>& lists, Val* vals, int* lens) {
    struct place {
      const Val* from = nullptr;
      std::size_t length = 0;
    };
    std::vector<place> places(p.keys.size());
    for (const auto* got : lists) {
      const Val* from = got->vals.data();
      for (std::size_t i = 0; i < got->keys.size(); ++i) {
        const auto at = std::lower_bound(p.keys.begin(), p.keys.end(), got->keys[i]);
        CHECK(at != p.keys.end() && *at == got->keys[i])
            << "the slicer has sent key " << got->keys[i] << ", which is not pulled";
        const auto length =
            got->lens.empty() ? got->vals.size() / got->keys.size() : static_cast<std::size_t>(got->lens[i]);
        places[static_cast<std::size_t>(at - p.keys.begin())] = {from, length};
        from += length;
      }
    }
    for (const auto& place : places) {
      CHECK_NOTNULL(place.from);
      if (vals != nullptr) vals = std::copy_n(place.from, place.length, vals);
      if (lens != nullptr) *lens++ = static_cast<int>(place.length);
    }
  }

  void Process(const Message& m) {
    if (m.meta.simple_app) return SimpleApp::Process(m);
    if (m.meta.request) return;
    if (m.meta.failed) return Drop(m.meta.timestamp, m.meta.body);
    try {
      const auto& servers = Postoffice::Get()->GetNodeIDs(kServerGroup);
      const auto at = std::find(servers.begin(), servers.end(), m.meta.sender);
      if (at == servers.end()) return;
      const auto server = static_cast<std::size_t>(at - servers.begin());
      SArray<Key> asked;
      {
        const std::lock_guard lock(mutex_);
        const auto pending = pending_.find(m.meta.timestamp);
        if (pending == pending_.end()) return;
        asked = pending->second->sent[server].second.keys;
      }
      Responded(m.meta.timestamp, server, m.meta.pull ? internal::pairs_in<Val>(m, asked) : KVPairs<Val>());
    } catch (const std::exception& e) {
      obj_->Fail(m.meta.timestamp, e.what());
    }
  }
  /// Without a callback no code of the program runs. The thread that receives has more to do than to copy much.
  bool Quick(const Message& m) {
    if (m.meta.simple_app || m.meta.request || m.meta.failed) return false;
    {
      const std::lock_guard lock(mutex_);
      const auto at = pending_.find(m.meta.timestamp);
      if (at == pending_.end() || at->second->callback) return false;
      for (const auto& array : m.data) at->second->bytes += array.size();
      if (at->second->bytes > internal::most_copied_at_once) return false;
    }
    Process(m);
    return true;
  }

  std::mutex mutex_;
  Slicer slicer_;
  std::unordered_map<int, std::shared_ptr<Pending>> pending_;
};

/// Of a request that a server handles.
struct KVMeta {
  int cmd = 0;
  bool push = false;
  bool pull = false;
  int sender = 0;  ///< node id
  int timestamp = 0;
  int customer_id = 0;        ///< of the worker
  std::uint32_t process = 0;  ///< which process of that id sent it
};

/// A server's end: calls a function of the program for each request, in the customer's thread, in the order of each
/// worker. Requests that arrive before the handle is set wait for it. A handle that throws fails the request.
template <class Val>
class KVServer : public SimpleApp {
 public:
  using ReqHandle = std::function<void(const KVMeta& meta, const KVPairs<Val>& data, KVServer* server)>;

  explicit KVServer(int app_id) {
    obj_ = new Customer(app_id, app_id, [this](const Message& m) { Process(m); });
  }
  ~KVServer() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    handle_set_.notify_all();
    delete obj_;
    obj_ = nullptr;
  }

  // Those of SimpleApp are for its requests: static_cast<SimpleApp*>(server)->set_request_handle(...).
  void set_request_handle(const ReqHandle& handle) {
    CHECK(handle) << "no handle";
    {
      const std::lock_guard lock(mutex_);
      handle_ = std::make_shared<const ReqHandle>(handle);
    }
    handle_set_.notify_all();
  }
  /// Responds to a request, in the handle or later, from any thread; once. To a pull, with the keys that were asked
  /// for.
  void Response(const KVMeta& request, const KVPairs<Val>& response = KVPairs<Val>()) {
    auto m = ResponseTo(request);
    // In the handle the keys of the request are known to be in order.
    m.meta.same_keys = handled_ == this && handled_meta_.sender == request.sender &&
                       handled_meta_.timestamp == request.timestamp && handled_meta_.process == request.process &&
                       handled_meta_.customer_id == request.customer_id && !response.keys.empty() &&
                       response.keys.data() == handled_keys_.data() && response.keys.size() == handled_keys_.size();
    if (m.meta.same_keys) internal::check_lengths(response, true, "KVServer::Response");
    else internal::check_pairs(response, true, "KVServer::Response");
    internal::send_pairs(m, response);
  }

 private:
  Message ResponseTo(const KVMeta& request) const {
    Message m;
    m.meta.app_id = obj_->app_id();
    m.meta.customer_id = request.customer_id;
    m.meta.push = request.push;
    m.meta.pull = request.pull;
    m.meta.head = request.cmd;
    m.meta.timestamp = request.timestamp;
    m.meta.process = request.process;
    m.meta.recver = request.sender;
    return m;
  }
  void Process(const Message& m) {
    if (m.meta.simple_app) return SimpleApp::Process(m);
    if (!m.meta.request) return;
    const KVMeta meta{m.meta.head,      m.meta.push,        m.meta.pull,   m.meta.sender,
                      m.meta.timestamp, m.meta.customer_id, m.meta.process};
    std::shared_ptr<const ReqHandle> handle;
    {
      std::unique_lock lock(mutex_);
      while (handle_ == nullptr && !ends_ && !Postoffice::Get()->Finishes())
        handle_set_.wait_for(lock, std::chrono::milliseconds(100));
      handle = handle_;
    }
    try {
      CHECK(handle) << "the server has no handle, and has finished";
      const auto data = internal::pairs_in<Val>(m);
      internal::check_pairs(data, meta.push, "a worker's request");
      handled_ = this;
      handled_meta_ = meta;
      handled_keys_ = data.keys;
      (*handle)(meta, data, this);
      handled_ = nullptr;
    } catch (const std::exception& e) {
      handled_ = nullptr;
      auto failure = ResponseTo(meta);
      failure.meta.failed = true;
      failure.meta.body = e.what();
      Postoffice::Get()->van()->Send(failure);
    }
  }

  std::mutex mutex_;
  std::condition_variable handle_set_;
  std::shared_ptr<const ReqHandle> handle_;
  bool ends_ = false;
  // Of the request that this thread handles. A handle responds to that one while it has its keys.
  static inline thread_local const KVServer* handled_ = nullptr;
  static inline thread_local KVMeta handled_meta_;
  static inline thread_local SArray<Key> handled_keys_;
};

/// Adds what is pushed to the values, which begin as 0; a key has as many elements as its first push. Pulled keys that
/// were never pushed are single zeros.
template <class Val>
struct KVServerDefaultHandle {
  void operator()(const KVMeta& meta, const KVPairs<Val>& data, KVServer<Val>* server) {
    KVPairs<Val> response;
    if (meta.push) store.add(data.keys, data.vals, data.lens);
    if (meta.pull) {
      response.keys = data.keys;
      store.get(data.keys, &response.vals, &response.lens);
    }
    server->Response(meta, response);
  }

  internal::key_store<Key, Val> store;
};

}  // namespace ps
