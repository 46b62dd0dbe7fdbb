// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/com_context.hpp>

#include "net/mutex.hpp"

namespace paracel {

namespace queue_detail {

namespace {

struct known_decoders {
  mutex access;
  std::map<std::type_index, decode_function> by_type PARACEL_GUARDED_BY(access);
};
known_decoders& decoders() {
  static known_decoders all;
  return all;
}

}  // namespace

void add_decoder(std::type_index type, decode_function f) {
  auto& all = decoders();
  const mutex_lock lock(all.access);
  all.by_type.emplace(type, f);
}

decode_function decoder_of(std::type_index type) {
  auto& all = decoders();
  const mutex_lock lock(all.access);
  const auto found = all.by_type.find(type);
  return found == all.by_type.end() ? nullptr : found->second;
}

std::optional<number_elements> restored_object::numbers() {
  if (!is_numeric(tag)) return std::nullopt;
  return number_elements{element_of(tag), bytes};
}

std::span<std::byte> restored_object::resize(std::size_t elements) {
  if (is_array(tag)) bytes.resize(elements * element_bytes(tag));
  else if (elements != 1) throw error("one number cannot be resized to " + std::to_string(elements) + " elements");
  return bytes;
}

}  // namespace queue_detail

std::string com_context::names() const {
  std::string all;
  for (const auto& [name, o] : objects_) all += (all.empty() ? "\"" : ", \"") + name + "\" (" + o->type_text() + ")";
  return all.empty() ? "there are no objects" : "there are " + all;
}

std::unique_ptr<queue_detail::object>& com_context::find(const std::string& name) {
  const auto at = objects_.find(name);
  if (at == objects_.end()) throw key_error("no object is called \"" + name + "\"; " + names());
  return at->second;
}

/// Leaves it as it is if it cannot be decoded: then it has another type than the one that is asked for.
void com_context::decode_restored(std::unique_ptr<queue_detail::object>& at, std::type_index asked) {
  const auto decode = queue_detail::decoder_of(asked);
  if (decode == nullptr) return;
  const auto& restored = static_cast<const queue_detail::restored_object&>(*at);
  try {
    at = decode({restored.tag, restored.bytes});
  } catch (const type_error&) {
  }
}

void com_context::remove_obj(const std::string& name) {
  (void)find(name);
  objects_.erase(name);
}

void com_context::refuse_type(const std::string& name, const queue_detail::object& is, const std::string& asked) const {
  throw type_error("\"" + name + "\" is " + is.type_text() + ", asked for " + asked + "; " + names());
}

void com_context::refuse_writing(const std::string& name) {
  throw type_error("\"" + name +
                   "\" is data of init_with_partitioned_data, which is read-only: ask for the const type");
}

void com_context::set_metric(const std::string& name, double value) {
  for (auto& [known, v] : metrics_) {
    if (known != name) continue;
    v = value;
    return;
  }
  metrics_.emplace_back(name, value);
}

void com_context::save(const std::string& prefix, saved_state& to) const {
  for (const auto& [name, o] : objects_)
    if (o->is_saved()) o->save(prefix + name, to);
}

void com_context::restore(const std::string& prefix, const saved_state& from) {
  from.visit(prefix, [&](const std::string& name, const value_view& v) {
    objects_[name.substr(prefix.size())] =
        std::make_unique<queue_detail::restored_object>(v.tag, byte_vector(v.bytes.begin(), v.bytes.end()));
  });
}

}  // namespace paracel
