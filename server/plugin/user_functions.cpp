// SPDX-License-Identifier: BSD-3-Clause
#include "server/plugin/user_functions.hpp"

#include <algorithm>
#include <cstring>

#include <paracel/codec.hpp>

#include "server/plugin/last_words.hpp"

namespace paracel::srv {

namespace {

constexpr std::size_t error_text_bytes = 1024;

/// Thread-local memory for one call, aligned to 16. Beyond a megabyte it is freed: every shard thread has two.
class scratch {
 public:
  std::byte* reserve(std::size_t bytes) {
    if (memory_.size() < bytes) memory_.resize(bytes);
    return memory_.data();
  }
  void trim() noexcept {
    if (memory_.size() > (std::size_t{1} << 20)) std::vector<std::byte>().swap(memory_);
  }

 private:
  std::vector<std::byte> memory_;
};
thread_local scratch delta_scratch;
thread_local scratch value_scratch;

std::string kind_of_value(const value_view& v) {
  std::string text = codec_detail::describe(v);
  if (is_numeric(v.tag) && is_array(v.tag)) text += " of " + std::to_string(v.bytes.size() / element_bytes(v.tag));
  return text;
}

std::string signature(const loaded_update& u) {
  if (u.optimizer != nullptr) return u.name;
  const auto text = [](const char(&t)[48]) { return std::string(t, ::strnlen(t, sizeof(t))); };
  return u.name + " (" + text(u.function->value_type) + ", " + text(u.function->delta_type) + ")";
}

/// Where a failure is reported.
struct verdict {
  const loaded_update& update;
  std::string& error;
  abi::outcome* outcome;

  bool fail(abi::outcome what, const std::string& text) const {
    error = signature(update) + ": " + text;
    if (outcome != nullptr) *outcome = what;
    return false;
  }
  bool mismatch(const value_view& current, const value_view& delta, const std::string& rule) const {
    return fail(abi::type_mismatch,
                "value is " + kind_of_value(current) + ", delta is " + kind_of_value(delta) + ": " + rule);
  }
  /// Whether the function may be called.
  bool callable() const {
    const auto* why = update.refused.why();
    return why == nullptr || fail(abi::failed, *why);
  }
  /// False if `result`, which the plug-in returned, is a failure. Works even without memory for the reason: the value
  /// must be restored.
  bool passed(std::int32_t result, const char* text) const noexcept {
    const auto how = result == abi::ok ? abi::ok : result == abi::type_mismatch ? abi::type_mismatch : abi::failed;
    if (outcome != nullptr) *outcome = how;
    if (how == abi::ok) return true;
    try {
      return fail(how, *text != '\0' ? text : "failed without a reason");
    } catch (const std::exception&) {
      error = "out of memory";  // short enough for the small-string buffer
      return false;
    }
  }
};

bool widen_to(value_tag element, const value_view& from, std::byte* to) {
  switch (element) {
    case value_tag::i32:
      return codec_detail::widen(from, reinterpret_cast<std::int32_t*>(to));
    case value_tag::i64:
      return codec_detail::widen(from, reinterpret_cast<std::int64_t*>(to));
    case value_tag::f32:
      return codec_detail::widen(from, reinterpret_cast<float*>(to));
    case value_tag::f64:
      return codec_detail::widen(from, reinterpret_cast<double*>(to));
    default:
      return false;
  }
}

/// The numbers of `delta` as elements of `current`, aligned. Empty: they do not match, as reported to `v`.
std::optional<const std::byte*> matching_delta(const value_view& current, const value_view& delta, const verdict& v) {
  const auto* f = v.update.function;
  const auto element = element_of(current.tag);
  if (!is_numeric(current.tag) || !is_numeric(delta.tag)) {
    v.mismatch(current, delta, "the function changes numbers in place");
    return std::nullopt;
  }
  if (f->value_tag != 0 && static_cast<value_tag>(f->value_tag) != element) {
    v.mismatch(current, delta, "the value has a different type");
    return std::nullopt;
  }
  if (is_array(current.tag) != is_array(delta.tag)) {
    v.mismatch(current, delta, "one number and an array cannot be combined");
    return std::nullopt;
  }
  const auto count = current.bytes.size() / element_bytes(element);
  if (delta.bytes.size() / element_bytes(delta.tag) != count) {
    v.mismatch(current, delta, "both must have the same size");
    return std::nullopt;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(delta.bytes.data());
  if (element_of(delta.tag) == element && address % element_bytes(element) == 0) return delta.bytes.data();
  auto* memory = delta_scratch.reserve(std::max<std::size_t>(current.bytes.size(), 1));
  if (!widen_to(element, delta, memory)) {
    delta_scratch.trim();
    v.mismatch(current, delta, "the delta would lose precision");
    return std::nullopt;
  }
  return memory;
}

/// Runs the in-place form; on failure the value may be partly changed.
bool run_in_place(value_tag tag, std::span<std::byte> value, const std::byte* delta, const verdict& v) {
  std::array<char, error_text_bytes> buffer;
  buffer[0] = '\0';
  abi::error_text text{buffer.data(), buffer.size()};
  const auto element = element_of(tag);
  const auto* f = v.update.function;
  const auto result = f->in_place(f, static_cast<std::uint8_t>(element), value.data(), delta,
                                  value.size() / element_bytes(element), &text);
  delta_scratch.trim();
  return v.passed(result, buffer.data());
}

struct vector_sink {
  std::vector<std::byte>& out;
  value_tag tag = value_tag::none;
  bool placed = false;

  static std::byte* place(void* context, std::uint8_t tag, std::uint64_t bytes) noexcept {
    auto& self = *static_cast<vector_sink*>(context);
    self.tag = static_cast<value_tag>(tag);
    try {
      self.out.resize(static_cast<std::size_t>(bytes));
      // An array may be empty, and a null pointer means that there is no memory.
      if (bytes == 0) self.out.reserve(1);
    } catch (const std::exception&) {
      return nullptr;
    }
    self.placed = true;
    return self.out.data();
  }
};

value_tag array_of(value_tag t) noexcept { return static_cast<value_tag>(static_cast<unsigned>(t) | 0x10U); }

bool is_list(const value_view& v) noexcept {
  if (v.tag != value_tag::packed) return is_array(v.tag);
  return std::string_view(codec_detail::packed_kind(v.bytes)) == "packed list";
}

/// Writes `v`, converted to numeric `tag`, to `out`.
void convert_to(value_tag tag, const value_view& v, std::vector<std::byte>& out) {
  const auto store = [&](std::span<const std::byte> bytes) { out.assign(bytes.begin(), bytes.end()); };
  if (tag == v.tag) return store(v.bytes);
  codec_detail::with_element(tag, [&](auto* p) {
    using element = std::remove_const_t<std::remove_pointer_t<decltype(p)>>;
    if (is_array(tag)) {
      const auto numbers = decode<std::vector<element>>(v);
      store(std::as_bytes(std::span(numbers)));
    } else {
      const auto number = decode<element>(v);
      store(std::as_bytes(std::span(&number, 1)));
    }
    return true;
  });
}

abi::value border(const value_view& v) noexcept {
  return {v.bytes.data(), v.bytes.size(), static_cast<std::uint8_t>(v.tag), {}};
}

/// Calls `call` with a sink on `out` and checks the result.
template <class Call>
value_tag run_general(std::vector<std::byte>& out, const verdict& v, Call&& call) {
  std::array<char, error_text_bytes> buffer;
  buffer[0] = '\0';
  abi::error_text text{buffer.data(), buffer.size()};
  vector_sink result{out};
  const abi::sink sink{&result, &vector_sink::place};
  if (!v.passed(call(&sink, &text), buffer.data())) return value_tag::none;
  if (!result.placed || result.tag == value_tag::none || !is_well_formed({result.tag, out})) {
    v.fail(abi::failed, "returned no valid value");
    return value_tag::none;
  }
  return result.tag;
}

}  // namespace

apply_path path_of(const loaded_update& u, const value_view& current, const value_view& delta) noexcept {
  if (u.function->in_place == nullptr || !is_numeric(current.tag)) return apply_path::general;
  if (u.function->apply == nullptr) return apply_path::in_place;
  return current.tag == delta.tag && current.bytes.size() == delta.bytes.size() ? apply_path::in_place
                                                                                : apply_path::general;
}

bool cannot_fail(const loaded_update& u, const value_view& current, const value_view& delta) noexcept {
  const auto wanted = static_cast<value_tag>(u.function->value_tag);
  return u.refused.why() == nullptr && u.function->in_place != nullptr && (u.function->flags & abi::no_throw) != 0 &&
         is_numeric(current.tag) && (wanted == value_tag::none || wanted == element_of(current.tag)) &&
         current.tag == delta.tag && current.bytes.size() == delta.bytes.size() &&
         reinterpret_cast<std::uintptr_t>(delta.bytes.data()) % element_bytes(delta.tag) == 0;
}

bool fits(const loaded_update& u, const value_view& current, const value_view& delta, std::string& error) {
  const verdict v{u, error, nullptr};
  const auto wanted = static_cast<value_tag>(u.function->value_tag);
  if (u.optimizer != nullptr) {
    if (!steps(u, element_of(current.tag)))
      return v.mismatch(current, delta, "the optimizer does not accept this type");
  } else if (u.function->apply != nullptr) {
    return true;
  }
  const bool alike = is_numeric(current.tag) && current.tag == delta.tag &&
                     current.bytes.size() == delta.bytes.size() &&
                     (wanted == value_tag::none || wanted == element_of(current.tag));
  return alike || matching_delta(current, delta, v).has_value();
}

bool apply_in_place(const loaded_update& u, value_tag tag, std::span<std::byte> value, const value_view& delta,
                    std::string& error, abi::outcome* outcome) {
  const verdict v{u, error, outcome};
  const value_view current{tag, value};
  if (!v.callable()) return false;
  if (u.function->in_place == nullptr) return v.fail(abi::failed, "cannot work in place");
  const auto change = matching_delta(current, delta, v);
  if (!change) return false;
  if ((u.function->flags & abi::no_throw) != 0) return run_in_place(tag, value, *change, v);

  auto* before = value_scratch.reserve(std::max<std::size_t>(value.size(), 1));
  if (!value.empty()) std::memcpy(before, value.data(), value.size());
  const bool done = run_in_place(tag, value, *change, v);
  if (!done && !value.empty()) std::memcpy(value.data(), before, value.size());
  value_scratch.trim();
  return done;
}

bool steps(const loaded_update& u, value_tag element) noexcept {
  if (u.optimizer == nullptr) return false;
  return (element == value_tag::f32 && (u.optimizer->flags & abi::steps_float) != 0) ||
         (element == value_tag::f64 && (u.optimizer->flags & abi::steps_double) != 0);
}

bool apply_step(const loaded_update& u, value_tag tag, std::span<std::byte> value, std::span<std::byte> state,
                std::uint64_t number, const value_view& gradient, std::string& error, abi::outcome* outcome) {
  const verdict v{u, error, outcome};
  const value_view current{tag, value};
  const auto element = element_of(tag);
  if (!v.callable()) return false;
  if (!steps(u, element)) return v.mismatch(current, gradient, "the optimizer does not accept this type");
  const auto change = matching_delta(current, gradient, v);
  if (!change) return false;
  const auto& o = *u.optimizer;
  const bool may_fail = (o.flags & abi::step_no_throw) == 0;
  if (may_fail) {
    auto* before = value_scratch.reserve(value.size() + state.size() + 1);
    if (!value.empty()) std::memcpy(before, value.data(), value.size());
    if (!state.empty()) std::memcpy(before + value.size(), state.data(), state.size());
  }
  std::array<char, error_text_bytes> buffer;
  buffer[0] = '\0';
  abi::error_text text{buffer.data(), buffer.size()};
  const auto result = o.step(&o, u.hyper.data(), static_cast<std::uint8_t>(element), value.data(), state.data(),
                             *change, value.size() / element_bytes(element), number, &text);
  delta_scratch.trim();
  const bool done = v.passed(result, buffer.data());
  if (may_fail) {
    const auto* before = value_scratch.reserve(0);
    if (!done && !value.empty()) std::memcpy(value.data(), before, value.size());
    if (!done && !state.empty()) std::memcpy(state.data(), before + value.size(), state.size());
    value_scratch.trim();
  }
  return done;
}

value_tag apply(const loaded_update& u, const value_view& current, const value_view& delta, std::vector<std::byte>& out,
                std::string& error, abi::outcome* outcome) {
  const verdict v{u, error, outcome};
  if (!v.callable()) return value_tag::none;
  if (path_of(u, current, delta) == apply_path::in_place || u.function->apply == nullptr) {
    const auto change = matching_delta(current, delta, v);
    if (!change) return value_tag::none;
    out.assign(current.bytes.begin(), current.bytes.end());
    return run_in_place(current.tag, out, *change, v) ? current.tag : value_tag::none;
  }
  const auto from = border(current);
  const auto by = border(delta);
  return run_general(out, v, [&](const abi::sink* sink, abi::error_text* text) {
    return u.function->apply(u.function, &from, &by, sink, text);
  });
}

value_tag apply_to_missing(const loaded_update& u, const value_view& delta, std::vector<std::byte>& out,
                           std::string& error, abi::outcome* outcome) {
  const verdict v{u, error, outcome};
  if (!v.callable()) return value_tag::none;
  const auto* f = u.function;
  if (f->initialise != nullptr) {
    std::vector<std::byte> first;
    const auto by = border(delta);
    const auto tag = run_general(
        first, v, [&](const abi::sink* sink, abi::error_text* text) { return f->initialise(f, &by, sink, text); });
    return tag == value_tag::none ? tag : apply(u, {tag, first}, delta, out, error, outcome);
  }
  // The new value must be something that the next update can process.
  const auto wanted = static_cast<value_tag>(f->value_tag);
  if (is_numeric(wanted)) {
    const auto tag = f->apply == nullptr && is_list(delta) ? array_of(wanted) : wanted;
    try {
      convert_to(tag, delta, out);
      if (outcome != nullptr) *outcome = abi::ok;
      return tag;
    } catch (const paracel::error& e) {
      v.fail(abi::type_mismatch,
             std::string("the key does not exist, and the delta cannot become its value: ") + e.what());
      return value_tag::none;
    }
  }
  const bool fits = f->apply == nullptr ? is_numeric(delta.tag)
                                        : std::strncmp(f->value_type, f->delta_type, sizeof(f->value_type)) == 0;
  if (fits) {
    out.assign(delta.bytes.begin(), delta.bytes.end());
    if (outcome != nullptr) *outcome = abi::ok;
    return delta.tag;
  }
  v.fail(abi::type_mismatch,
         "the key does not exist, and a delta that is " + kind_of_value(delta) +
             " cannot become its value: write the key first, or give the function an initialised_by");
  return value_tag::none;
}

std::optional<bool> test(const loaded_filter& f, std::string_view key, const value_view& value, std::string& error,
                         abi::outcome* outcome) {
  if (const auto* why = f.refused.why()) {
    error = f.name + ": " + *why;
    if (outcome != nullptr) *outcome = abi::failed;
    return std::nullopt;
  }
  current_call.set_key(key);
  std::array<char, error_text_bytes> buffer;
  buffer[0] = '\0';
  abi::error_text text{buffer.data(), buffer.size()};
  const auto given = border(value);
  std::uint8_t keep = 0;
  const bool takes_value = (f.function->flags & abi::takes_value) != 0;
  const auto result =
      f.function->test(f.function, key.data(), key.size(), takes_value ? &given : nullptr, &keep, &text);
  if (outcome != nullptr) *outcome = static_cast<abi::outcome>(result);
  if (result == abi::ok) return keep != 0;
  if (outcome != nullptr && result != abi::type_mismatch) *outcome = abi::failed;
  error = f.name + ": " + (buffer[0] == '\0' ? "failed without a reason" : buffer.data());
  return std::nullopt;
}

const void* expected_calls::context() const noexcept {
  return update_ != nullptr ? update_->function->context : filter_->function->context;
}

expected_calls::~expected_calls() {
  if (!calls_.empty()) static_cast<const sandboxed_function*>(context())->owner->mine().forget();
}

void expected_calls::add(const value_view& current, const value_view& delta) {
  // An optimizer's state is not known here, and a delta that must be converted is rare.
  if (update_ == nullptr || update_->optimizer != nullptr || update_->refused.why() != nullptr) return;
  const auto& f = *update_->function;
  if (path_of(*update_, current, delta) == apply_path::general) {
    calls_.push_back({.work = sandbox_work::apply,
                      .tag = static_cast<std::uint8_t>(current.tag),
                      .delta_tag = static_cast<std::uint8_t>(delta.tag),
                      .value = current.bytes,
                      .delta = delta.bytes});
    return;
  }
  const auto wanted = static_cast<value_tag>(f.value_tag);
  const auto element = element_of(current.tag);
  if (current.tag != delta.tag || current.bytes.size() != delta.bytes.size()) return;
  if (wanted != value_tag::none && wanted != element) return;
  calls_.push_back({.work = sandbox_work::in_place,
                    .tag = static_cast<std::uint8_t>(element),
                    .value = current.bytes,
                    .delta = delta.bytes});
}

void expected_calls::add(std::string_view key, const value_view& value) {
  if (filter_ == nullptr || filter_->refused.why() != nullptr) return;
  sandboxed_call c{.work = sandbox_work::test, .extra = std::as_bytes(std::span(key))};
  if ((filter_->function->flags & abi::takes_value) != 0) {
    c.tag = static_cast<std::uint8_t>(value.tag);
    c.value = value.bytes;
  }
  calls_.push_back(c);
}

void expected_calls::run() noexcept {
  if (calls_.empty()) return;
  const auto& f = *static_cast<const sandboxed_function*>(context());
  try {
    f.owner->mine().announce(f, calls_);
  } catch (const std::exception&) {  // the calls are then made one by one, and report why
  }
}

}  // namespace paracel::srv
