// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/partition_store.hpp"

#include <algorithm>
#include <exception>
#include <new>

#include <paracel/free_memory.hpp>

#include "server/request/request_payloads.hpp"
#include "server/store/optimizer_state.hpp"
#include "server/store/scarce_memory.hpp"

namespace paracel::srv {

using net::status;

namespace {

/// Whether a delta of this type becomes the value of a missing key unmodified, without calling the function.
bool becomes_the_value(const loaded_update& f, value_tag delta) noexcept {
  const auto& u = *f.function;
  if (u.initialise != nullptr || !is_numeric(delta)) return false;
  const auto wanted = static_cast<value_tag>(u.value_tag);
  return u.apply != nullptr ? wanted == delta : wanted == value_tag::none || wanted == element_of(delta);
}

}  // namespace

std::string quoted_key(std::string_view key) {
  constexpr std::size_t most = 120;
  std::string out = "key \"";
  for (const char c : key.substr(0, most)) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 || u == 0x7f || c == '"' || c == '\\') {
      constexpr const char* digits = "0123456789abcdef";
      out += {'\\', 'x', digits[u >> 4], digits[u & 15U]};
    } else {
      out += c;
    }
  }
  out += key.size() > most ? "...\"" : "\"";
  return out;
}

void key_outcome::fail_by_exception() noexcept {
  const auto as = [&](status why, std::string_view says) {
    *this = {};
    fail(why, told(says));
  };
  try {
    throw;
  } catch (const memory_limit_reached& e) {
    as(status::out_of_memory, e.what());
  } catch (const std::bad_alloc&) {
    as(status::out_of_memory, "there was no memory for it");
  } catch (const std::exception& e) {
    as(status::internal, e.what());
  }
}

partition_store::partition_store(const shard_settings& settings, plugin_registry& plugins,
                                 const std::atomic<const ownership*>& owned, function_monitor& monitor)
    : settings_(settings),
      plugins_(plugins),
      monitor_(monitor),
      load_(settings),
      keys_(settings, owned),
      rows_(keys_, plugins, log_, nans_, load_) {}

bool partition_store::acceptable(std::string_view key, const value_view& value, key_outcome& out) const {
  if (value.tag == value_tag::none || !is_well_formed(value)) {
    out.fail(status::bad_request, quoted_key(key) + ": " + std::to_string(value.bytes.size()) +
                                      " bytes are not a value of type " + name_of(value.tag));
    return false;
  }
  if (value.bytes.size() > settings_.max_value_bytes) {
    out.fail(status::too_large, quoted_key(key) + ": a value of " + std::to_string(value.bytes.size()) +
                                    " bytes; this server accepts at most " + std::to_string(settings_.max_value_bytes));
    return false;
  }
  return true;
}

void partition_store::push(std::string_view key, std::uint64_t hash, const value_view& value, shared_buffer&& tail,
                           key_outcome& out) {
  put(key, hash, value, std::move(tail), out);
  out.value = nullptr;  // the sender has it
  if (out.result != status::ok) return;
  if (const auto at = staged_.find(key, hash); at != staged_.end()) clear_error(at.value());
}

void partition_store::put(std::string_view key, std::uint64_t hash, const value_view& value, shared_buffer&& tail,
                          key_outcome& out) try {
  const auto& e =
      tail ? keys_.store(hash, key, value.tag, shared_buffer::own(std::move(tail))) : keys_.store(hash, key, value);
  out.value = &e;
  out.version = e.version();
} catch (const memory_limit_reached& e) {
  out.fail(status::out_of_memory, e.what());
}

void partition_store::pull_at(std::string_view key, std::uint64_t hash, const element_choice& choice,
                              key_outcome& out) {
  const auto* e = keys_.find(hash, key);
  if (e == nullptr) return out.fail(status::not_found, "the key is not there");
  if (const auto s = pull_elements(e->view(), choice, out.elements, computed_, out.text); s != status::ok) {
    return out.fail(s, quoted_key(key) + ": " + out.text);
  }
  out.version = e->version();
}

void partition_store::update_at(const loaded_update& f, std::string_view key, std::uint64_t hash,
                                const element_change& change, key_outcome& out) {
  auto& t = keys_.table_of(hash);
  auto* e = t.find(hash, key);
  if (e == nullptr) return out.fail(status::not_found, "the key is not there");
  const busy_mark mark(monitor_, f, key);
  if (const auto s = update_elements(f, t, *e, change, out.text); s != status::ok) {
    return out.fail(s, quoted_key(key) + ": " + out.text);
  }
  nans_.saw(f.name, e->tag(), e->value(), [&] { return quoted_key(key); });
  out.version = e->version();
}

bool partition_store::fits(const loaded_update& f, std::string_view key, key_outcome& out) const {
  if (computed_.size() <= settings_.max_value_bytes) return true;
  out.fail(status::too_large, quoted_key(key) + ": " + f.name + " made a value of " + std::to_string(computed_.size()) +
                                  " bytes; this server accepts at most " + std::to_string(settings_.max_value_bytes));
  return false;
}

void partition_store::update(const loaded_update& f, std::string_view key, std::uint64_t hash, const value_view& delta,
                             shared_buffer&& tail, key_outcome& out) try {
  auto& t = keys_.table_of(hash);
  auto* e = t.find(hash, key);
  const busy_mark mark(monitor_, f, key);
  auto ended = abi::ok;
  const auto failed = [&] {
    out.fail(ended == abi::type_mismatch ? status::type_mismatch : status::plugin_failed,
             quoted_key(key) + ": " + out.text);
  };
  if (f.optimizer != nullptr) {
    out.value = step_key(keys_, f, hash, key, delta, out.text, ended);
    if (out.value == nullptr) return failed();
    out.version = out.value->version();
    nans_.saw(f.name, out.value->tag(), out.value->value(), [&] { return quoted_key(key); });
    return;
  }
  if (e == nullptr) {
    if (becomes_the_value(f, delta.tag)) {
      put(key, hash, delta, std::move(tail), out);
    } else {
      const auto type = apply_to_missing(f, delta, computed_, out.text, &ended);
      if (type == value_tag::none) return failed();
      if (!fits(f, key, out)) return;
      put(key, hash, {type, computed_}, {}, out);
    }
    return;
  }
  if (path_of(f, e->view(), delta) == apply_path::in_place) {
    if (!apply_in_place(f, e->tag(), t.open(*e), delta, out.text, &ended)) return failed();
    t.changed(*e);
  } else {
    const auto type = apply(f, e->view(), delta, computed_, out.text, &ended);
    if (type == value_tag::none) return failed();
    if (!fits(f, key, out)) return;
    keys_.check_room(hash, key, computed_.size());
    // An optimizer's state belongs to the value's previous shape.
    const bool other_shape = type != e->tag() || computed_.size() != e->value().size();
    e = &t.store(hash, key, {type, computed_});
    if (other_shape) keys_.drop_state(hash, key);
    free_if_larger(computed_, kept_buffer_bytes);
  }
  nans_.saw(f.name, e->tag(), e->value(), [&] { return quoted_key(key); });
  out.value = e;
  out.version = e->version();
} catch (const memory_limit_reached& e) {
  out.fail(status::out_of_memory, e.what());
}

void partition_store::remove(std::string_view key, std::uint64_t hash, key_outcome& out) {
  forget_staged(key);
  if (!keys_.erase(hash, key)) out.fail(status::not_found, "the key is not there");
}

void partition_store::trim() noexcept { free_if_larger(computed_, kept_buffer_bytes); }

void partition_store::update_default(const loaded_update& f, std::string_view key, std::uint64_t hash,
                                     const default_and_delta& both, key_outcome& out) {
  if (keys_.find(hash, key) == nullptr) put(key, hash, both.initial, {}, out);
  else update(f, key, hash, both.delta, {}, out);
}

std::uint64_t partition_store::clear() noexcept {
  const auto count = keys_.size();
  keys_.clear();
  rows_.clear();
  for (const auto& [key, staged] : staged_) {
    for (const auto& u : staged.waiting) keys_.count_bytes(-staged_bytes(u.delta.size()));
  }
  staged_.clear();
  due_.clear();
  ++staged_changes_;
  staged_count_ = 0;
  broken_count_ = 0;
  folded_clock_ = 0;
  due_clock_ = 0;
  return count;
}

void partition_store::clear(std::span<const std::uint16_t> partitions,
                            const std::function<void(std::uint16_t, std::uint64_t)>& f) {
  log_.make_room_for_cleared(partitions.size());
  std::vector<std::string> staged;
  for (const auto& [key, s] : staged_) {
    if (std::binary_search(partitions.begin(), partitions.end(), partition_of(hash_key(key)))) staged.push_back(key);
  }
  rows_.split_staged();
  for (const auto p : partitions) {
    const auto keys = keys_.table_of_partition(p).size();
    keys_.clear(p);
    rows_.clear(p);
    log_.cleared(p);
    f(p, keys);
  }
  for (const auto& key : staged) forget_staged(key);
}

void partition_store::begin_epoch(std::uint32_t epoch) {
  keys_.raise_versions(std::uint64_t{epoch} << 40U);
  list_again();  // including the partitions that were replicas so far
  rows_.begin_epoch();
}

}  // namespace paracel::srv
