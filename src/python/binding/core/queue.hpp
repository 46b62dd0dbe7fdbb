// SPDX-License-Identifier: BSD-3-Clause
//
// What a com_queue in Python consists of: objects of contexts, and functions that see them.
#pragma once

#include <paracel/com_queue.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "job.hpp"

namespace paracel::py {

/// An object of a context: an array, whose elements collectives change in place, a number, or anything else.
class python_object final : public queue_detail::object {
 public:
  /// With the GIL.
  python_object(nb::handle value, bool saved) : saved_(saved) {
    const bool is_array = nb::ndarray_check(value) && !PyBytes_Check(value.ptr());
    if (is_array || PyFloat_CheckExact(value.ptr()) || (PyLong_Check(value.ptr()) && !PyBool_Check(value.ptr()))) {
      const auto given = numbers_of(value, "an object");
      set(given.element, any_value(value_view{given.element, given.bytes}).bytes, given.shape);
    } else {
      other_ = shared_object(nb::borrow(value));
      if (saved) (void)value_of(value);  // refuses what a checkpoint could not hold
    }
  }
  [[nodiscard]] std::type_index type() const override { return typeid(python_object); }
  [[nodiscard]] std::string type_text() const override {
    return bytes_ == nullptr ? "a Python object" : name_of(element_);
  }
  [[nodiscard]] void* writable() override { return this; }
  [[nodiscard]] const void* readable() const override { return this; }
  [[nodiscard]] std::optional<queue_detail::number_elements> numbers() override {
    if (bytes_ == nullptr) return std::nullopt;
    return queue_detail::number_elements{element_, {bytes_.get(), count() * element_bytes(element_)}};
  }
  std::span<std::byte> resize(std::size_t elements) override {
    if (bytes_ == nullptr) return {};
    if (shape_.empty() && elements != 1)
      throw error("one number cannot be resized to " + std::to_string(elements) + " elements");
    if (elements != count()) {
      const auto width = element_bytes(element_);
      auto longer = new_bytes(elements * width);
      std::memcpy(longer.get(), bytes_.get(), std::min(elements, count()) * width);
      set(element_, std::move(longer), {elements});
    }
    return numbers()->bytes;
  }
  [[nodiscard]] bool is_saved() const override { return saved_; }
  void save(const std::string& name, saved_state& to) const override {
    with_gil([&] { to.put(name, value_of(get())); });
  }
  /// With the GIL. An array shares the memory.
  [[nodiscard]] nb::object get() const {
    if (bytes_ == nullptr) return other_.get();
    if (shape_.empty()) return to_python(any_value(value_view{element_, {bytes_.get(), element_bytes(element_)}}));
    return array_of(element_, bytes_, shape_);
  }

 private:
  void set(value_tag element, shared_bytes bytes, std::vector<std::size_t> shape) {
    element_ = element;
    bytes_ = std::move(bytes);
    shape_ = std::move(shape);
  }
  [[nodiscard]] std::size_t count() const noexcept {
    std::size_t n = 1;
    for (const auto s : shape_) n *= s;
    return n;
  }

  bool saved_;
  value_tag element_ = value_tag::none;
  shared_bytes bytes_;  // null: other_
  std::vector<std::size_t> shape_;
  shared_object other_;
};

/// What a function sees; usable inside it only.
struct context_object {
  com_context* c = nullptr;
  [[nodiscard]] com_context& get() const {
    if (c == nullptr) throw error("the context of a queue is used outside of its function");
    return *c;
  }
};

class queue_object : public job::part {
 public:
  explicit queue_object(std::shared_ptr<job> of) : of_(std::move(of)) {
    queue_ = std::make_unique<com_queue>(of_->get());
    of_->enter(this);
  }
  queue_object(const queue_object&) = delete;
  queue_object& operator=(const queue_object&) = delete;
  ~queue_object() override {
    of_->remove(this);
    drop();
  }
  void drop() override { queue_.reset(); }
  [[nodiscard]] com_queue& get() const {
    (void)of_->get();
    return *queue_;
  }
  bool returns = false;  // close_with was called
  bool has_items = false;

 private:
  std::shared_ptr<job> of_;
  std::unique_ptr<com_queue> queue_;
};

using compute_function = nb::typed<nb::callable, nb::object(context_object&)>;

/// Calls a function with a context, and perhaps another argument, with the GIL.
nb::object call_with(const shared_object& f, com_context& c, nb::handle more = {});
/// The object of that name, as Python sees it.
nb::object object_in(com_context& c, const std::string& name);
/// "sum", "max" or "min". Throws: nb::value_error.
reduce_op reduce_op_of(const std::string& name);
/// fold(accumulator, contribution) -> the new accumulator, on arrays of its own.
collectives::byte_fold fold_of(nb::callable f, value_tag element);
void bind_queue_steps(nb::class_<queue_object>& q, nb::module_& m);

}  // namespace paracel::py
