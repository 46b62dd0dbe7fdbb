// SPDX-License-Identifier: BSD-3-Clause
//
// Prepared key sets, for an algorithm that reads or updates the same keys in every iteration: it passes the list once:
//
//   const auto weights = paracel_prepare(keys);
//   std::vector<float> w;
//   paracel_read(weights, w);             // w[i] is the value of keys[i]
//   paracel_update(weights, gradients);   // adds gradients[i] to keys[i]
//
// The keys are sent once; afterwards a request is a 16-byte name and the values, and the servers iterate over a list
// of addresses. Keys that are removed, re-created, or change their type meanwhile are detected: a set is only a shorter
// encoding, and never yields another value than its keys themselves would.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/detail/value.hpp>
#include <paracel/error.hpp>
#include <paracel/types.hpp>

namespace paracel {

struct sharded_keys;

/// A list of keys that the servers know by name, made by `paralg::paracel_prepare`. A key may occur in it repeatedly;
/// values are in the order of the list.
///
/// Thread-safety: const-concurrent. Lifetime: independent; usable with every paralg of the same job.
/// Cost: copying increments a reference count.
class key_set {
 public:
  key_set() = default;
  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] const list_type<str_type>& keys() const noexcept;

 private:
  friend class parameter_access;
  explicit key_set(std::shared_ptr<const sharded_keys> parts) noexcept : parts_(std::move(parts)) {}
  std::shared_ptr<const sharded_keys> parts_;
};

/// Where the values of many keys are stored as they arrive.
class set_target {
 public:
  explicit set_target(std::size_t keys) : keys_(keys) {}
  virtual ~set_target() = default;
  /// `values` is an array: values of `numbers` numbers each, contiguous, of the keys order[0], order[1], ... `arrays`:
  /// each of them is an array.
  virtual void put_all(std::span<const std::uint32_t> order, const value_view& values, std::size_t numbers,
                       bool arrays) {
    const auto bytes = numbers * element_bytes(values.tag);
    const auto tag = arrays ? values.tag : element_of(values.tag);
    for (std::size_t k = 0; k < order.size(); ++k) put_one(order[k], {tag, values.bytes.subspan(k * bytes, bytes)});
  }
  virtual void put_one(std::size_t index, const value_view& value) = 0;

 protected:
  std::size_t keys_;
};

namespace set_detail {

/// Numbers, contiguous and in key order; `Out` is a vector, which is resized, or a span, whose size must
/// match.
template <raw_number V, class Out>
class numbers_target final : public set_target {
 public:
  numbers_target(std::size_t keys, Out out) : set_target(keys), out_(out) {}

  void put_all(std::span<const std::uint32_t> order, const value_view& values, std::size_t numbers, bool) override {
    V* to = room(numbers);
    if (order.size() == keys_) {  // every index, in ascending order
      if (!codec_detail::widen(values, to)) codec_detail::refuse<std::vector<V>>(values);
      return;
    }
    const std::byte* from = values.bytes.data();
    if (element_of(values.tag) != tag_of<V>()) {
      widened_.resize(order.size() * numbers);
      if (!codec_detail::widen(values, widened_.data())) codec_detail::refuse<std::vector<V>>(values);
      from = reinterpret_cast<const std::byte*>(widened_.data());
    }
    if (numbers == 1) {
      for (std::size_t k = 0; k < order.size(); ++k) std::memcpy(to + order[k], from + k * sizeof(V), sizeof(V));
      return;
    }
    const auto bytes = numbers * sizeof(V);
    for (std::size_t k = 0; k < order.size() && bytes != 0; ++k)
      std::memcpy(to + order[k] * numbers, from + k * bytes, bytes);
  }
  void put_one(std::size_t index, const value_view& value) override {
    if (is_numeric(value.tag) && !is_array(value.tag)) {
      decode_into(value, room(1)[index]);
    } else {
      decode_into(value, widened_);
      V* to = room(widened_.size());
      std::copy(widened_.begin(), widened_.end(), to + index * widened_.size());
    }
  }

 private:
  V* room(std::size_t numbers) {
    if (has_width_ && numbers == width_) return data();
    if (has_width_) throw type_error("the values of a key set that is read as numbers must all have the same size");
    if constexpr (requires { (*out_).resize(1); }) {
      out_->resize(keys_ * numbers);
    } else if (out_.size() != keys_ * numbers) {
      throw type_error("a key set of " + std::to_string(keys_) + " keys with " + std::to_string(numbers) +
                       " numbers each was read into " + std::to_string(out_.size()) + " numbers");
    }
    has_width_ = true;
    width_ = numbers;
    return data();
  }
  V* data() {
    if constexpr (requires { (*out_).resize(1); }) return out_->data();
    else return out_.data();
  }

  Out out_;
  bool has_width_ = false;
  std::size_t width_ = 0;
  std::vector<V> widened_;
};

/// Values of any type, each decoded on its own.
template <class V>
class values_target final : public set_target {
 public:
  values_target(std::size_t keys, list_type<V>& out) : set_target(keys), out_(out) { out_.resize(keys); }
  void put_all(std::span<const std::uint32_t> order, const value_view& values, std::size_t numbers,
               bool arrays) override {
    if constexpr (raw_number<V>) {
      if (!arrays && numbers == 1 && element_of(values.tag) == tag_of<V>()) {
        if (order.size() == keys_) {  // every index, in ascending order
          std::memcpy(out_.data(), values.bytes.data(), keys_ * sizeof(V));
          return;
        }
        for (std::size_t k = 0; k < order.size(); ++k)
          std::memcpy(&out_[order[k]], values.bytes.data() + k * sizeof(V), sizeof(V));
        return;
      }
    }
    set_target::put_all(order, values, numbers, arrays);
  }
  void put_one(std::size_t index, const value_view& value) override { decode_into(value, out_[index]); }

 private:
  list_type<V>& out_;
};

/// Values by key, for the keys that exist.
template <class V>
class dictionary_target final : public set_target {
 public:
  dictionary_target(const list_type<str_type>& keys, dict_type<str_type, V>& out)
      : set_target(keys.size()), names_(keys), out_(out) {}
  void put_one(std::size_t index, const value_view& value) override { decode_into(value, out_[names_[index]]); }

 private:
  const list_type<str_type>& names_;
  dict_type<str_type, V>& out_;
};

template <class V>
std::shared_ptr<set_target> target(std::size_t keys, list_type<V>& out) {
  if (keys == 0) out.clear();  // nothing will arrive
  if constexpr (raw_number<V>) return std::make_shared<numbers_target<V, list_type<V>*>>(keys, &out);
  else return std::make_shared<values_target<V>>(keys, out);
}
template <raw_number V>
std::shared_ptr<set_target> target(std::size_t keys, std::span<V> out) {
  return std::make_shared<numbers_target<V, std::span<V>>>(keys, out);
}

}  // namespace set_detail

/// Values for the keys of a set, in their order: contiguous numbers, or anything else as items.
struct set_source {
  value_tag tag = value_tag::none;
  std::size_t value_bytes = 0;
  std::span<const std::byte> numbers;
  std::span<const value_view> items;

  [[nodiscard]] value_view at(std::size_t i) const {
    return items.empty() ? value_view{tag, numbers.subspan(i * value_bytes, value_bytes)} : items[i];
  }
};

namespace set_detail {

/// Raw numbers: the same number of them for each key.
template <raw_number V>
set_source source(std::size_t keys, std::span<const V> values) {
  if (keys == 0 ? !values.empty() : values.size() % keys != 0 || values.empty())
    throw error("a key set of " + std::to_string(keys) + " keys got " + std::to_string(values.size()) + " numbers");
  const auto each = keys == 0 ? 1 : values.size() / keys;
  return {each == 1 ? tag_of<V>() : array_tag_of<V>(), each * sizeof(V), std::as_bytes(values), {}};
}

}  // namespace set_detail

}  // namespace paracel
