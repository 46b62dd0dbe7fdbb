// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/scan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <paracel/codec.hpp>
#include <paracel/detail/bytes.hpp>
#include <paracel/free_memory.hpp>

#include "core/hash.hpp"
#include "core/number_parsing.hpp"
#include "server/plugin/last_words.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

namespace {

// What a step may cost beyond the slice: entries visited, removed (about 150 ns each), or passed to a
// filter (which may take 50 us), and bytes copied or summed. 4 MiB are about 1 ms.
constexpr std::size_t seen_a_step = 65'536;
constexpr std::size_t removed_a_step = 8'192;
constexpr std::size_t filtered_a_step = 64;
constexpr std::size_t bytes_a_step = std::size_t{4} << 20;
constexpr std::size_t request_item_bytes = 12;
constexpr std::size_t kept_reply_bytes = std::size_t{16} << 20;

/// Calls f(x) with each number of a numeric value.
template <class F>
void for_each_number(const value_view& v, const F& f) {
  codec_detail::with_element(v.tag, [&](auto* p) {
    using element = std::remove_const_t<std::remove_pointer_t<decltype(p)>>;
    for (std::size_t at = 0; at + sizeof(element) <= v.bytes.size(); at += sizeof(element)) {
      f(load_field<element>(v.bytes.data() + at));
    }
    return true;
  });
}

}  // namespace

/// One request, and how far it has come.
struct scan_service::call {
  explicit call(const net::request_view& r) : request(r), prefix(r.key()) {}

  const net::request_view& request;
  std::string_view prefix;
  const loaded_filter* filter = nullptr;
  net::scan_cursor at;
  scan_observer::time_point until;
  std::size_t room = 0;  ///< bytes of a reply's body
  bool folded = true;    ///< BSP: what is staged has been folded, and the scan may begin
  status failed = status::ok;
  std::string why;

  /// Whether the request concerns this entry. After a failure: no.
  bool wants(const entry& e) {
    if (!prefix.empty() && !e.key().starts_with(prefix)) return false;
    return filter == nullptr || passes(e);
  }
  /// Has a sandbox call the filter for all entries of a step at once; `each` iterates over them.
  template <class Each>
  void announce(expected_calls& soon, const Each& each) const {
    if (!soon.wanted() || failed != status::ok) return;
    each([&](const entry& e) {
      if (e.key().starts_with(prefix)) soon.add(e.key(), e.view());
    });
    soon.run();
  }
  void fail(status s, std::string text) {
    failed = s;
    why = std::move(text);
  }
  [[nodiscard]] std::size_t entries_a_step() const noexcept {
    if (filter != nullptr) return filtered_a_step;
    return request.header.what == verb::remove_if ? removed_a_step : seen_a_step;
  }

 private:
  bool passes(const entry& e) {
    if (failed != status::ok) return false;
    abi::outcome outcome = abi::ok;
    const auto keep = test(*filter, e.key(), e.view(), why, &outcome);
    if (keep) return *keep;
    fail(outcome == abi::type_mismatch ? status::type_mismatch : status::plugin_failed,
         "key " + quote_for_error(e.key()) + ": " + why);
    return false;
  }
};

// ---- the scan -----------------------------------------------------------------------------------------------------
//
// A visitor sees the entries of one step between `begin` and `end`. `end` is false when they did not fit: it has then
// dropped them, and is shown a smaller range, unless it says that it is full. `forced`: no smaller one is possible.

template <class Visitor>
bool scan_service::step_over_group(call& c, std::size_t group, Visitor& visitor) {
  auto& memory = keys_.groups()[group];
  if (memory.blocks() == 0) return true;
  if (memory.blocks() > c.entries_a_step() || memory.used() > std::min(bytes_a_step, visitor.room())) return false;
  const auto each = [&](const auto& f) {
    memory.for_each([&](const void* block) {
      const auto& e = *static_cast<const entry*>(block);
      f(e);
      return e.block_bytes();
    });
  };
  expected_calls soon(c.filter);
  c.announce(soon, each);
  visitor.begin(false);
  each([&](const entry& e) { visitor.visit(e); });
  return visitor.end();
}

template <class Visitor>
void scan_service::visit(call& c, Visitor& visitor) {
  using std::chrono::steady_clock;
  const auto threads = keys_.settings().threads;
  const auto index = keys_.settings().index;
  auto& tables = keys_.tables();
  // The first table of ours at or after the cursor.
  const auto partition = c.at.partition;
  std::size_t i = partition <= index ? 0 : (partition - index + threads - 1) / threads;
  std::uint32_t position = i * threads + index == partition ? c.at.position : 0;
  std::uint32_t width = 0;  // 0: to be chosen
  std::size_t refused_group = tables.size();
  bool worked = false;  // every request makes some progress, however little time there is

  while (c.folded && i < tables.size() && c.failed == status::ok && !visitor.full()) {
    if (worked && steady_clock::now() >= c.until) break;
    if (keys_.keeps_replicas() && !keys_.owns_table(i)) {
      ++i;
      position = 0;
      width = 0;
      continue;
    }
    if (const auto group = i / keys_.group_tables();
        !keys_.keeps_replicas() && i % keys_.group_tables() == 0 && position == 0 && group != refused_group) {
      const bool any = keys_.groups()[group].blocks() != 0;  // before: visited entries may be removed
      if (step_over_group(c, group, visitor)) {
        worked = worked || any;
        i += keys_.group_tables();
      } else {
        refused_group = group;
      }
      continue;
    }
    const auto& t = tables[i];
    if (t.size() == 0) {
      ++i;
      position = 0;
      continue;
    }
    if (width == 0) {
      const auto& memory = keys_.groups()[i / keys_.group_tables()];
      const auto average = memory.used() / memory.blocks() + 1;
      const auto entries = std::clamp(bytes_a_step / average, std::size_t{1}, c.entries_a_step());
      width = static_cast<std::uint32_t>(
          std::clamp<std::size_t>(net::scan_positions * entries / t.size(), 1, net::scan_positions));
    }
    width = std::min(width, net::scan_positions - position);
    expected_calls soon(c.filter);
    c.announce(soon, [&](const auto& f) { t.for_each(position, width, f); });
    visitor.begin(width == 1);
    t.for_each(position, width, [&](const entry& e) { visitor.visit(e); });
    if (!visitor.end()) {
      width = std::max(width / 2, 1U);
      continue;
    }
    if (c.failed != status::ok) break;
    worked = true;
    position += width;
    if (position < net::scan_positions) continue;
    ++i;
    position = 0;
    width = 0;
  }
  const auto next = i * threads + index;
  // Where threads do not divide the partitions, some have no last table.
  c.at = i < tables.size() && next < partition_count ? net::scan_cursor{static_cast<std::uint32_t>(next), position}
                                                     : net::scan_cursor{partition_count, 0};
}

scan_answer scan_service::finished(const call& c, std::uint64_t count) {
  scan_answer a;
  if (c.failed != status::ok) {
    a.result = c.failed;
    a.text = c.why;
    return a;
  }
  net::put_cursor(body_, c.at);
  a.header.count = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, 0xffffffffU));
  if (c.at.partition < partition_count) a.header.flags |= net::reply_more;
  a.body = body_;
  return a;
}

// ---- scan ---------------------------------------------------------------------------------------------------------

namespace {

/// Items of a reply, as many as fit.
template <class Call>
class collector {
 public:
  collector(Call& c, std::vector<std::byte>& body, std::size_t most_bytes)
      : call_(c),
        body_(body),
        most_bytes_(most_bytes),
        front_(body.size()),
        keys_only_((c.request.header.flags & net::flag_keys_only) != 0) {}

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] bool full() const noexcept { return full_; }
  [[nodiscard]] std::size_t room() const noexcept { return call_.room - std::min(call_.room, body_.size()); }
  void begin(bool forced) noexcept {
    mark_ = body_.size();
    count_at_mark_ = count_;
    over_ = false;
    // A range that cannot be split further is sent whatever its size, if nothing else is in the reply.
    forced_ = forced && mark_ == front_;
    limit_ = forced_ ? most_bytes_ : call_.room;
  }
  void visit(const entry& e) {
    if (over_ || !call_.wants(e)) return;
    const auto value = keys_only_ ? value_view{} : e.view();
    over_ = body_.size() + request_item_bytes + e.key().size() + value.bytes.size() > limit_;
    if (over_) return;
    net::append_item(body_, e.key(), value);
    ++count_;
  }
  bool end() {
    if (!over_) return true;
    if (forced_) {
      call_.fail(status::too_large, "keys of one hash do not fit a message together");
      return true;
    }
    body_.resize(mark_);
    count_ = count_at_mark_;
    full_ = mark_ != front_;
    return false;
  }

 private:
  Call& call_;
  std::vector<std::byte>& body_;
  std::size_t most_bytes_;
  std::size_t front_;
  bool keys_only_;
  std::size_t mark_ = 0;
  std::size_t limit_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t count_at_mark_ = 0;
  bool forced_ = false;
  bool over_ = false;
  bool full_ = false;
};

}  // namespace

scan_answer scan_service::scan(call& c) {
  collector visitor(c, body_, keys_.settings().max_message_bytes - net::reply_header_bytes);
  visit(c, visitor);
  return finished(c, visitor.count());
}

// ---- top_k --------------------------------------------------------------------------------------------------------

namespace {

/// A key whose value is one number, in the order of results: by value, exactly (an int64 beyond 2^53 differs from its
/// neighbour), then by key.
struct candidate {
  double rounded;
  const entry* of;

  [[nodiscard]] long double exact() const noexcept {
    return of->tag() == value_tag::i64 ? static_cast<long double>(load_field<std::int64_t>(of->scalar())) : rounded;
  }
  /// Rounding preserves the order, so only equal rounded values need a second comparison.
  [[nodiscard]] bool before(const candidate& other) const noexcept {
    if (rounded != other.rounded) return rounded > other.rounded;
    const auto a = exact();
    const auto b = other.exact();
    return a != b ? a > b : of->key() < other.of->key();
  }
};

template <class Call>
class best {
 public:
  best(Call& c, std::uint32_t k) : call_(c), k_(k) {}

  [[nodiscard]] std::uint64_t skipped() const noexcept { return skipped_; }
  /// The items then fill the room of a reply, or exceed it by at most one step.
  [[nodiscard]] bool full() const noexcept { return bytes_ >= call_.room; }
  [[nodiscard]] static std::size_t room() noexcept { return std::numeric_limits<std::size_t>::max(); }
  void begin(bool) noexcept {}
  /// A million calls in 2 ms: the common case is inlined here.
  [[gnu::always_inline]] void visit(const entry& e) {
    double x = 0;
    switch (e.tag()) {
      [[likely]] case value_tag::f64 : x = load_field<double>(e.scalar());
      break;
      case value_tag::f32:
        x = load_field<float>(e.scalar());
        break;
      case value_tag::i32:
        x = load_field<std::int32_t>(e.scalar());
        break;
      case value_tag::i64:
        x = static_cast<double>(load_field<std::int64_t>(e.scalar()));
        break;
      default:
        return skip(e);
    }
    if (!(x < worst_)) [[unlikely]]
      consider(x, e);
  }
  static bool end() noexcept { return true; }

  /// The largest first.
  std::vector<candidate> sorted() {
    std::sort_heap(heap_.begin(), heap_.end(), before);
    return std::move(heap_);
  }

 private:
  static bool before(const candidate& a, const candidate& b) noexcept { return a.before(b); }
  static std::size_t bytes_of(const candidate& c) noexcept {
    return request_item_bytes + c.of->key().size() + c.of->value().size();
  }
  [[gnu::noinline]] void skip(const entry& e) {
    if (call_.wants(e)) ++skipped_;
  }
  [[gnu::noinline]] void consider(double x, const entry& e) {
    if (std::isnan(x)) return skip(e);
    if (call_.wants(e)) keep({x, &e});
  }
  void keep(const candidate& c) {
    if (heap_.size() == k_) {
      if (!c.before(heap_.front())) return;
      std::pop_heap(heap_.begin(), heap_.end(), before);
      bytes_ -= bytes_of(heap_.back());
      heap_.back() = c;
    } else {
      heap_.push_back(c);
    }
    std::push_heap(heap_.begin(), heap_.end(), before);
    bytes_ += bytes_of(c);
    if (heap_.size() == k_) worst_ = heap_.front().rounded;
  }

  Call& call_;
  std::size_t k_;
  std::vector<candidate> heap_;  // the worst of them in front
  double worst_ = -std::numeric_limits<double>::infinity();
  std::size_t bytes_ = 0;
  std::uint64_t skipped_ = 0;
};

}  // namespace

scan_answer scan_service::top_k(call& c, std::uint32_t k) {
  best visitor(c, k);
  visit(c, visitor);
  net::append(body_, visitor.skipped());
  const auto items = visitor.sorted();
  for (const auto& i : items) net::append_item(body_, i.of->key(), i.of->view());
  if (body_.size() > keys_.settings().max_message_bytes - net::reply_header_bytes) {
    c.fail(status::too_large, "the items do not fit a message");
  }
  return finished(c, items.size());
}

// ---- reduce -------------------------------------------------------------------------------------------------------

namespace {

template <class Call>
class reducer {
 public:
  reducer(Call& c, const net::reduce_request& r) : call_(c), low_(r.low), high_(r.high) {
    result_.bins.resize(r.bins);
    scale_ = r.bins / (r.high - r.low);
  }
  [[nodiscard]] const net::summary& result() const noexcept { return result_; }
  [[nodiscard]] static bool full() noexcept { return false; }
  [[nodiscard]] static std::size_t room() noexcept { return std::numeric_limits<std::size_t>::max(); }
  void begin(bool) noexcept {}
  static bool end() noexcept { return true; }
  void visit(const entry& e) {
    if (!call_.wants(e)) return;
    ++result_.keys;
    if (!is_numeric(e.tag())) {
      ++result_.skipped;
      return;
    }
    for_each_number(e.view(), [this](auto number) { this->add(number); });
  }

 private:
  template <class T>
  void add(T number) {
    const auto x = static_cast<double>(number);
    if constexpr (std::is_same_v<T, std::int64_t>) {
      // The part that does not fit a double is preserved.
      result_.correction += static_cast<double>(static_cast<long double>(number) - x);
    }
    if (std::isnan(x)) {
      ++result_.skipped;
      return;
    }
    ++result_.numbers;
    result_.add(x);
    result_.minimum = std::min(result_.minimum, x);
    result_.maximum = std::max(result_.maximum, x);
    if (result_.bins.empty()) return;
    if (x < low_) ++result_.below;
    else if (x > high_) ++result_.above;
    else ++result_.bins[std::min(static_cast<std::size_t>((x - low_) * scale_), result_.bins.size() - 1)];
  }

  Call& call_;
  double low_;
  double high_;
  double scale_ = 0;
  net::summary result_;
};

}  // namespace

scan_answer scan_service::reduce(call& c, const net::reduce_request& r) {
  reducer visitor(c, r);
  visit(c, visitor);
  net::append(body_, visitor.result());
  return finished(c, visitor.result().keys);
}

// ---- remove_if ----------------------------------------------------------------------------------------------------

namespace {

template <class Call>
class remover {
 public:
  remover(Call& c, key_store& keys, scan_observer& host) : call_(c), keys_(keys), host_(host) {}
  [[nodiscard]] std::uint64_t removed() const noexcept { return removed_; }
  [[nodiscard]] static bool full() noexcept { return false; }
  [[nodiscard]] static std::size_t room() noexcept { return std::numeric_limits<std::size_t>::max(); }
  void begin(bool) noexcept { matches_.clear(); }
  void visit(const entry& e) {
    if (call_.wants(e)) matches_.push_back(&e);
  }
  /// A filter that fails leaves the whole step unchanged.
  bool end() {
    if (call_.failed != status::ok) return true;
    for (const auto* e : matches_) {
      const auto hash = hash_key(e->key());
      host_.erasing(e->key(), hash);
      keys_.erase(hash, e->key());
    }
    removed_ += matches_.size();
    return true;
  }

 private:
  Call& call_;
  key_store& keys_;
  scan_observer& host_;
  std::vector<const entry*> matches_;
  std::uint64_t removed_ = 0;
};

}  // namespace

scan_answer scan_service::remove_if(call& c) {
  remover visitor(c, keys_, host_);
  visit(c, visitor);
  if (c.failed != status::ok && visitor.removed() != 0) {
    c.why += "; " + std::to_string(visitor.removed()) + " keys were removed before";
  }
  return finished(c, visitor.removed());
}

// ---- requests -----------------------------------------------------------------------------------------------------

scan_answer scan_service::handle(const net::request_view& request) {
  const auto& h = request.header;
  const auto begun = std::chrono::steady_clock::now();
  call c(request);
  c.until = begun + limits_.slice;
  const auto most = keys_.settings().max_message_bytes - net::reply_header_bytes;
  c.room = std::min<std::size_t>(h.credit != 0 ? h.credit : limits_.reply_bytes, most);

  const auto refuse = [](status s, std::string text) {
    scan_answer a;
    a.result = s;
    a.text = std::move(text);
    return a;
  };
  net::scan_request plain;
  net::top_k_request top;
  net::reduce_request sums;
  const char* wrong = nullptr;
  switch (h.what) {
    case verb::top_k:
      wrong = decode(request.payload(), top);
      if (wrong == nullptr && top.k == 0) wrong = "the k of a top_k is 0";
      c.at = top.from;
      break;
    case verb::reduce:
      wrong = decode(request.payload(), sums);
      c.at = sums.from;
      break;
    default:
      wrong = decode(request.payload(), plain);
      c.at = plain.from;
      if (wrong == nullptr && h.what == verb::remove_if && h.function == 0 && c.prefix.empty()) {
        wrong = "remove_if needs a filter or a prefix; use clear to remove every key";
      }
  }
  if (wrong != nullptr) return refuse(status::bad_request, wrong);
  if (h.function != 0) {
    c.filter = plugins_.find_filter(h.function);
    if (c.filter == nullptr) {
      return refuse(status::unknown_function,
                    "no filter with this id is registered at s" + std::to_string(keys_.settings().slot));
    }
  }

  free_if_larger(body_, kept_reply_bytes);
  body_.clear();
  net::append(body_, c.at);
  if ((h.flags & net::flag_bsp_read) != 0 && h.clock != net::no_clock) {
    // What is not folded in time is folded by the next request, which begins where this one did.
    c.folded = host_.fold_all_before(h.clock, c.until);
    if (const auto s = host_.broken(c.prefix, c.why); s != status::ok) return refuse(s, std::move(c.why));
  }

  const struct running {
    scan_observer& host;
    std::optional<in_user_call> call;
    running(scan_observer& s, const loaded_filter* f) : host(s) {
      if (f == nullptr) return;
      host.runs(&f->name);
      call.emplace(user_call{&f->name, f->id});
    }
    running(const running&) = delete;
    running& operator=(const running&) = delete;
    ~running() { host.runs(nullptr); }
  } mark(host_, c.filter);
  switch (h.what) {
    case verb::top_k:
      return top_k(c, top.k);
    case verb::reduce:
      return reduce(c, sums);
    case verb::remove_if:
      return remove_if(c);
    default:
      return scan(c);
  }
}

}  // namespace paracel::srv
