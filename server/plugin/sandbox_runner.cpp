// SPDX-License-Identifier: BSD-3-Clause
#include "server/plugin/sandbox_runner.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

namespace paracel::srv {

namespace layout = sandbox_layout;

namespace {

// Shared memory that stays allocated between calls, so that the next large value finds its pages.
constexpr std::uint64_t kept_bytes = std::uint64_t{64} << 20;
// Arguments of a call that is announced: copying larger ones costs more than a hand-over for each.
constexpr std::size_t most_announced_bytes = 4096;
// Four of them must be addressable.
constexpr std::size_t largest_value_bytes = std::size_t{1} << 40;
constexpr std::size_t longest_name = 128;
constexpr std::chrono::milliseconds least_loading_time{10'000};  // it includes starting the process

std::size_t argument_bytes(const sandboxed_call& c) noexcept {
  return c.value.size() + c.delta.size() + c.state.size() + c.extra.size();
}

std::span<const std::byte> bytes_in(const std::string& text) noexcept { return std::as_bytes(std::span(text)); }

/// "30 s", "0.5 s"
std::string limit_text(std::chrono::milliseconds t) {
  auto text = std::to_string(t.count() / 1000);
  if (t.count() % 1000 != 0) text += "." + std::to_string(1000 + t.count() % 1000).substr(1);
  while (text.find('.') != std::string::npos && text.back() == '0') text.pop_back();
  return text + " s";
}

}  // namespace

sandbox_process& sandbox_runner::process() {
  if (process_ == nullptr) {
    const auto& o = of_.options_;
    const auto values = 4 * std::min(o.max_value_bytes, largest_value_bytes);
    const auto shared = layout::aligned(layout::data_at + values + (std::size_t{16} << 20));
    loaded_.clear();
    touched_ = 0;
    process_ = std::make_unique<sandbox_process>(o.program, shared, o.memory_bytes);
    of_.count_started();
  }
  return *process_;
}

bool sandbox_runner::place(std::span<const std::byte> bytes, sandbox_place& out) noexcept {
  const auto memory = process_->memory();
  const auto at = layout::aligned(room_at_);
  if (at > memory.size() || bytes.size() > memory.size() - at) return false;
  out = {at, bytes.size()};
  if (!bytes.empty()) std::memcpy(memory.data() + at, bytes.data(), bytes.size());
  room_at_ = at + bytes.size();
  return true;
}

/// Writes as many calls as fit. Returns: how many.
std::size_t sandbox_runner::write(std::span<const sandboxed_call> calls, std::uint32_t function) {
  const auto memory = process_->memory();
  if (touched_ > layout::data_at + kept_bytes) {
    process_->release(layout::data_at + kept_bytes);
    touched_ = 0;
  }
  written_.clear();
  room_at_ = layout::data_at;
  for (const auto& from : calls.first(std::min(calls.size(), layout::most_calls))) {
    sandbox_call c;
    c.work = from.work;
    c.function = function;
    c.tag = from.tag;
    c.delta_tag = from.delta_tag;
    c.number = from.number;
    const auto before = room_at_;
    if (!place(from.value, c.value) || !place(from.delta, c.delta) || !place(from.state, c.state) ||
        !place(from.extra, c.extra)) {
      room_at_ = before;
      break;
    }
    store_fields(memory.data() + layout::calls_at + written_.size() * sizeof c, c);
    written_.push_back(c);
  }
  touched_ = std::max(touched_, room_at_);
  return written_.size();
}

/// Reads the result of call number `i`, which has ended. False: it is corrupt, and the process must not be used again.
bool sandbox_runner::read(std::size_t i, sandboxed_result& out) {
  const std::span<const std::byte> memory = process_->memory();
  checked_answer a;
  if (const char* wrong = parse_answer(memory, room_at_, i, a)) {
    out.text = std::string("has corrupted the memory of its sandbox: ") + wrong;
    out.ended_process = true;
    return false;
  }
  out.outcome = a.outcome;
  out.tag = a.tag;
  out.keep = a.keep;
  out.result = a.result;
  out.text = std::move(a.text);
  if (a.outcome != abi::ok) explain_memory(out.text);
  if (!a.result.empty())
    touched_ = std::max<std::uint64_t>(touched_, a.result.data() + a.result.size() - memory.data());
  const auto& c = written_[i];
  const auto changed = [&](const sandbox_place& p) { return memory.subspan(p.at, p.bytes); };
  if (c.work == sandbox_work::in_place || c.work == sandbox_work::step) out.result = changed(c.value);
  if (c.work == sandbox_work::step) out.state = changed(c.state);
  return true;
}

void sandbox_runner::lose_process() noexcept {
  process_.reset();
  of_.count_lost();
}

void sandbox_runner::explain_memory(std::string& text) const {
  if (of_.options_.memory_bytes == 0 || text.find("bad_alloc") == std::string::npos) return;
  text += ": the limit of its sandbox is " + std::to_string(of_.options_.memory_bytes >> 20U) + "M (--sandbox-memory)";
}

/// The result of a call that has ended the process.
void sandbox_runner::fail(sandboxed_result& out, const sandbox_process::result& r, std::chrono::milliseconds limit) {
  out = {};
  out.ended_process = true;
  out.late = r.late;
  if (r.late && r.begun == 0) out.text = "its sandbox did not answer";
  else if (r.late) out.text = "ran for longer than " + limit_text(limit) + " (--function-timeout)";
  else out.text = "ended its sandbox: " + r.how;
}

/// Runs the first of these calls, as many as fit, and calls done(i, result) for each that ran. Returns: how many.
template <class Done>
std::size_t sandbox_runner::hand_over(const sandboxed_function& f, std::span<const sandboxed_call> calls,
                                      const Done& done) {
  const auto limit = of_.options_.timeouts.of(f.name);
  for (bool again = false;; again = true) {
    process();
    if ((f.number >= loaded_.size() || !loaded_[f.number]) && !load(f))
      throw plugin_error(f.name + " no longer exists");
    const auto count = write(calls, f.number);
    if (count == 0)
      throw plugin_error("arguments of " + std::to_string(argument_bytes(calls.front())) +
                         " bytes do not fit into the memory of its sandbox");
    ++handed_over_;
    const auto r = process_->run(count, room_at_, limit);
    if (!r.done && r.begun == 0 && !r.late && !again) {  // it had ended earlier, between two calls
      lose_process();
      continue;
    }
    const auto ended = r.done ? r.begun : r.begun == 0 ? 0 : r.begun - 1;
    for (std::size_t i = 0; i < ended; ++i) {
      sandboxed_result out;
      const bool sound = read(i, out);
      done(i, out);
      if (sound) continue;
      lose_process();
      return i + 1;
    }
    if (r.done) return ended;
    sandboxed_result out;
    fail(out, r, limit);
    lose_process();
    done(ended, out);
    return ended + 1;
  }
}

/// A call of the sandbox itself.
void sandbox_runner::run_alone(const sandboxed_call& c, std::uint32_t function, sandboxed_result& out) {
  const auto limit = std::max(of_.options_.timeouts.otherwise, least_loading_time);
  for (bool again = false;; again = true) {
    process();
    out = {};
    if (write({&c, 1}, function) == 0) throw plugin_error("its name is too long");
    const auto r = process_->run(1, room_at_, limit);
    if (r.done) {
      if (!read(0, out)) lose_process();
      return;
    }
    fail(out, r, limit);
    lose_process();
    if (r.begun != 0 || r.late || again) return;
  }
}

std::optional<sandbox_runner::loaded_symbol> sandbox_runner::load(const sandboxed_function& f) {
  const auto slash = f.file.path.rfind('/');
  const auto now = find_plugin_file(f.file.path.substr(0, slash), f.file.path.substr(slash + 1));
  if (!now.exists || !now.problem.empty() || now.content != f.file.content)
    throw plugin_error(f.file.path + " has changed since it was loaded, and its sandbox must load it again");
  sandboxed_result r;
  run_alone({.work = sandbox_work::load, .value = bytes_in(f.file.path), .delta = bytes_in(f.symbol)}, f.number, r);
  if (r.ended_process) throw plugin_error("loading it " + r.text);
  if (r.outcome != abi::ok) throw plugin_error(r.text);
  loaded_symbol s;
  if (r.result.size() < sizeof s.about) {
    if (f.symbol.empty()) return s;
    return std::nullopt;
  }
  if (loaded_.size() <= f.number) loaded_.resize(f.number + 1);
  loaded_[f.number] = true;
  s.bytes.assign(r.result.begin(), r.result.end());
  load_fields(s.bytes.data(), s.about);
  s.bytes.erase(s.bytes.begin(), s.bytes.begin() + sizeof s.about);
  s.bytes.resize(std::min(s.bytes.size(), sizeof(optimizer_result)));
  // The size that the symbol claims, but no more than was copied.
  s.about.size = std::min<std::uint64_t>(s.about.size, std::max<std::size_t>(s.bytes.size(), 1));
  return s;
}

std::vector<std::string> sandbox_runner::exports(const plugin_file& file, std::uint32_t magic) {
  sandboxed_result r;
  run_alone({.work = sandbox_work::exports, .number = magic, .value = bytes_in(file.path)}, 0, r);
  if (r.outcome != abi::ok) return {};  // it is only part of an error text
  const std::string all(reinterpret_cast<const char*>(r.result.data()), r.result.size());
  std::vector<std::string> names;
  for (std::size_t at = 0; at < all.size();) {
    const auto end = std::min(all.find('\0', at), all.size());
    auto name = all.substr(at, std::min(end - at, longest_name));
    std::ranges::replace_if(
        name, [](char c) { return static_cast<unsigned char>(c) <= 0x20; }, '.');
    names.push_back(std::move(name));
    at = end + 1;
  }
  return names;
}

bool sandbox_runner::matches(const memo& m, const sandboxed_function& f, const sandboxed_call& c) const noexcept {
  const auto& k = m.call;
  if (m.f != &f || k.work != c.work || k.tag != c.tag || k.delta_tag != c.delta_tag || k.number != c.number ||
      k.value.size() != c.value.size() || k.delta.size() != c.delta.size() || k.extra.size() != c.extra.size() ||
      !k.state.empty() || !c.state.empty())
    return false;
  const auto* at = m.bytes.data();
  for (const auto part : {c.value, c.delta, c.extra}) {
    if (!part.empty() && std::memcmp(at, part.data(), part.size()) != 0) return false;
    at += part.size();
  }
  return true;
}

void sandbox_runner::remember(const sandboxed_function& f, const sandboxed_call& c, const sandboxed_result& r) {
  if (announced_ == memos_.size()) memos_.emplace_back();
  auto& m = memos_[announced_];
  m.f = &f;
  m.call = c;
  m.bytes.clear();
  for (const auto part : {c.value, c.delta, c.extra}) m.bytes.insert(m.bytes.end(), part.begin(), part.end());
  m.result.assign(r.result.begin(), r.result.end());
  m.out = r;
  m.out.result = m.result;
  ++announced_;
}

void sandbox_runner::announce(const sandboxed_function& f, std::span<const sandboxed_call> calls) {
  forget();
  if (calls.size() < 2) return;
  std::vector<sandboxed_call> small;
  small.reserve(calls.size());
  for (const auto& c : calls) {
    if (argument_bytes(c) <= most_announced_bytes && c.state.empty()) small.push_back(c);
  }
  std::span<const sandboxed_call> left = small;
  while (!left.empty()) {
    bool died = false, late = false;
    const auto handed = std::min(left.size(), layout::most_calls);
    const auto done = hand_over(f, left, [&](std::size_t i, const sandboxed_result& r) {
      remember(f, left[i], r);
      died = died || r.ended_process;
      late = late || r.late;
    });
    if (late || (done < handed && !died)) return;
    left = left.subspan(done);
  }
}

const sandboxed_result& sandbox_runner::call(const sandboxed_function& f, const sandboxed_call& c) {
  for (auto i = next_; i < announced_; ++i) {
    if (!matches(memos_[i], f, c)) continue;
    next_ = i + 1;
    if (memos_[i].out.ended_process) of_.report(f, memos_[i].out.text);
    return memos_[i].out;
  }
  hand_over(f, {&c, 1}, [&](std::size_t, sandboxed_result& r) { result_ = std::move(r); });
  if (result_.ended_process) of_.report(f, result_.text);
  return result_;
}

}  // namespace paracel::srv
