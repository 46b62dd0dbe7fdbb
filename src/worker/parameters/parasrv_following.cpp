// SPDX-License-Identifier: BSD-3-Clause
//
// Requests that follow others: held back here until those are answered, and sent when the last reply arrives. A client
// of every server sees all replies in one thread, so the order holds across servers without their help.
//
//   a single request         is answered when the window says so
//   an update in parts, or   has the numbers of its requests in `shared_update::sent`; a request that follows others
//   one that follows others  has none before it is sent
#include <algorithm>
#include <future>
#include <utility>

#include <paracel/error.hpp>

#include "worker/parameters/parasrv.hpp"

namespace paracel {

void after::add(const async_result& f) {
  if (!f.valid()) throw error("a request is to follow a future that was already used, or belongs to no request");
  if (f.from_ == nullptr || *f.from_ == nullptr)
    throw error("a request is to follow a future whose paralg has been destroyed");
  if (from_ == nullptr) from_ = f.from_;
  if (from_ != f.from_) throw error("a request is to follow requests of several paralgs, want those of one");
  requests_.push_back({f.number_, f.requests_});
}

async_functor_type parasrv::update_after(const after& others, const std::string& key, const value_view& delta,
                                         std::uint64_t function) {
  following_request r;
  r.name = key;
  r.send = [this, key, tag = delta.tag, bytes = std::vector(delta.bytes.begin(), delta.bytes.end()), function] {
    return start_update(key, {tag, bytes}, function);
  };
  return follow(others, std::move(r));
}

async_functor_type parasrv::write_after(const after& others, const std::string& key, const value_view& value) {
  // What may block is done now: the request is sent while a reply is handled.
  if (const auto& c = clock_.of(key); c.model == consistency_model::bsp) clock_.wait_for_minimum(c);
  following_request r;
  r.name = key;
  r.send = [this, key, tag = value.tag, bytes = std::vector(value.bytes.begin(), value.bytes.end())] {
    return start_write(key, {tag, bytes});
  };
  return follow(others, std::move(r));
}

async_functor_type parasrv::read_after(const after& others, const std::string& key, value_sink to) {
  const auto& c = clock_.of(key);
  if (worker_clock::is_clocked(c)) clock_.begin_read(c);
  following_request r;
  r.name = key;
  r.reads = true;
  r.send = [this, key, to] {
    return client_->request(clock_.read_call(clock_.of(key), net::verb::pull), key, {},
                            [this, to, key](const kv_result& result) { receive_read(result, to, &key, true); });
  };
  return follow(others, std::move(r));
}

async_functor_type parasrv::follow(const after& others, following_request r) {
  if (others.from_ != self_) throw error("a request is to follow requests of another paralg, want those of its own");
  combined_.send_before(nullptr);  // updates that are still summed here have no numbers yet
  for (const auto& other : others.requests_) {
    if (!is_answered(other)) r.others.push_back(other);
    else if (auto why = other.several ? failures_.reason(other.several.get()) : failures_.reason(other.number);
             r.broken.empty())
      r.broken = std::move(why);
  }
  if (r.others.empty() && r.broken.empty()) return result_of(r.send());
  auto shared = std::make_shared<following_request>(std::move(r));
  if (shared->others.empty()) {
    fail_following(*shared);
    failures_.record(shared, shared->result, std::string(shared->text));
  } else {
    if (following_.empty()) {
      client_->set_post_reply_hook([this] { send_following(); });
      failures_.on_failure([this](auto number, const auto* sent, const std::string& text) {
        for (const auto& f : following_)
          for (const auto& other : f->others)
            if (other.several ? other.several.get() == sent : other.number == number && number != 0) f->broken = text;
      });
    }
    following_.push_back(shared);
  }
  const std::shared_ptr<const std::vector<kvclt::sequence>> requests(shared, &shared->sent);
  return result_of(std::async(std::launch::deferred,
                              [self = std::weak_ptr(self_), shared] {
                                const auto there = self.lock();
                                if (!there || *there == nullptr)
                                  throw error("a future was used after its paralg was gone");
                                return (*there)->finish_following(shared);
                              }),
                   requests);
}

const parasrv::following_request* parasrv::find_following(const std::vector<kvclt::sequence>* sent) const {
  const auto found = std::ranges::find(following_, sent, [](const auto& f) { return &f->sent; });
  return found == following_.end() ? nullptr : found->get();
}

bool parasrv::is_answered(const std::vector<kvclt::sequence>* several) const {
  return find_following(several) == nullptr &&
         std::ranges::all_of(*several, [&](auto s) { return client_->answered(s); });
}

bool parasrv::is_answered(const after::request& r) const {
  return r.several ? is_answered(r.several.get()) : client_->answered(r.number);
}

void parasrv::fail_following(following_request& r) {
  r.result = net::status::conflict;
  r.text = "it was not sent, because a request that it was to follow has failed: " + r.broken;
  r.send = nullptr;
}

/// Sends those whose predecessors are answered. Sending one may complete another at once.
void parasrv::send_following() {
  if (following_.empty() || std::exchange(sends_following_, true)) return;
  const auto is_due = [&](const auto& f) {
    return std::ranges::all_of(f->others, [&](const auto& other) { return is_answered(other); });
  };
  for (;;) {
    const auto found = std::ranges::find_if(following_, is_due);
    if (found == following_.end()) break;
    const auto f = std::move(*found);
    following_.erase(found);
    try {
      if (f->broken.empty()) f->sent.push_back(f->send());
    } catch (const std::exception& e) {
      f->broken = e.what();
    }
    if (f->broken.empty()) {
      f->send = nullptr;
      continue;
    }
    fail_following(*f);
    failures_.record(f, f->result, std::string(f->text));
  }
  sends_following_ = false;
}

/// A request that must be answered before this one can be sent; 0: none.
kvclt::sequence parasrv::first_unanswered(const following_request& r) const {
  for (const auto& other : r.others) {
    if (is_answered(other)) continue;
    if (!other.several) return other.number;
    if (const auto* first = find_following(other.several.get())) return first_unanswered(*first);
    return *std::ranges::find_if(*other.several, [&](auto s) { return !client_->answered(s); });
  }
  return 0;
}

bool parasrv::finish_following(const std::shared_ptr<following_request>& r) {
  while (find_following(&r->sent) != nullptr) {
    client_->wait(first_unanswered(*r));
    send_following();
  }
  failures_.take(r);
  if (r->result != net::status::ok) throw error("\"" + r->name + "\": " + r->text);
  bool found = true;
  for (const auto s : r->sent) found = finish(s);
  return found;
}

}  // namespace paracel
