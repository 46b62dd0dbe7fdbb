// SPDX-License-Identifier: BSD-3-Clause
#include "server/plugin/plugin_sandbox.hpp"

#include <bit>
#include <cstring>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/number_parsing.hpp"
#include "server/plugin/last_words.hpp"
#include "server/plugin/sandbox_runner.hpp"

namespace paracel::srv {

namespace {

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

template <class Result>
const sandboxed_function& function_of(const Result* self) noexcept {
  return *static_cast<const sandboxed_function*>(self->context);
}

/// Calls, and has `take` copy the result.
template <class Take>
std::int32_t call(const sandboxed_function& f, const sandboxed_call& c, abi::error_text* error,
                  const Take& take) noexcept {
  auto outcome = abi::failed;
  const auto caught = update_detail::guarded(error, [&] {
    const auto& r = f.owner->mine().call(f, c);
    outcome = r.outcome;
    if (outcome == abi::ok) take(r);
    else update_detail::write_text(error, r.text);
  });
  return caught == abi::ok ? outcome : caught;
}

// ---- the stand-ins

std::span<const std::byte> bytes_at(const abi::value& v) noexcept {
  return {v.data, static_cast<std::size_t>(v.bytes)};
}

void place_result(const sandboxed_result& r, const abi::sink* out) {
  if (r.tag == value_tag::none) return;  // the caller notices that nothing was placed
  auto* to = out->place(out->context, static_cast<std::uint8_t>(r.tag), r.result.size());
  if (to == nullptr) throw error("no memory for a result of " + std::to_string(r.result.size()) + " bytes");
  if (!r.result.empty()) std::memcpy(to, r.result.data(), r.result.size());
}

std::int32_t stand_in_apply(const update_result* self, const abi::value* current, const abi::value* delta,
                            const abi::sink* out, abi::error_text* error) noexcept {
  const sandboxed_call c{.work = sandbox_work::apply,
                         .tag = current->tag,
                         .delta_tag = delta->tag,
                         .value = bytes_at(*current),
                         .delta = bytes_at(*delta)};
  return call(function_of(self), c, error, [&](const sandboxed_result& r) { place_result(r, out); });
}

std::int32_t stand_in_initialise(const update_result* self, const abi::value* delta, const abi::sink* out,
                                 abi::error_text* error) noexcept {
  const sandboxed_call c{.work = sandbox_work::initialise, .delta_tag = delta->tag, .delta = bytes_at(*delta)};
  return call(function_of(self), c, error, [&](const sandboxed_result& r) { place_result(r, out); });
}

std::int32_t stand_in_in_place(const update_result* self, std::uint8_t tag, std::byte* value, const std::byte* delta,
                               std::uint64_t count, abi::error_text* error) noexcept {
  const auto bytes = static_cast<std::size_t>(count) * element_bytes(static_cast<value_tag>(tag));
  const sandboxed_call c{.work = sandbox_work::in_place, .tag = tag, .value = {value, bytes}, .delta = {delta, bytes}};
  return call(function_of(self), c, error, [&](const sandboxed_result& r) {
    if (bytes != 0) std::memcpy(value, r.result.data(), bytes);
  });
}

std::int32_t stand_in_step(const optimizer_result* self, const double* hyper, std::uint8_t tag, std::byte* value,
                           std::byte* state, const std::byte* gradient, std::uint64_t count, std::uint64_t number,
                           abi::error_text* error) noexcept {
  const auto bytes = static_cast<std::size_t>(count) * element_bytes(static_cast<value_tag>(tag));
  const auto state_bytes = bytes * self->states;
  const sandboxed_call c{.work = sandbox_work::step,
                         .tag = tag,
                         .number = number,
                         .value = {value, bytes},
                         .delta = {gradient, bytes},
                         .state = {state, state_bytes},
                         .extra = std::as_bytes(std::span(hyper, abi::most_hyper_parameters))};
  return call(function_of(self), c, error, [&](const sandboxed_result& r) {
    if (bytes != 0) std::memcpy(value, r.result.data(), bytes);
    if (state_bytes != 0) std::memcpy(state, r.state.data(), state_bytes);
  });
}

std::int32_t stand_in_test(const filter_result* self, const char* key, std::uint64_t key_bytes, const abi::value* value,
                           std::uint8_t* keep, abi::error_text* error) noexcept {
  sandboxed_call c{.work = sandbox_work::test,
                   .extra = std::as_bytes(std::span(key, static_cast<std::size_t>(key_bytes)))};
  if (value != nullptr) {
    c.tag = value->tag;
    c.value = bytes_at(*value);
  }
  return call(function_of(self), c, error, [&](const sandboxed_result& r) { *keep = r.keep ? 1 : 0; });
}

/// Replaces the pointers in a copy of a plug-in's object, which are valid only in another process. Anything that is not
/// an object of this ABI is left unchanged: the registry refuses it.
void make_stand_in(std::span<std::byte> copy, const sandboxed_function& f) {
  const auto is = [&](std::uint32_t magic, auto& as) {
    if (copy.size() < sizeof as) return false;
    load_fields(copy.data(), as);
    return as.magic == magic && as.abi_version == abi::version && as.struct_bytes == sizeof as;
  };
  const auto put = [&](const auto& as) { store_fields(copy.data(), as); };
  if (update_result u; is(abi::update_magic, u)) {
    u.flags &= ~abi::no_throw;  // the process may end
    u.context = &f;
    if (u.apply != nullptr) u.apply = stand_in_apply;
    if (u.in_place != nullptr) u.in_place = stand_in_in_place;
    if (u.initialise != nullptr) u.initialise = stand_in_initialise;
    put(u);
  } else if (optimizer_result o; is(abi::optimizer_magic, o)) {
    o.flags &= ~abi::step_no_throw;
    o.context = &f;
    if (o.step != nullptr) o.step = stand_in_step;
    put(o);
  } else if (filter_result t; is(abi::filter_magic, t)) {
    t.context = &f;
    if (t.test != nullptr) t.test = stand_in_test;
    put(t);
  }
}

}  // namespace

/// A library in the sandbox.
class plugin_sandbox::library final : public plugin_library {
 public:
  library(plugin_sandbox& of, plugin_file file) : of_(of), file_(std::move(file)) {}

  [[nodiscard]] std::optional<plugin_symbol> find(std::string_view name) override {
    if (const auto known = found_.find(name); known != found_.end()) return known->second;
    auto& f = of_.add_function(file_, std::string(name));
    std::optional<sandbox_runner::loaded_symbol> s;
    try {
      s = of_.mine().load(f);
    } catch (const plugin_error& e) {
      of_.drop_function(f);
      throw plugin_error("plug-in " + file_.path + ": " + e.what());
    }
    if (!s) {
      of_.drop_function(f);
      return std::nullopt;
    }
    auto& copy = of_.add_stand_in(std::move(s->bytes));
    make_stand_in(copy, f);
    return found_.emplace(name, plugin_symbol{std::string(name), s->about.type, s->about.size, copy.data()})
        .first->second;
  }
  [[nodiscard]] std::vector<std::string> exports(std::uint32_t magic) override {
    return of_.mine().exports(file_, magic);
  }
  [[nodiscard]] bool is_sandboxed() const noexcept override { return true; }

 private:
  plugin_sandbox& of_;
  const plugin_file file_;
  std::map<std::string, plugin_symbol, std::less<>> found_;
};

plugin_sandbox::plugin_sandbox(sandbox_options options) : options_(std::move(options)), serial_(next_serial()) {}
plugin_sandbox::~plugin_sandbox() = default;

sandbox_runner& plugin_sandbox::mine() {
  struct known {
    std::uint64_t sandbox = 0;
    sandbox_runner* of_this_thread = nullptr;
  };
  thread_local known last;
  if (last.sandbox != serial_) {
    const std::lock_guard lock(mutex_);
    auto& slot = runners_[std::this_thread::get_id()];
    if (slot == nullptr) slot = std::make_unique<sandbox_runner>(*this);
    last = {serial_, slot.get()};
  }
  return *last.of_this_thread;
}

std::unique_ptr<plugin_library> plugin_sandbox::open(const plugin_file& file, std::string& why) {
  try {
    (void)mine().load({this, 0, file, {}, {}});
  } catch (const plugin_error& e) {
    why = e.what();
    return nullptr;
  }
  return std::make_unique<library>(*this, file);
}

sandboxed_function& plugin_sandbox::add_function(const plugin_file& file, std::string symbol) {
  const std::lock_guard lock(mutex_);
  const auto name = file.path.substr(file.path.rfind('/') + 1) + ":" + symbol;
  return functions_.emplace_back(
      sandboxed_function{this, static_cast<std::uint32_t>(functions_.size()), file, std::move(symbol), name});
}

void plugin_sandbox::drop_function(const sandboxed_function& f) {
  const std::lock_guard lock(mutex_);
  if (&functions_.back() == &f) functions_.pop_back();
}

std::vector<std::byte>& plugin_sandbox::add_stand_in(std::vector<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  return stand_ins_.emplace_back(std::move(bytes));
}

void plugin_sandbox::log_to(std::function<void(const std::string&)> log) {
  const std::lock_guard lock(mutex_);
  log_ = std::move(log);
}

void plugin_sandbox::report(const sandboxed_function& f, const std::string& how) {
  const std::lock_guard lock(mutex_);
  const auto times = ++losses_[f.name];
  if (!std::has_single_bit(times) || !log_) return;
  const auto at = current_call.read().call;
  const auto where = at.row != user_call::no_row ? " at row " + std::to_string(at.row)
                     : at.key.empty()            ? std::string()
                                                 : " at key " + quote_for_error(at.key);
  log_(f.name + where + " " + how + "; its sandbox is replaced" +
       (times == 1 ? "" : "; " + std::to_string(times) + " times so far"));
}

}  // namespace paracel::srv
