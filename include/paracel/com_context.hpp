// SPDX-License-Identifier: BSD-3-Clause
//
// What a compute function of a com_queue sees: its task, the superstep, and named objects that live from superstep to
// superstep. Each task has its own; collectives of the queue work on those with the same name.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/detail/bytes.hpp>
#include <paracel/detail/saved_state.hpp>
#include <paracel/detail/value.hpp>
#include <paracel/error.hpp>

namespace paracel {

class paralg;
class work_stealing;

namespace queue_detail {

/// The elements of an object: a vector of numbers, or one number.
struct number_elements {
  value_tag element = value_tag::none;
  std::span<std::byte> bytes;
};

/// An object of a context.
class object {
 public:
  object() = default;
  object(const object&) = delete;
  object& operator=(const object&) = delete;
  virtual ~object() = default;

  [[nodiscard]] virtual std::type_index type() const = 0;
  [[nodiscard]] virtual std::string type_text() const = 0;
  /// Null: it is read only.
  [[nodiscard]] virtual void* writable() = 0;
  [[nodiscard]] virtual const void* readable() const = 0;
  /// Empty: it is neither a number nor a vector of numbers.
  [[nodiscard]] virtual std::optional<number_elements> numbers() = 0;
  /// Resizes a vector of numbers. Returns: its elements.
  virtual std::span<std::byte> resize(std::size_t elements) = 0;
  /// Whether checkpoints include it.
  [[nodiscard]] virtual bool is_saved() const = 0;
  virtual void save(const std::string& name, saved_state& to) const = 0;
};

template <class T>
inline constexpr bool is_number_vector = false;
template <raw_number T, class A>
inline constexpr bool is_number_vector<std::vector<T, A>> = true;

/// Saved: stored by put_obj; otherwise by put_local.
template <class T, bool Saved>
class typed_object final : public object {
 public:
  explicit typed_object(T v) : value(std::move(v)) {}
  [[nodiscard]] std::type_index type() const override { return typeid(T); }
  [[nodiscard]] std::string type_text() const override { return codec_detail::type_text<T>::get(); }
  [[nodiscard]] void* writable() override { return &value; }
  [[nodiscard]] const void* readable() const override { return &value; }
  [[nodiscard]] std::optional<number_elements> numbers() override {
    if constexpr (raw_number<T>) {
      return number_elements{tag_of<T>(), std::as_writable_bytes(std::span<T>(&value, 1))};
    } else if constexpr (is_number_vector<T>) {
      using element = typename T::value_type;
      return number_elements{tag_of<element>(), std::as_writable_bytes(std::span<element>(value))};
    } else {
      return std::nullopt;
    }
  }
  std::span<std::byte> resize(std::size_t elements) override {
    if constexpr (is_number_vector<T>) {
      value.resize(elements);
    } else if constexpr (raw_number<T>) {
      if (elements != 1) throw error("one number cannot be resized to " + std::to_string(elements) + " elements");
    }
    const auto all = numbers();
    return all ? all->bytes : std::span<std::byte>();
  }
  [[nodiscard]] bool is_saved() const override { return Saved; }
  void save(const std::string& name, saved_state& to) const override {
    if constexpr (Saved) to.put(name, value);
  }
  T value;
};

/// What init_with_partitioned_data keeps: the same for every run of the queue, and read only.
template <class T>
class partition_object final : public object {
 public:
  explicit partition_object(std::shared_ptr<const T> v) : value(std::move(v)) {}
  [[nodiscard]] std::type_index type() const override { return typeid(T); }
  [[nodiscard]] std::string type_text() const override { return "const " + codec_detail::type_text<T>::get(); }
  [[nodiscard]] void* writable() override { return nullptr; }
  [[nodiscard]] const void* readable() const override { return value.get(); }
  [[nodiscard]] std::optional<number_elements> numbers() override { return std::nullopt; }
  std::span<std::byte> resize(std::size_t) override { return {}; }
  [[nodiscard]] bool is_saved() const override { return false; }
  void save(const std::string&, saved_state&) const override {}
  std::shared_ptr<const T> value;
};

/// Makes an object of put_obj from its encoding.
using decode_function = std::unique_ptr<object> (*)(const value_view& v);
/// Thread-safety: any thread.
void add_decoder(std::type_index type, decode_function f);
/// Null: this program stores no object of that type with put_obj.
[[nodiscard]] decode_function decoder_of(std::type_index type);

/// Added before main by every put_obj of the program: a resumed run calls get_obj before put_obj. So get_obj itself
/// does not need an encoding.
template <class T>
struct decoder {
  static std::unique_ptr<object> decode(const value_view& v) {
    T value{};
    decode_into(v, value);
    return std::make_unique<typed_object<T, true>>(std::move(value));
  }
  static bool add() {
    if constexpr (std::default_initializable<T>) add_decoder(typeid(T), &decode);
    return true;
  }
  static inline const bool added = add();
};

/// An object from a checkpoint or a broadcast, until the first get_obj decodes it.
class restored_object final : public object {
 public:
  restored_object(value_tag t, byte_vector b) : tag(t), bytes(std::move(b)) {}
  [[nodiscard]] std::type_index type() const override { return typeid(restored_object); }
  [[nodiscard]] std::string type_text() const override { return codec_detail::describe({tag, bytes}); }
  [[nodiscard]] void* writable() override { return nullptr; }
  [[nodiscard]] const void* readable() const override { return nullptr; }
  [[nodiscard]] std::optional<number_elements> numbers() override;
  std::span<std::byte> resize(std::size_t elements) override;
  [[nodiscard]] bool is_saved() const override { return true; }
  void save(const std::string& name, saved_state& to) const override { to.put_value(name, {tag, bytes}); }
  value_tag tag;
  byte_vector bytes;
};

}  // namespace queue_detail

/// Thread-safety: none; on the thread that calls com_queue::exec.
class com_context {
 public:
  com_context(paralg& job, std::size_t task, std::size_t tasks) : job_(&job), task_(task), tasks_(tasks) {}
  com_context(const com_context&) = delete;
  com_context& operator=(const com_context&) = delete;

  [[nodiscard]] std::size_t task_id() const noexcept { return task_; }
  [[nodiscard]] std::size_t num_task() const noexcept { return tasks_; }
  /// The superstep: 1, 2, ...
  [[nodiscard]] int step_no() const noexcept { return step_; }
  /// The algorithm of the queue: parameters in the servers, results.
  [[nodiscard]] paralg& job() const noexcept { return *job_; }

  /// Stores an object under a name, replacing any that has it. Checkpoints include it, so its type must have an
  /// encoding (codec.hpp): numbers, strings, containers and tuples of such, types with MSGPACK_DEFINE. Use put_local
  /// for objects that have none, or that a compute function recreates when they are missing.
  /// Returns: the object in the context. Lifetime: until it is removed or replaced; a queue's collective may change its
  /// elements and, for a vector, its length.
  template <class T>
  auto& put_obj(const std::string& name, T&& value) {
    using stored = stored_type<T>;
    (void)&queue_detail::decoder<stored>::added;
    return put<queue_detail::typed_object<stored, true>>(name, stored(std::forward<T>(value)))->value;
  }
  /// The same for any type, but not in checkpoints: it is missing after a resume.
  template <class T>
  auto& put_local(const std::string& name, T&& value) {
    using stored = stored_type<T>;
    return put<queue_detail::typed_object<stored, false>>(name, stored(std::forward<T>(value)))->value;
  }
  /// The object of that name. T: exactly its type, or const of it; data of init_with_partitioned_data are const.
  /// Throws: key_error when there is none, type_error when it has another type; both list the existing names.
  template <class T>
  [[nodiscard]] T& get_obj(const std::string& name) {
    using stored = std::remove_const_t<T>;
    auto& at = find(name);
    if (at->type() == typeid(queue_detail::restored_object)) decode_restored(at, typeid(stored));
    if (at->type() != typeid(stored)) refuse_type(name, *at, codec_detail::type_text<stored>::get());
    if constexpr (std::is_const_v<T>) return *static_cast<const stored*>(at->readable());
    else {
      void* p = at->writable();
      if (p == nullptr) refuse_writing(name);
      return *static_cast<stored*>(p);
    }
  }
  [[nodiscard]] bool contains_obj(const std::string& name) const { return objects_.contains(name); }
  /// Throws: key_error when there is none.
  void remove_obj(const std::string& name);

  /// Sets a number to be shown as progress of this superstep and written to metrics.jsonl. Only task 0's are used; the
  /// progress line shows the first one that it sets.
  void set_metric(const std::string& name, double value);

  // ---- for com_queue

  /// Throws: key_error as get_obj.
  [[nodiscard]] std::unique_ptr<queue_detail::object>& find(const std::string& name);
  void put_object(const std::string& name, std::unique_ptr<queue_detail::object> o) { objects_[name] = std::move(o); }
  void begin_step(int number) {
    step_ = number;
    metrics_.clear();
  }
  [[nodiscard]] const std::vector<std::pair<std::string, double>>& metrics() const noexcept { return metrics_; }
  /// Computes chunks of rows (over_rows.hpp); null outside a queue.
  [[nodiscard]] work_stealing* stealing() const noexcept { return stealing_; }
  void compute_with(work_stealing& stealing) noexcept { stealing_ = &stealing; }
  void save(const std::string& prefix, saved_state& to) const;
  void restore(const std::string& prefix, const saved_state& from);

 private:
  template <class T>
  using stored_type = std::conditional_t<std::is_convertible_v<T, std::string_view> &&
                                             !std::is_same_v<std::remove_cvref_t<T>, std::string>,
                                         std::string, std::remove_cvref_t<T>>;
  template <class Object, class T>
  Object* put(const std::string& name, T&& value) {
    auto made = std::make_unique<Object>(std::forward<T>(value));
    auto* raw = made.get();
    objects_[name] = std::move(made);
    return raw;
  }
  [[nodiscard]] std::string names() const;
  static void decode_restored(std::unique_ptr<queue_detail::object>& at, std::type_index asked);
  [[noreturn]] void refuse_type(const std::string& name, const queue_detail::object& is,
                                const std::string& asked) const;
  [[noreturn]] static void refuse_writing(const std::string& name);

  paralg* job_;
  std::size_t task_;
  std::size_t tasks_;
  int step_ = 0;
  work_stealing* stealing_ = nullptr;
  std::map<std::string, std::unique_ptr<queue_detail::object>> objects_;
  std::vector<std::pair<std::string, double>> metrics_;
};

}  // namespace paracel
